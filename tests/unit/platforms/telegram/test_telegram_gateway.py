"""Tests of the whole gateway against the fake Telegram server."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.access.settings import AccessSettings
from gateway.runner import GatewayRunner
from platforms.core.contract import Adapter, PlatformSpec, Surroundings
from platforms.telegram.adapter import TelegramAdapter
from platforms.telegram.config import TelegramConfig
from tests.e2e.chat_users import nothing_left
from tests.e2e.gateway_kit import talkative
from tests.fakes.gateway_settings import scripted
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here
from tests.fakes.telegram.faults import Fault
from tests.fakes.telegram.kit import config
from tests.fakes.telegram.server import BOT_NAME, TelegramServer, serving

pytestmark = pytest.mark.quick

ME, GROUP = 1001, -1001234
_NUMBER = re.compile(r"\d+")


def _build(given: Any, surroundings: Surroundings) -> Adapter:
    return TelegramAdapter(given, surroundings, join_scale=0.05)


@contextlib.asynccontextmanager
async def gateway(
    home: Path, model: ModelServer, server: TelegramServer, **changes: Any
) -> AsyncIterator[GatewayRunner]:
    access = AccessSettings(allow=("telegram:1001",))
    runner = GatewayRunner(
        scripted(model, {"telegram": config(server)}, access, **changes),
        home,
        specs={"telegram": PlatformSpec("telegram", TelegramConfig, _build)},
        serve_http=False,
        clock=clock_here(),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run())
        async with asyncio.timeout(8):
            await runner.ready.wait()
        try:
            yield runner
        finally:
            runner.stopping.set()
            runner.skip_drain.set()


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with serving() as server:
        yield server
        assert server.complaints() == []


def now() -> int:
    return clock_here().now() // 1000  # the gateway's clock decides which messages are stale


async def test_an_answer_streams_in_a_draft_that_can_be_stopped(
    server: TelegramServer, tmp_path: Path
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model, server):
        server.say(ME, "hang on", date=now())
        await server.until(lambda: bool(server.room(ME).drafts))
        assert server.screen(ME)[0].startswith("so far")
        (draft,) = server.room(ME).drafts
        server.stop(ME, draft)
        messages = await server.shows(ME, "so far", "topped")
    assert not server.room(ME).drafts
    assert len(messages) == 2


def _shows(server: TelegramServer, number: int) -> bool:
    return len(server.messages(ME)) == number


def _ends_with(server: TelegramServer, texts: list[str]) -> bool:
    return server.screen(ME) == texts and not server.complaints()


@pytest.mark.parametrize("why", ["server without drafts", "chat without drafts"])
async def test_without_drafts_an_answer_streams_by_edits(tmp_path: Path, why: str) -> None:
    whole = "one two three four five six seven eight"

    def slowly(_: dict[str, Any]) -> Script:
        return words(whole, 0.5)

    known = why != "server without drafts"
    async with serving(rich=known, drafts=known) as server, ModelServer(slowly) as model:
        if known:
            refused = Fault(status=400, description="Bad Request: TEXTDRAFT_PEER_INVALID")
            server.fail("sendMessageDraft", refused, 1)
        async with gateway(tmp_path, model, server):
            for number in range(2):
                server.say(ME, f"count {number}", date=now())
                await server.until(partial(_shows, server, number + 1))
                assert server.screen(ME)[-1] != whole
                await server.until(partial(_ends_with, server, [whole] * (number + 1)))
        assert len(server.called("sendMessageDraft")) == 1  # drafts are tried only once
        assert len(server.called("editMessageText")) >= 4
        assert server.complaints() == []


async def test_in_a_group_an_answer_streams_by_edits(
    server: TelegramServer, tmp_path: Path
) -> None:
    def slowly(_: dict[str, Any]) -> Script:
        return words("one two three four five six", 0.25)

    async with ModelServer(slowly) as model, gateway(tmp_path, model, server):
        server.say(GROUP, "@holdfast_bot count", date=now(), entities=_mention())
        await server.shows(GROUP, "one two three four five six")
    assert len(server.messages(GROUP)) == 1
    assert server.called("editMessageText")
    assert not server.called("sendRichMessageDraft")


async def test_a_command_naming_the_bot_works_in_a_group(
    server: TelegramServer, tmp_path: Path
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model, server):
        server.say(GROUP, "/status@another_bot", date=now())
        server.say(GROUP, "/whoami@holdfast_bot", date=now())
        await server.shows(GROUP, "telegram:1001")
        assert len(server.messages(GROUP)) == 1
        assert "stop" in server.commands["default"]
        assert "restart" not in server.commands["default"]
    assert not model.requests


@pytest.mark.process  # half a second of CPU
async def test_many_chats_stream_within_telegrams_rate_limits(tmp_path: Path) -> None:
    whole = " ".join((*(f"word{each}" for each in range(19)), "end."))

    def slowly(body: dict[str, Any]) -> Script:
        """Answer at a pace that differs per chat, so that the answers end one after the other.

        The 40 chats take turns, so each chat's second update follows 80 updates in total. Telegram
        accepts 80 updates in 3.1 s; the last chat has 2 s more before the shortest answer ends.
        """
        number = int(_NUMBER.findall(json.dumps(body["messages"][-1]["content"]))[-1])
        return words(whole, 0.27 + number / 200)

    async with serving(enforce=True) as server, ModelServer(slowly) as model:
        access = AccessSettings(allow=("telegram:*",))
        async with gateway(tmp_path, model, server, access=access) as runner:
            for number in range(20):
                user, said = 2000 + number, f"count {number}"
                server.say(user, said, user=user, date=now())
                mentioned = f"@{BOT_NAME} {said}"
                server.say(-user, mentioned, user=user, date=now(), entities=_mention())
            chats = [*range(2000, 2020), *range(-2019, -1999)]
            await server.until(
                lambda: all(
                    any(whole in each.markdown for each in server.messages(chat)) for chat in chats
                ),
                20.0,
            )
            await nothing_left(runner)
        assert server.complaints() == []
    for chat in chats:
        assert server.screen(chat) == [whole]
    drafts = [each["chat_id"] for each in server.called("sendMessageDraft")]
    shown = {chat: drafts.count(chat) for chat in range(2000, 2020)}
    assert min(shown.values()) >= 2, shown


@pytest.mark.parametrize(
    ("entry", "asked"),
    [("telegram:1001", 0), (f"telegram:{GROUP}/*", 1), ("discord:1/role:2", 0)],
)
async def test_group_membership_is_looked_up_only_where_access_depends_on_it(
    server: TelegramServer, tmp_path: Path, entry: str, asked: int
) -> None:
    server.room(GROUP).members[ME] = "member"
    access = AccessSettings(allow=(entry, "telegram:1001"))
    async with ModelServer(talkative) as model, gateway(tmp_path, model, server, access=access):
        server.say(GROUP, f"@{BOT_NAME} hello", date=now(), entities=_mention())
        await server.shows(GROUP, "echo: hello")
    assert len(server.called("getChatMember")) == asked


async def test_two_gateways_with_one_token_report_the_conflict(
    server: TelegramServer, tmp_path: Path
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path / "a", model, server) as first:
        async with gateway(tmp_path / "b", model, server) as second, asyncio.timeout(5):
            for runner in (first, second):
                problems = runner.condition.problems
                while not any("another program" in each for each in await problems()):  # noqa: ASYNC110 - the runner has no event for this
                    await asyncio.sleep(0.02)
        server.say(ME, "hello", date=now())
        await server.shows(ME, "echo: hello")
    assert set(server.violations) == {"two programs ask for updates"}
    server.violations.clear()


def _mention() -> list[dict[str, Any]]:
    return [{"type": "mention", "offset": 0, "length": 13}]
