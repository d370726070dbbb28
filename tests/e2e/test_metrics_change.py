"""Each metric changes when its event really happens."""

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent.settings import PriceSettings
from gateway.access.settings import AccessSettings
from gateway.settings import GatewaySettings, HttpSettings, LimitSettings, Settings
from platforms.core.contract import Post, Sender
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from tests.e2e.gateway_kit import GatewayKit, Nothing, gateway
from tests.e2e.test_operating import Figures, _ours, address, figures, until, value
from tests.fakes.agent_kit import Workshop
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.memory import DeliveryFault, rate_limited
from tests.fakes.model_script import Script, calls
from tests.fakes.model_server import ModelServer

CHAT = "1001"
KEY = "a-key-of-the-test"
HTTP = HttpSettings(port=0, api_key=Secret(KEY), max_requests=1, slow_after=Duration(0.4))
ANSWER = 'H T"the answer" F stop U(10,100,60) D EOF'


class GatewayEvents:
    """Events at a gateway, one method each."""

    def __init__(self) -> None:
        self.kit: GatewayKit
        self.cuts = iter(('H T"It begins, " RST', 'H T"and ends." F stop U D EOF'))

    def says(self, body: dict[str, Any]) -> Script:
        if body["messages"][-1]["role"] == "tool":
            return ANSWER
        asked = [str(each["content"]) for each in body["messages"] if each["role"] == "user"]
        match re.findall(r"\w+", asked[-1])[-1]:  # an earlier failed request may precede it
            case "look":
                return calls(("c1", "read", '{"path": "a"}'))
            case "stumble":
                return calls(("c1", "broken", "{}"))
            case "hang":
                return 'H T"so far " HANG'
            case "fail":
                return "S400"
            case "cut":
                return next(self.cuts, ANSWER)
            case _:
                return next(self.cuts, ANSWER) if "cut" in str(body) else ANSWER

    async def said(self, text: str, *shown: str, **more: Any) -> None:
        await self.kit.screen.say(CHAT, text, **more)
        await self.kit.screen.shows(CHAT, *shown)

    async def hello(self) -> None:
        await self.said("hello", "the answer", event="one")

    async def hello_again(self) -> None:
        await self.said("hello", event="one")

    async def stranger(self) -> None:
        await self.kit.screen.say("7777", "let me in", sender=Sender("7777", "A stranger"))

    async def whoami(self) -> None:
        await self.said("/whoami", "1001")

    async def looks(self) -> None:
        await self.said("look", "the answer")

    async def stumbles(self) -> None:
        await self.said("stumble", "the answer")

    async def cut(self) -> None:
        await self.said("cut", "and ends.")

    async def fails(self) -> None:
        await self.said("fail", "❌")

    async def limited(self) -> None:
        self.kit.screen.fail(rate_limited(0.01), Post)
        await self.said("/whoami")

    async def hangs(self) -> None:
        await self.said("hang", "so far")

    async def queues(self) -> None:
        await self.said("and then?")

    async def stops(self) -> None:
        await self.said("/stop", "⏹")

    async def new_conversation(self) -> None:
        await self.said("/new", "🆕")

    async def hold_delivery(self) -> None:
        """Hold back a delivery on the platform."""
        self.gate = asyncio.Event()
        self.kit.screen.fail(DeliveryFault(gate=self.gate), Post)
        await self.said("/whoami")

    async def release_delivery(self) -> None:
        self.gate.set()

    async def lose_chat(self) -> None:
        self.kit.screen.lose_chat("7777")
        await self.kit.runner.operations["send"](chat="memory:7777", text="are you there?")

    async def exceed_request_limit(self) -> None:
        """Exceed the limit of one concurrent request."""
        url, headers = (
            f"{address(self.kit)}v1/chat/completions",
            {"authorization": f"Bearer {KEY}"},
        )
        asked = {
            "model": "scripted",
            "stream": True,
            "messages": [{"role": "user", "content": "hang"}],
        }
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(url, json=asked) as first,
        ):
            assert first.status == 200
            self.seen = await figures(self.kit)
            async with http.post(url, json=asked) as second:
                assert second.status == 429
                assert second.headers["retry-after"] == "1"

    async def stall_body(self) -> None:
        """Stall in the middle of a request body."""
        assert self.kit.runner._http_server
        place = ("127.0.0.1", self.kit.runner._http_server.port)
        reader, writer = await asyncio.open_connection(*place, family=socket.AF_INET)
        writer.write(b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nx")
        async with asyncio.timeout(8):
            await reader.read()
        writer.close()

    async def block_loop(self) -> None:
        """Block the event loop."""
        time.sleep(0.3)  # noqa: ASYNC251 - intended


Step = Callable[[GatewayEvents], Awaitable[None]]
MEMORY = {"platform": "memory"}
GAUGES_AFTER: dict[str, list[tuple[str, dict[str, str], float]]] = {
    "hangs": [("running_turns", {}, 1.0)],
    "queues": [("inbox_messages", {"state": "waiting"}, 1.0)],
    "stops": [
        ("running_turns", {}, 0.0),
        ("inbox_messages", {"state": "held"}, 1.0),
        ("sessions", {"state": "suspended"}, 1.0),
    ],
    "new_conversation": [("sessions", {"state": "closed"}, 1.0)],
    "hold_delivery": [("outbox_items", {}, 1.0)],
    "release_delivery": [("outbox_items", {}, 0.0)],
}
"""Values of gauges after a step."""

STEPS: list[tuple[Step, list[tuple[str, dict[str, str]]]]] = [
    (
        GatewayEvents.hello,
        [
            ("inbound_total", {**MEMORY, "decision": "message"}),
            ("queue_wait_seconds_count", MEMORY),
            ("first_text_seconds_count", MEMORY),
            ("turn_seconds_count", MEMORY),
            ("turns_total", {**MEMORY, "state": "done"}),
            ("model_requests_total", {"model": "*", "verdict": "complete"}),
            ("tokens_total", {"model": "*", "kind": "input"}),
            ("tokens_total", {"model": "*", "kind": "output"}),
            ("cached_tokens_total", {"model": "*"}),
            ("cost_dollars_total", {"model": "*"}),
            ("outbound_total", {**MEMORY, "kind": "post", "result": "sent"}),
            ("items_total", {"state": "sent"}),
            ("sessions", {"state": "active"}),
        ],
    ),
    (
        GatewayEvents.hello_again,
        [
            ("inbound_total", {**MEMORY, "decision": "duplicate"}),
            ("duplicates_suppressed_total", MEMORY),
        ],
    ),
    (GatewayEvents.stranger, [("inbound_total", {**MEMORY, "decision": "not_allowed"})]),
    (GatewayEvents.whoami, [("inbound_total", {**MEMORY, "decision": "command"})]),
    (GatewayEvents.looks, [("tool_runs_total", {"result": "ok"})]),
    (GatewayEvents.stumbles, [("tool_runs_total", {"result": "failed"})]),
    (GatewayEvents.cut, [("recoveries_total", {"cause": "cut-text"})]),
    (GatewayEvents.fails, [("turns_total", {**MEMORY, "state": "failed"})]),
    (GatewayEvents.new_conversation, []),
    (GatewayEvents.hangs, []),
    (GatewayEvents.queues, []),
    (
        GatewayEvents.stops,
        [
            ("turns_total", {**MEMORY, "state": "stopped"}),
            ("sessions_suspended_total", {"reason": "stop"}),
        ],
    ),
    (GatewayEvents.hold_delivery, []),
    (GatewayEvents.release_delivery, []),
    (
        GatewayEvents.limited,
        [
            ("rate_limited_total", MEMORY),
            ("outbound_total", {**MEMORY, "kind": "post", "result": "limited"}),
        ],
    ),
    (GatewayEvents.lose_chat, [("items_total", {"state": "dead"})]),
    (GatewayEvents.exceed_request_limit, [("http_refused_total", {"reason": "busy"})]),
    (GatewayEvents.stall_body, [("http_refused_total", {"reason": "slow_body"})]),
    (GatewayEvents.block_loop, [("loop_lag_seconds_count", {}), ("loop_lag_seconds_sum", {})]),
]


def settings_for(model: ModelServer) -> Settings:
    return Settings(
        gateway=GatewaySettings(drain_seconds=0),
        model=scripted_model(
            model,
            price=PriceSettings(input=3.0, output=15.0),
        ),
        http=HTTP,
        access=AccessSettings(allow=(f"memory:{CHAT}",)),
        limits=LimitSettings(messages_per_minute=10_000),
        platforms={"memory": Nothing()},
    )


def of(found: Figures, name: str, labels: dict[str, str]) -> float:
    """Return the value of a metric; `*` matches every value of a label."""
    named = {key: each for key, each in labels.items() if each != "*"}
    return sum(
        number
        for (each, has), number in found.items()
        if each == f"holdfast_{name}" and named.items() <= dict(has).items()
    )


Level = tuple[str, dict[str, str], float]


async def wait_for_changes(
    kit: GatewayKit,
    step: str,
    before: Figures,
    moved: list[tuple[str, dict[str, str]]],
    levels: list[Level],
) -> Figures:
    """Wait until all these metrics have grown and all gauges have their value."""
    missing: list[object] = []

    def enough(now: Figures) -> bool:
        missing[:] = [each for each in moved if of(now, *each) <= of(before, *each)]
        missing.extend(
            (name, labels, of(now, name, labels))
            for name, labels, at in levels
            if of(now, name, labels) != at
        )
        return not missing

    try:
        return await until(kit, enough)
    except TimeoutError:
        msg = f"{step} did not move {missing}"
        raise AssertionError(msg) from None


async def test_every_metric_changes_with_its_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.observe.metrics_page.CENSUS_CACHE_SECONDS", 0.0)
    day = GatewayEvents()
    seen: set[str] = set()
    after: Figures = {}
    async with (
        ModelServer(day.says) as model,
        gateway(
            tmp_path, model, served=True, settings=settings_for(model), tools=Workshop().tools()
        ) as kit,
    ):
        day.kit = kit
        for step, moved in STEPS:
            before = await figures(kit)
            await step(day)
            levels = GAUGES_AFTER.get(step.__name__, [])
            after = await wait_for_changes(kit, step.__name__, before, moved, levels)
            seen |= {name for name, _ in changed_metrics(before, after)}
        assert value(day.seen, "http_requests") == 1
        seen |= {name for (name, _), number in (*after.items(), *day.seen.items()) if number}
    ours = {each.name for each in _ours()}
    assert {name for name in ours if not any(each.startswith(name) for each in seen)} == set()


def changed_metrics(before: Figures, after: Figures) -> Iterator[tuple[str, float]]:
    for (name, labels), number in after.items():
        if number != before.get((name, labels), 0.0):
            yield name, number
