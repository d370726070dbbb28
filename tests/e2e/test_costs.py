"""Cost of one turn in the database, with few and many stored rows."""

import contextlib
import sqlite3
from pathlib import Path
from typing import NamedTuple

import pytest

from sessions.changes import AppendMessages, Change, EndTurn, OpenSession, SetSession, StartTurn
from sessions.records import Message, SessionReason, SessionState, TurnState
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.clock import SystemClock
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, talkative
from tests.fakes.model_server import ModelServer

TURNS = 12
CHAT = "7"


class Cost(NamedTuple):
    """The least cost of one turn, since timers write beside some of them, and the log of all."""

    statements: int
    """Without the BEGIN of each commit, whose number depends on timing."""
    commits: int
    wal_bytes: int


async def filled(home: Path, sessions: int, history: int) -> None:
    """Open a store with this many sessions and messages."""
    store = await SessionStore.open(f"sqlite:///{home / 'holdfast.db'}", clock=SystemClock())
    here = Address("memory", CHAT)
    changes: list[Change] = []
    for number in range(sessions):
        name, key = f"s_{number:06d}", f"memory:old-{number}"
        changes.append(OpenSession(name, key, Address("memory", str(number)), number))
        changes.append(SetSession(name, SessionState.CLOSED, SessionReason.NEW, number))
    rows = tuple(
        Message("assistant" if number % 2 else "user", content=f"row {number} " + "x" * 100)
        for number in range(history)
    )
    changes += [
        OpenSession("s_1", f"memory:{CHAT}", here, 1),
        StartTurn(
            id="t_1",
            session_id="s_1",
            key=f"memory:{CHAT}",
            address=here,
            inbox=(),
            messages=(),
            request="old",
            at=1,
        ),
        AppendMessages("s_1", "t_1", rows, 1),
        EndTurn("t_1", TurnState.DONE, 1),
    ]
    await store.apply(*changes)
    await store.close()


async def cost_of_turns(kit: GatewayKit, home: Path) -> Cost:
    """Measure turns after a few warm-up turns."""
    store = kit.runner._store
    assert store
    for number in range(3):
        await turn(kit, f"warm {number}")
    await store.check_writable()
    _empty_log(home)
    counts = store.database.count_queries()
    statements, commits = [], []
    for number in range(TURNS):
        counts.statements = counts.commits = 0
        await turn(kit, f"measured {number:02d}")
        await store.check_writable()  # waits for commits after the answer
        statements.append(counts.statements - counts.commits)
        commits.append(counts.commits)
    return Cost(min(statements), min(commits), (home / "holdfast.db-wal").stat().st_size)


def _empty_log(home: Path) -> None:
    """Truncate the log, so that its size measures later writes only."""
    with contextlib.closing(sqlite3.connect(home / "holdfast.db")) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)


async def turn(kit: GatewayKit, text: str) -> None:
    await kit.screen.say(CHAT, text)
    await kit.screen.shows(CHAT, f"echo: {text}")


@pytest.mark.timeout(120)
async def test_a_turn_costs_the_same_with_ten_and_ten_thousand_sessions_and_messages(
    tmp_path: Path,
) -> None:
    costs = {}
    for sessions, history in ((10, 10), (10_000, 10), (10, 10_000)):
        home = tmp_path / f"{sessions}-{history}"
        home.mkdir()
        await filled(home, sessions, history)
        async with (
            ModelServer(talkative) as model,
            gateway(home, model, Screen(burst=1000)) as kit,
        ):
            costs[sessions, history] = await cost_of_turns(kit, home)
    base = costs[10, 10]
    for case, cost in costs.items():
        assert cost.statements == base.statements, (case, costs)
        assert cost.commits <= 6, (case, costs)
        assert 0.9 < cost.wal_bytes / base.wal_bytes < 1.1, (case, costs)
    assert base.statements < 20, costs
