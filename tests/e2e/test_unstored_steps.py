"""The database refuses the row of a step: the chat and the history stay consistent."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.gateway_kit import ME, gateway, opened, talkative
from tests.e2e.test_interruptions import PAY, Bank, locked
from tests.fakes.histories import check_history
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

READS = 'H T"Let me look." C(0,c1,read_file,{"path":"a.txt"}) F tool_calls U D'


def reads(body: dict[str, Any]) -> Script:
    return READS if "read" in str(body["messages"][-1]["content"]) else talkative(body)


async def test_the_text_of_a_step_that_cannot_be_stored_is_kept_and_its_calls_are_not(
    tmp_path: Path,
) -> None:
    async with ModelServer(reads) as model, gateway(tmp_path, model) as kit:
        await kit.screen.say(ME, "hello")
        await kit.screen.shows(ME, "echo: hello")
        with contextlib.closing(
            sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)
        ) as database:
            database.execute(
                "CREATE TRIGGER refused BEFORE INSERT ON messages WHEN NEW.body LIKE '%tool_calls%'"
                " BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )
            await kit.screen.say(ME, "read a.txt")
            await kit.screen.shows(ME, "Let me look.", "I couldn't finish this")
            database.execute("DROP TRIGGER refused")
        await kit.screen.say(ME, "and now")
        await kit.screen.shows(ME, "echo: and now")
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list(key=f"memory:{ME}")
        history = list(await store.sessions.history(session.id))
        assert await store.find_problems() == ()
    check_history(history)
    assert [(row.role, row.content) for row in history[2:]] == [
        ("user", "read a.txt"),
        ("assistant", "Let me look."),
        ("user", "and now"),
        ("assistant", "echo: and now"),
    ]


async def test_the_result_of_a_tool_that_cannot_be_stored_at_first_is_stored_with_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bank = Bank()
    async with (
        ModelServer(PAY) as model,
        gateway(tmp_path, model, tools=(bank.tool,)) as kit,
    ):
        store = kit.runner._store
        assert store
        await store.database.write(lambda c: c.exec_driver_sql("PRAGMA busy_timeout = 50"))
        await kit.screen.say(ME, "pay 5")
        await bank.begun.wait()
        with locked(tmp_path / "holdfast.db"):
            bank.gate.set()
            async with asyncio.timeout(8):
                while "raised an unexpected error" not in caplog.text:  # noqa: ASYNC110 - a log line
                    await asyncio.sleep(0.01)
        await kit.screen.shows(ME, "I couldn't finish this")
    async with opened(tmp_path) as after:
        (session,) = await after.sessions.list(key=f"memory:{ME}")
        history = list(await after.sessions.history(session.id))
        (turn,) = await after.turns.of_session(session.id)
        (run,) = await after.turns.tool_runs(turn.id)
        assert await after.find_problems() == ()
    check_history(history)
    assert [row.content for row in history] == ["pay 5", "Paying now.", "paid 5"]
    assert (run.ok, run.result) == (True, "paid 5")
