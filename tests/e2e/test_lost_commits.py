"""PostgreSQL connections lost during commits: every turn ends as if nothing had happened."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from platforms.core.contract import Live
from sessions.records import TurnState
from sessions.settings import StoreSettings
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from sessions.values.secret import Secret
from tests.e2e.gateway_kit import Screen, gateway
from tests.fakes import postgres
from tests.fakes.cutter import HOWS, Cutter, How
from tests.fakes.model_script import Script, calls, words
from tests.fakes.model_server import ModelServer

COMMITS = 12
"""More commits than the turn has; the last cuts hit the commits after the turn."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres.running() as server:
        yield server.database()


def paying(body: dict[str, Any]) -> Script:
    """Call a tool, then answer."""
    if body["messages"][-1]["role"] == "tool":
        return words("It is paid.")
    return calls(("c1", "pay", "{}"))


async def test_turn_is_answered_and_its_tool_runs_once_for_any_lost_commit(
    tmp_path: Path, database: str
) -> None:
    paid: Counter[str] = Counter()

    @tool(risk=Risk.WRITE)
    async def pay(context: ToolContext) -> str:
        """Pay."""
        paid[context.idempotency_key] += 1
        return "paid"

    screen, cutter = Screen(live=Live.EDIT, live_interval=0.01, burst=1000), Cutter(database)
    chats: dict[str, tuple[How, int]] = {
        f"{how}{number}": (how, number) for how in HOWS for number in range(COMMITS)
    }
    async with cutter.listening() as through, ModelServer(paying) as model:
        stored = StoreSettings(url=Secret(through))
        async with gateway(tmp_path, model, screen, store=stored, tools=(pay,)) as kit:
            for chat, (how, number) in chats.items():
                cutter.plan = {cutter.commits + number: how}
                await screen.say(chat, "pay")
                await screen.shows(chat, "It is paid.")
            assert await kit.runner.condition.problems() == []
    assert screen.violations() == []
    store = await SessionStore.open(database, clock=SystemClock(), read_only=True)
    for chat in chats:
        [session] = await store.sessions.list(key=f"memory:{chat}")
        rows = await store.sessions.history(session.id)
        assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant"], chat
        assert session.messages == 4
        [turn] = await store.turns.of_session(session.id)
        assert (turn.state, turn.attempts, turn.resumed) == (TurnState.DONE, 2, 0), chat
        [run] = await store.turns.tool_runs(turn.id)
        assert (run.ok, run.result, run.attempt) == (True, "paid", 1), chat
        texts = [message.text for message in screen.messages(chat)]
        assert [text for text in texts if "paid" in text] == ["It is paid."], chat
    await store.close()
    assert set(paid.values()) == {1}
    assert len(paid) == len(chats)
