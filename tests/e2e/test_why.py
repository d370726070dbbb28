"""`holdfast why` with and without a running gateway."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.operate.cli.why import why
from gateway.process.control_socket import serve_control_socket, socket_path
from gateway.settings import GatewaySettings, LimitSettings
from platforms.core.contract import (
    Address,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    Live,
    Post,
    Repeat,
    Sender,
    Text,
)
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, talkative
from tests.fakes.memory import rate_limited
from tests.fakes.model_server import ModelServer

ANN, STRANGER = Sender("1001", "Ann"), Sender("5", "Nobody")
CHAT = "1001"
KEY = f"memory:{CHAT}"


class Terminal:
    """The operator's terminal."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        monkeypatch.setenv("HOLDFAST_HOME", str(home))
        monkeypatch.chdir(home)

    @contextlib.asynccontextmanager
    async def gateway(
        self, model: ModelServer, screen: Screen, **more: Any
    ) -> AsyncIterator[GatewayKit]:
        more.setdefault("limits", LimitSettings(messages_per_minute=100))
        async with (
            gateway(self.home, model, screen, **more) as kit,
            serve_control_socket(socket_path(self.home, {}), kit.runner.operations),
        ):
            yield kit

    async def why(self, what: str, code: int = 0) -> str:
        """Return the output, including errors."""
        found = await asyncio.to_thread(CliRunner().invoke, why, [what])
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            assert code
            return str(found.exception)
        assert found.exit_code == code, found.output
        return found.output

    async def until(self, what: str, now: str) -> dict[str, Any]:
        """Return the report of a message once it contains a text."""
        stands = ""
        for _ in range(100):
            (way,) = await self.data(what)
            stands = way["now"]
            if now in stands:
                return way
            await asyncio.sleep(0.02)
        msg = f"{what} never has this state: {stands}"
        raise AssertionError(msg)

    async def data(self, what: str) -> list[dict[str, Any]]:
        found = await asyncio.to_thread(CliRunner().invoke, why, [what, "--json"])
        assert found.exit_code == 0, found.output
        ways: list[dict[str, Any]] = json.loads(found.output)
        return ways


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(tmp_path, monkeypatch)


def a_screen() -> Screen:
    return Screen(live=Live.EDIT, repeat=Repeat.ALWAYS, live_interval=0.01, burst=1000)


def in_a_room(text: str, event: str, sender: Sender, *, addressed: bool = False) -> InboundMessage:
    return InboundMessage(
        event,
        2_000_000_000_000,
        address=Address("memory", "hall"),
        sender=sender,
        parts=(Text(text),),
        addressed=addressed,
    )


async def test_ignored_and_unknown_messages_are_explained(terminal: Terminal) -> None:
    screen = a_screen()
    async with ModelServer(talkative) as model, terminal.gateway(model, screen):
        explanation = await terminal.why("memory:77", code=1)
        assert "Nothing is known about memory:77" in explanation
        assert "memory is connected.\nNo message from memory has been received yet." in explanation
        await screen.inject(in_a_room("chatter", "e1", ANN))
        await screen.inject(in_a_room("hey bot", "e2", STRANGER, addressed=True))
        explanation = await terminal.why("memory:hall")
        assert explanation.startswith(
            "memory:hall: nothing is waiting\nmessage e2 in memory:hall:u=5\n"
        )
        assert "now: it was ignored: its sender has no access. Its text was not kept" in explanation
        assert (
            "continues when: its sender gets access, by access.allow or by holdfast pair"
            in explanation
        )
        assert "message e1 in memory:hall:u=1001" in explanation
        assert "in this room the bot was not addressed" in await terminal.why("e1")
        explanation = await terminal.why("memory:1002", code=1)
        assert "The last message from memory arrived 2" in explanation
        assert "memory:hall:u=5: not allowed\n" in explanation
        assert explanation.endswith("memory:hall:u=1001: not addressed")
        assert "Nothing is known about zebra: no chat" in await terminal.why("zebra", 1)
        explanation = await terminal.why("pigeon:1", code=1)
        assert "pigeon: pigeon is not configured, or its library is missing." in explanation


