"""Turns that an internal error ends: completed calls are neither denied nor repeated."""

import sqlite3
from pathlib import Path

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from sessions.records import TurnState
from tests.e2e.scenarios.scenario_kit import stage
from tests.fakes.model_script import calls

_REFUSE = """CREATE TRIGGER refuse BEFORE UPDATE ON tool_runs
WHEN NEW.call_id = 'c1' BEGIN SELECT RAISE(FAIL, 'the disk is full'); END"""


def _tools(database: Path, ran: list[str]) -> tuple[Tool, ...]:
    @tool(risk=Risk.WRITE, parallel=True)
    async def spoil(_context: ToolContext) -> str:
        """Make the journal reject the end of this call."""
        with sqlite3.connect(database) as connection:
            connection.execute(_REFUSE)
        connection.close()
        return "spoilt"

    @tool(risk=Risk.WRITE, parallel=True)
    async def send(_context: ToolContext) -> str:
        """Send it."""
        ran.append("send")
        return "sent"

    return spoil, send


async def test_a_completed_call_is_not_reported_as_not_run(tmp_path: Path) -> None:
    script = calls(("c1", "spoil", "{}"), ("c2", "send", "{}"), ("c3", "pay", '{"amount":5}'))
    ran: list[str] = []
    tools = _tools(tmp_path / "holdfast.db", ran)
    async with stage(tmp_path, "chat", script, tools=tools) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert ran == ["send"]
        assert scene.desk.ran == []  # c3 waited for the two before it
        results = {r.tool_call_id: r.content for r in await scene.rows() if r.role == "tool"}
        assert results["c2"].startswith("UNKNOWN")
        assert "may have taken effect" in results["c2"]
        assert results["c3"].startswith("Not run")
        assert "user" not in results["c3"]  # not stopped by the user
        assert any("I couldn't finish this" in text for text in scene.shown())


async def test_a_call_running_at_the_stop_has_an_unknown_outcome(
    tmp_path: Path,
) -> None:
    script = calls(("c1", "sleepy", '{"s":30}'))
    async with stage(tmp_path, "chat", script) as scene:
        await scene.say()
        await scene.desk.begun.wait()
        await scene.stop()
        await scene.ends()
        *_, result = await scene.rows()
        assert result.content.startswith("UNKNOWN")
