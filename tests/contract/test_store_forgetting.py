"""Deleting sessions, old rows and values."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from sessions.changes import (
    AppendMessages,
    EndAttempt,
    EndTool,
    OpenSession,
    PutApproval,
    PutItem,
    PutSummary,
    SetInbox,
    SetItem,
    SetSession,
    StartAttempt,
    StartTool,
)
from sessions.records import (
    InboxState,
    ItemKind,
    ItemState,
    Message,
    OutboxItem,
    SessionReason,
    SessionState,
    UsageTotals,
)
from sessions.store import copy
from sessions.store.engine import migration_engine, parse_url
from sessions.store.forgetting import BATCH_ROWS, INBOX_ID_RETENTION_MS, DataRemoval
from sessions.store.schema import metadata
from sessions.store.store import SessionStore
from sessions.values.address import Address
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

NOW = 10 * INBOX_ID_RETENTION_MS
WORD = "elderberry"
CLOSED, DELETED = SessionState.CLOSED, SessionReason.DELETED


@pytest.fixture
def forgetting(store: SessionStore) -> DataRemoval:
    return DataRemoval(store.database, pause_seconds=0)


async def converse(
    store: SessionStore,
    session: str,
    *,
    key: str = KEY,
    address: Address = ADDRESS,
    word: str = WORD,
) -> None:
    """Create a session with text in every column that can hold some."""
    turn, row = f"t_{session}", f"i_{session}"
    payload = f'{{"text": "{word}"}}'.encode()
    await store.accept(entry(row, key=key, address=address, payload=payload, received_at=NOW - 500))
    await store.accept(
        entry(
            f"c_{session}",
            key=key,
            address=address,
            payload=payload,
            state=InboxState.DONE,
            received_at=2500,
        )
    )
    await store.apply(
        OpenSession(session, key, address, 1000),
        started(turn, session, row, key=key, said=word),
        StartAttempt(turn, 1, "openai/one", 2000),
        EndAttempt(
            turn_id=turn, number=1, verdict="DONE", at=2100, cause=word, input_tokens=7, cost=0.5
        ),
        StartTool(turn_id=turn, call_id="c1", tool="look", risk="read", arguments=word, at=2100),
        EndTool(turn_id=turn, call_id="c1", ok=True, result=word, at=2200),
        PutApproval(question(f"p_{session}", session=session, turn=turn, key=key, arguments=word)),
        AppendMessages(session, turn, (Message("assistant", word),), 2300),
        PutItem(item(f"o_{session}", text=word, turn=turn, address=address)),
        SetItem(id=f"o_{session}", state=ItemState.SENT, at=2400),
        PutItem(item(f"n_{session}", text=word, address=address)),
        SetItem(id=f"n_{session}", state=ItemState.SENT, at=2600),
        PutSummary(session_id=session, keep=1, summary=word, at=2700),
        ended(turn),
        SetSession(session, CLOSED, DELETED, 3000),
    )


def rows(url: str) -> dict[str, str]:
    """Return the content of all tables as text, without the writer's own rows."""
    engine = migration_engine(parse_url(url))
    with engine.connect() as connection:
        found = {
            name: repr(connection.execute(sa.select(table)).all())
            for name, table in metadata.tables.items()
            if name != "shelves"
        }
    engine.dispose()
    return found