async def test_a_waiting_message_names_its_turn_and_its_end(terminal: Terminal) -> None:
    screen = a_screen()
    busy = GatewaySettings(drain_seconds=0, queue_limit=2)
    async with (
        ModelServer(talkative) as model,
        terminal.gateway(model, screen, gateway=busy) as kit,
    ):
        await screen.say(CHAT, "please hang", sender=ANN, event="m1")
        await screen.shows(CHAT, "so far")
        for number in (2, 3, 4):
            await screen.say(CHAT, f"number {number}", sender=ANN, event=f"m{number}")
        place = Address("memory", CHAT)
        now = kit.runner._clock.now()
        await screen.inject(
            InboundEdit(
                "x1",
                now,
                address=place,
                sender=ANN,
                message="m2",
                parts=(Text("better"),),
                direct=True,
            )
        )
        await screen.inject(
            InboundDelete("x2", now, address=place, sender=ANN, message="m3", direct=True)
        )
        await screen.inject(
            InboundEdit(
                "x3",
                now,
                address=place,
                sender=ANN,
                message="m1",
                parts=(Text("late"),),
                direct=True,
            )
        )
        await terminal.until("m3", "it was withdrawn before its turn started: its author deleted")
        explanation = await terminal.why(KEY)
        assert explanation.startswith(f"{KEY}: 2 messages not answered yet\n")
        running = await terminal.why("m1")
        assert (
            "now: its turn is waiting for the model (openai/scripted): request 1, sent 2" in running
        )
        assert "edited by its author; too late, its turn had started" in running
        waiting = await terminal.why("m2")
        assert "edited by its author while it was waiting" in waiting
        assert "now: it is waiting for turn t_" in waiting
        assert "(“please hang”, started 2" in waiting
        assert "continues when: that turn ends, or is stopped by /stop in the chat" in waiting
        refused = await terminal.why("m4")
        assert "not accepted: gateway.queue_limit messages were already waiting" in refused
        assert "notice n_" in refused  # the notice to its sender
        (way,) = await terminal.data("m1")
        assert way["now"].startswith("its turn is waiting for the model")
        assert way["goes_on_when"]
        by_turn = await terminal.why(way["turn"]["id"])
        assert by_turn == running
        assert "message m1 in" in await terminal.why(way["session"])
        await screen.say(CHAT, "/stop", sender=ANN, event="m5")
        await screen.shows(CHAT, "⏹ Stopped.")
        stopped = await terminal.why("m1")
        assert "now: its turn was stopped (by /stop); session s_" in stopped
        assert (
            f"continues when: /resume in the chat, or holdfast sessions resume {way['session']}"
            in (stopped)
        )
        held = await terminal.why("m2")
        assert "now: it is kept unanswered with session s_" in held
        assert "command /stop m5 in memory:1001" in await terminal.why("m5")
        assert "now: it was processed\n" in await terminal.why("m5")
    assert "it is kept unanswered" in await terminal.why("m2")  # also without a running gateway


async def test_a_delayed_answer_names_the_cause(terminal: Terminal) -> None:
    screen = a_screen()
    async with ModelServer(talkative) as model:
        async with terminal.gateway(model, screen) as kit:
            await screen.say(CHAT, "hello", sender=ANN, event="m1")
            await screen.shows(CHAT, "echo: hello")
            answered = await terminal.until("m1", "it was answered; the answer was delivered 2")
            assert answered["goes_on_when"] is None
            (answer,) = answered["items"]
            assert "message m1 in memory:1001" in await terminal.why(answer["id"])
            screen.fail(rate_limited(600.0), Post)
            await screen.say(CHAT, "and now", sender=ANN, event="m2")
            await terminal.until("m2", "accepts no message before 2")
            explanation = await terminal.why(KEY)
            assert explanation.startswith(f"{KEY}: 1 ")
            assert " not " in explanation.splitlines()[0]
            await kit.crash()
        await asyncio.sleep(0)
        explanation = await terminal.why("m2")
        assert "no gateway is running on this state folder" in explanation
        assert "continues when: the gateway is started" in explanation
