"""`db check`: the invariants of a database, and the report of violations."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from sessions.changes import (
    AppendMessages,
    EndTurn,
    PutApproval,
    PutItem,
    SetInbox,
    SetSession,
    StartTurn,
    TakeBackTurn,
)
from sessions.errors import StoreCorrupt
from sessions.records import (
    InboxState,
    ItemState,
    Message,
    SessionReason,
    SessionState,
    ToolCall,
    TurnState,
)
from sessions.store import copy
from sessions.store.engine import migration_engine, parse_url
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import (
    ADDRESS,
    KEY,
    ended,
    entry,
    item,
    opened,
    question,
    started,
    talk,
)

CALLS = Message("assistant", tool_calls=(ToolCall("c1", "look", "{}"), ToolCall("c2", "pay", "{}")))


async def fill(store: SessionStore) -> None:
    """Write records of every kind, as during normal work."""
    await talk(store, "s1", 3)
    for number in range(4):
        await store.accept(entry(f"i{number}"))
    results = tuple(Message("tool", "done", tool_call_id=call) for call in ("c1", "c2"))
    await store.apply(
        started("t1", "s1", "i0"),
        AppendMessages("s1", "t1", (CALLS, *results, Message("assistant", "so")), 2100),
        PutItem(item("o1", turn="t1", state=ItemState.SENT)),
        ended("t1"),
        started("t2", "s1", "i1"),
        PutApproval(question("p1", turn="t2")),
        AppendMessages("s1", "t2", (CALLS,), 2100),  # its calls are still running
        PutItem(item("o2", turn="t2", final=False)),
    )
    await talk(store, "s2", 2, key="web:a")
    await store.apply(
        SetSession("s2", SessionState.SUSPENDED, SessionReason.STOP, 3000),
        SetInbox(ids=("i2",), state=InboxState.HELD, at=3000, session_id="s2"),
        TakeBackTurn("s2", "t_s2_00001", 3000),
    )


async def test_the_database_of_a_working_daemon_is_sound(store: SessionStore) -> None:
    await fill(store)
    assert await store.find_problems() == ()


def spoil(url: str, *statements: str) -> None:
    engine = migration_engine(parse_url(url))  # does not enforce foreign keys on SQLite
    with engine.connect() as connection, connection.begin():
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        pytest.param(
            ["UPDATE turns SET state = 'running' WHERE key = 'telegram:1001'"],
            "Conversations have more than one running turn: telegram:1001",
            id="two running turns",
        ),
        pytest.param(
            ["UPDATE turns SET key = 'web:b' WHERE id = 't1'"],
            "Turns belong to a session of another conversation: t1",
            id="turn of another conversation",
        ),
        pytest.param(
            ["DELETE FROM messages WHERE session_id = 's1'"],
            "The stored number of messages is wrong for sessions: s1",
            id="wrong row count",
        ),
        pytest.param(
            ["UPDATE turns SET state = 'done' WHERE id = 't2'"],
            "Messages are marked as running without a running turn: i1",
            id="running message without turn",
        ),
        pytest.param(
            ["UPDATE inbox SET session_id = 'gone' WHERE id = 'i2'"],
            "Messages are held with a session that does not exist: i2",
            id="message held without session",
        ),
        pytest.param(
            ["UPDATE outbox SET turn_id = 'gone' WHERE id = 'o2'"],
            "Undelivered items belong to a turn that does not exist: o2",
            id="item without turn",
        ),
        pytest.param(
            [
                "UPDATE turns SET state = 'done' WHERE id = 't2'",
                "UPDATE inbox SET state = 'done' WHERE id = 'i1'",
            ],
            "Tool calls have no result after them: c1, c2",
            id="call without result",
        ),
    ],
)
async def test_each_broken_invariant_is_reported_in_a_sentence(
    store: SessionStore, store_url: str, statements: list[str], expected: str
) -> None:
    await fill(store)
    spoil(store_url, *statements)
    assert expected in await store.find_problems()


async def test_a_tool_result_after_another_row_does_not_count(store: SessionStore) -> None:
    await talk(store, "s1", 0)
    rows = (CALLS, Message("tool", "a", tool_call_id="c1"), Message("user", "well?"))
    await store.apply(started("t1", "s1"), AppendMessages("s1", "t1", rows, 2100), ended("t1"))
    assert await store.find_problems() == ("Tool calls have no result after them: c2",)


async def test_history_sent_with_an_api_request_is_not_checked(store: SessionStore) -> None:
    await store.apply(opened("s1"))
    await store.apply(
        StartTurn(
            id="t1",
            session_id="s1",
            key=KEY,
            address=ADDRESS,
            inbox=(),
            messages=(CALLS, Message("user", "x")),
            request="x",
            at=2000,
        ),
        EndTurn("t1", TurnState.DONE, 3000),
    )
    assert await store.find_problems() == ()


async def test_orphaned_rows_are_reported(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"
    store = await SessionStore.open(url, clock=SystemClock())
    await fill(store)
    spoil(url, "DELETE FROM sessions WHERE id = 's2'")
    assert set(await store.find_problems()) == {
        "Rows of messages refer to rows of sessions that do not exist: 2",
        "Rows of turns refer to rows of sessions that do not exist: 2",
    }
    await store.close()


async def test_a_damaged_copy_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    await talk(store, "s1", 40)
    await store.close()
    copy.merge_wal(file)
    copy.check_integrity(file)
    with sqlite3.connect(file) as raw:
        pages = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'ix_messages_session'")
        page = pages.fetchone()[0]
    raw.close()
    content = bytearray(file.read_bytes())
    content[(page - 1) * 4096 + 200 : page * 4096 - 40] = bytes(4096 - 240)
    file.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="The copy of the database is damaged"):
        copy.check_integrity(file)