async def test_clearing_a_session_deletes_its_text_and_keeps_its_costs(
    store: SessionStore, store_url: str, forgetting: DataRemoval
) -> None:
    await converse(store, "s1")
    assert [name for name, text in rows(store_url).items() if WORD in text] == [
        "sessions",
        "summaries",
        "messages",
        "inbox",
        "turns",
        "attempts",
        "tool_runs",
        "approvals",
        "outbox",
    ]
    assert await forgetting.uncleared_sessions() == ("s1",)
    await forgetting.clear_sessions("s1", now=NOW)
    left = rows(store_url)
    assert [name for name, text in left.items() if WORD in text] == []
    assert left["outbox"] == "[]"
    assert left["messages"] == "[]"
    assert await forgetting.uncleared_sessions() == ()
    session = await store.sessions.get("s1")
    assert session
    assert (session.state, session.reason, session.title, session.messages) == (
        CLOSED,
        DELETED,
        None,
        0,
    )
    assert await store.spending.totals(key=KEY) == UsageTotals(input_tokens=7, cost=0.5, requests=1)
    assert await store.find_problems() == ()
    await forgetting.clear_sessions("s1", now=NOW)  # a repetition changes nothing
    await forgetting.clear_sessions(now=NOW)


async def test_received_events_are_recognised_for_a_week(
    store: SessionStore, forgetting: DataRemoval
) -> None:
    await converse(store, "s1")
    await forgetting.clear_sessions("s1", now=NOW)
    kept = await store.inbox.find("telegram::1001", "event of i_s1")
    assert kept
    assert (kept.state, kept.payload, kept.turn_id) == (InboxState.IGNORED, None, None)
    assert not await store.accept(entry("i_s1"))  # a redelivery
    assert await store.inbox.find("telegram::1001", "event of c_s1") is None  # older than a week
    assert (await store.delete_ignored(NOW)).ignored == 1
    assert await store.accept(entry("i_s1"))


async def test_deleting_a_session_deletes_all_its_rows_and_no_others(
    store: SessionStore, store_url: str, forgetting: DataRemoval
) -> None:
    await converse(store, "s2", key="web:b", address=Address("web", "b"), word="quince")
    before = rows(store_url)
    await converse(store, "s1")
    await converse(store, "s3", key="web:c", address=Address("web", "c"))
    await forgetting.delete_sessions("s1", "s3", now=NOW + 2 * INBOX_ID_RETENTION_MS)
    assert rows(store_url) == before


async def test_in_a_room_only_rows_of_the_session_are_deleted(
    store: SessionStore, forgetting: DataRemoval
) -> None:
    """Commands of several people have the same address."""
    room = Address("telegram", "-1")
    await converse(store, "s1", key="telegram:-1:u=1", address=room)
    await talk(store, "s9", 1, key="telegram:-1:u=2")
    await store.apply(OpenSession("s8", "telegram:-1:u=3", room, 1))
    await forgetting.clear_sessions("s1", now=NOW)
    assert await store.inbox.get("c_s1") is not None
    assert await store.inbox.get("i_s1") is not None
    assert (await store.inbox.get("i_s1")).payload is None  # type: ignore[union-attr]
    shown = await store.timeline(room, 0, 10)
    assert {each.id for each in shown} == {"c_s1", "n_s1"}


async def test_more_rows_than_one_batch_are_deleted(
    store: SessionStore, store_url: str, forgetting: DataRemoval
) -> None:
    await talk(store, "s1", BATCH_ROWS + 7)
    await store.apply(SetSession("s1", CLOSED, DELETED, 9000))
    counted = store.count_queries()
    await forgetting.delete_sessions("s1", now=NOW)
    assert counted.commits < 20
    assert set(rows(store_url).values()) == {"[]"}


async def test_only_inactive_old_sessions_are_listed_as_idle(
    store: SessionStore, forgetting: DataRemoval
) -> None:
    for number, (state, reason, at) in enumerate(
        [
            (CLOSED, SessionReason.NEW, 5000),
            (CLOSED, SessionReason.ANSWERED, 9000),
            (SessionState.SUSPENDED, SessionReason.STOP, 5000),
            (SessionState.SUSPENDED, SessionReason.STOP, 9000),
            (SessionState.ACTIVE, None, 5000),
        ]
    ):
        await store.apply(
            opened(f"s{number}", key=f"web:{number}"), SetSession(f"s{number}", state, reason, at)
        )
    assert [each.id for each in await forgetting.idle_sessions(9000)] == ["s0", "s2"]
    assert (await forgetting.idle_sessions(9000))[0].key == "web:0"


