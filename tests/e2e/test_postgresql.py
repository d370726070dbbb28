"""The same gateway on PostgreSQL: one conversation through answer, stop, restart and resume."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.core.contract import Live
from sessions.records import SessionReason
from sessions.settings import StoreSettings
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from sessions.values.secret import Secret
from tests.e2e.gateway_kit import Screen, gateway, talkative
from tests.fakes import postgres
from tests.fakes.model_server import ModelServer

CHAT = "7"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres.running() as server:
        yield server.database()


async def test_a_conversation_lives_on_postgresql_as_it_does_on_sqlite(
    tmp_path: Path, database: str
) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    stored = StoreSettings(url=Secret(database))
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen, store=stored):
            await screen.say(CHAT, "hello", event="e1")
            await screen.say(CHAT, "hello", event="e1")
            await screen.shows(CHAT, "echo: hello")
            await screen.say(CHAT, "hang")
            await screen.say(CHAT, "waits")
            await screen.shows(CHAT, "so far", "1 message is queued.")
            await screen.say(CHAT, "/stop")
            await screen.shows(CHAT, "⏹ Stopped.")
            await screen.say(CHAT, "/resume")
            await screen.shows(CHAT, "echo: waits")
            await screen.say(CHAT, "hang again")
            await screen.say(CHAT, "after the restart")
        async with gateway(tmp_path, model, screen, store=stored) as kit:
            await screen.shows(CHAT, "♻️ I was restarted while working on “hang again”")
            await screen.shows(CHAT, "🆕 New conversation", "echo: after the restart")
            assert await kit.runner.condition.problems() == []
    store = await SessionStore.open(database, clock=SystemClock(), read_only=True)
    try:
        newest, oldest = await store.sessions.list(key=f"memory:{CHAT}")
        assert oldest.reason is SessionReason.RESTART
        assert [row.role for row in await store.sessions.history(newest.id)] == [
            "user",
            "assistant",
        ]
        assert await store.find_problems() == ()
    finally:
        await store.close()
    assert [m.text for m in screen.messages(CHAT)].count("echo: hello") == 1
    assert screen.violations() == []
