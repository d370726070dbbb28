"""The cost of a turn does not depend on the size of the database."""

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sessions.changes import (
    AppendMessages,
    EndAttempt,
    EndTurn,
    PutItem,
    SetItem,
    StartAttempt,
)
from sessions.records import InboxState, ItemState, Message, TurnState
from sessions.store import schema
from sessions.store.journal import encode_message
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from tests.contract.store_kit import ADDRESS, entry, item, started

TURNS = 60
ANSWER = "a sentence of the answer. " * 20
SUMMARY = "summary of messages. " * 370  # 8 KB
HASH = "0123456789abcdef" * 2


def address(key: str) -> Address:
    return Address(*key.split(":"))


def fill(
    connection: Connection, sessions: int, history: int, ids: Ids, summary: str = ""
) -> list[tuple[str, str]]:
    """Create sessions with this much history and all records of it, fast."""
    names = [(ids.new("s"), f"telegram:{number}") for number in range(sessions)]
    body = encode_message(Message("assistant", ANSWER))
    rows = [
        {"session_id": name, "turn_id": "t_before", "at": 1, "body": body}
        for name, _ in names
        for _ in range(history)
    ]
    connection.execute(
        sa.insert(schema.sessions),
        [
            {
                "id": name,
                "key": key,
                "address": address(key),
                "state": "active",
                "messages": history,
            }
            | {"created_at": 1, "updated_at": 1}
            for name, key in names
        ],
    )
    connection.execute(sa.insert(schema.messages), rows)
    if summary:
        connection.execute(
            sa.insert(schema.summaries),
            [{"session_id": name, "upto": 0, "text": summary} for name, _ in names],
        )
    connection.execute(
        sa.insert(schema.turns),
        [
            {
                "id": ids.new("t"),
                "session_id": name,
                "key": key,
                "address": address(key),
                "state": "done",
            }
            | {"request": "hello", "started_at": 1, "person": key}
            for name, key in names
        ],
    )
    shared = {"address": ADDRESS, "turn_id": "t_before", "state": "done"}
    connection.execute(
        sa.insert(schema.inbox),
        [
            shared
            | {"seq": number + 1, "id": ids.new("i"), "source": key, "event": "1", "key": key}
            | {"received_at": 1, "decision": "", "payload": b"{}"}
            for number, (_, key) in enumerate(names)
        ],
    )
    if connection.dialect.supports_sequences:
        connection.execute(sa.select(sa.func.setval(schema.TIMELINE, sessions)))
    return names


async def turn(store: SessionStore, ids: Ids, session: str, key: str) -> None:
    """Write a typical turn: received, answered in one step, delivered."""
    inbox, name = ids.new("i"), ids.new("t")
    await store.accept(
        entry(inbox, key=key, address=address(key), source=key, state=InboxState.WAITING)
    )
    await store.conversation(key)
    await store.apply(started(name, session, inbox, key=key, at=2, person=key))
    await store.sessions.context(session)
    await store.apply(StartAttempt(name, 1, "openai/one", 3))
    await store.apply(
        EndAttempt(
            turn_id=name,
            number=1,
            verdict="DONE",
            at=4,
            input_tokens=900,
            cached_tokens=800,
            cost=0.0012,
            request_hash=HASH,
        ),
        AppendMessages(session, name, (Message("assistant", ANSWER),), 4),
        EndTurn(name, TurnState.DONE, 4),
        PutItem(item(name, text=ANSWER, turn=name, address=address(key))),
    )
    await store.apply(SetItem(id=name, state=ItemState.ATTEMPTING, at=5, tries=1))
    await store.apply(SetItem(id=name, state=ItemState.SENT, at=6, shown=b'{"messages": ["m1"]}'))


class Wal:
    """The WAL file of SQLite, which grows until a checkpoint."""

    def __init__(self, url: str) -> None:
        self._database = url.removeprefix("sqlite:///")
        self._file = Path(f"{self._database}-wal")

    def empty(self) -> None:
        if self._file.exists():
            with contextlib.closing(sqlite3.connect(self._database)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def size(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0


async def cost(url: str, sessions: int, history: int, summary: str = "") -> tuple[int, int, float]:
    """Return statements, commits and (SQLite) WAL bytes of a turn in a database of this size."""
    chance = random.Random(1)  # noqa: S311 - reproducible
    ids = Ids(SystemClock(), randbits=chance.getrandbits)
    wal = Wal(url)
    store = await SessionStore.open(url, clock=SystemClock())
    try:
        names = await store.database.write(lambda c: fill(c, sessions, history, ids, summary))
        await turn(store, ids, *names[0])
        if store.database.dialect.name == "sqlite":
            await store.database.write(lambda c: c.exec_driver_sql("PRAGMA wal_autocheckpoint=0"))
        wal.empty()
        counts = store.count_queries()
        await turn(store, ids, *names[0])
        statements, commits = counts.statements, counts.commits
        for _ in range(TURNS - 1):
            await turn(store, ids, *chance.choice(names))
        return statements, commits, wal.size() / TURNS
    finally:
        await store.close()


@pytest.fixture
def urls(new_url: str, request: pytest.FixtureRequest) -> tuple[str, str]:
    if new_url.startswith("sqlite"):
        return f"{new_url}.small", f"{new_url}.large"
    return new_url, request.getfixturevalue("postgres_server").database()


LARGE = {"sqlite": 3_000, "postgresql": 1_000}  # filling PostgreSQL takes longer


@pytest.mark.timeout(60)
@pytest.mark.parametrize("more_of", ["sessions", "history"])
async def test_a_turn_costs_the_same_statements_and_wal_bytes(
    urls: tuple[str, str], more_of: str
) -> None:
    large = LARGE[urls[0].partition(":")[0]]
    little = await cost(urls[0], sessions=10, history=10)
    much = await cost(
        urls[1],
        sessions=large if more_of == "sessions" else 10,
        history=large if more_of == "history" else 10,
    )
    assert little[:2] == much[:2]
    assert little[1] == 6
    assert much[2] == pytest.approx(little[2], rel=0.1)


@pytest.mark.timeout(60)
async def test_a_turn_costs_the_same_in_a_conversation_that_has_a_summary(
    urls: tuple[str, str],
) -> None:
    without = await cost(urls[0], sessions=10, history=10)
    summed_up = await cost(urls[1], sessions=10, history=10, summary=SUMMARY)
    assert without[:2] == summed_up[:2]
    assert summed_up[2] == pytest.approx(without[2], rel=0.005)