async def test_old_rows_of_continuing_sessions_are_deleted_but_not_their_history(
    store: SessionStore, forgetting: DataRemoval
) -> None:
    await store.apply(opened("s1"))
    for number, at in enumerate((1000, 5000, 9000)):
        turn = f"t{number}"
        await store.accept(entry(f"i{number}", received_at=at))
        await store.apply(
            started(turn, "s1", f"i{number}", said=f"question {number}", at=at),
            StartTool(turn_id=turn, call_id="c1", tool="look", risk="read", arguments="{}", at=at),
            EndTool(turn_id=turn, call_id="c1", ok=True, result="seen", at=at),
            PutItem(
                OutboxItem(
                    id=f"o{number}",
                    address=ADDRESS,
                    kind=ItemKind.ANSWER,
                    state=ItemState.PENDING,
                    body=b"x",
                    created_at=at,
                    turn_id=turn,
                )
            ),
            SetItem(id=f"o{number}", state=ItemState.SENT, at=at),
            ended(turn, at=at),
        )
    await store.accept(entry("i9", received_at=1000))  # waiting
    await store.apply(PutItem(item("o9")))  # not delivered
    await store.accept(entry("i8", received_at=1000))
    # Settled too recently.
    await store.apply(SetInbox(ids=("i8",), state=InboxState.REFUSED, at=9500))
    assert await forgetting.delete_older_than(9000, NOW) == 6
    assert [await store.inbox.get(f"i{n}") is None for n in (0, 1, 2, 8, 9)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert {each.id for each in await store.timeline(ADDRESS, 0, 20)} == {
        "i2",
        "o2",
        "i8",
        "i9",
        "o9",
    }
    assert await store.turns.tool_runs("t1") == ()
    assert len(await store.turns.tool_runs("t2")) == 1
    assert len(await store.sessions.history("s1")) == 3
    assert await forgetting.delete_older_than(9000, NOW) == 0
    assert await store.find_problems() == ()


async def test_values_of_deleted_entries_are_deleted(
    store: SessionStore, forgetting: DataRemoval
) -> None:
    await store.accept(entry("i1"))
    await store.accept(entry("i2", payload=None))
    for name in ("i1", "i2", "i3"):
        await store.put_value("notes", name, "x")
        await store.put_value("others", name, "x")
    await forgetting.delete_orphaned_values("notes")
    assert list(await store.values("notes")) == ["i1"]
    assert len(await store.values("others")) == 3


async def test_deleted_text_is_not_left_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    await converse(store, "s1")
    await converse(store, "s2", key="web:a", address=Address("web", "a"), word="quince")
    await store.close()
    copy.merge_wal(file)
    assert WORD.encode() in file.read_bytes()
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    await DataRemoval(store.database, pause_seconds=0).clear_sessions("s1", now=NOW)
    await store.close()
    copy.merge_wal(file)
    assert WORD.encode() not in file.read_bytes()
    assert b"quince" in file.read_bytes()


async def test_deleting_a_big_history_shrinks_the_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    url = f"sqlite:///{file}"
    store = await SessionStore.open(url, clock=SystemClock())
    await talk(store, "s1", 3)
    await talk(store, "s2", 1500, key="web:a")
    await store.apply(SetSession("s2", CLOSED, DELETED, 9000))
    await store.close()
    full = file.stat().st_size
    store = await SessionStore.open(url, clock=SystemClock())
    forgetting = DataRemoval(store.database, pause_seconds=0)
    async with asyncio.timeout(30):
        await forgetting.delete_sessions("s2", now=NOW)
        await forgetting.release_free_pages()
    assert len(await store.sessions.history("s1")) == 3
    await store.close()
    copy.merge_wal(file)  # merges the WAL into the file
    assert file.stat().st_size < full / 2
    assert b"question 1400" not in file.read_bytes()
