"""Committed changes reach the observer; counts of records, on every database."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from sessions.changes import Change, PutItem, SetItem, SetSession
from sessions.errors import Conflict
from sessions.records import (
    InboxEntry,
    InboxState,
    ItemState,
    SessionReason,
    SessionState,
    StoreCounts,
)
from sessions.store import schema
from sessions.store.queries.census import _COUNTS
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import ADDRESS, ended, entry, item, opened, started

NOTHING = StoreCounts(active=0, suspended=0, closed=0, waiting=0, held=0, to_show=0)


class RecordingObserver:
    """Records the notifications."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, bool]] = []
        self.changes: list[tuple[Change, ...]] = []

    def on_accepted(self, entry: InboxEntry, *, new: bool) -> None:
        self.entries.append((entry.id, new))

    def on_applied(self, changes: tuple[Change, ...]) -> None:
        self.changes.append(changes)


@contextlib.asynccontextmanager
async def observed(url: str, observer: RecordingObserver) -> AsyncIterator[SessionStore]:
    store = await SessionStore.open(url, clock=SystemClock(), observer=observer)
    try:
        yield store
    finally:
        await store.close()


async def test_committed_changes_are_reported_once_and_refused_ones_never(store_url: str) -> None:
    witness = RecordingObserver()
    opening = opened("s1")
    async with observed(store_url, witness) as store:
        await store.apply(opening)
        with pytest.raises(Conflict):
            await store.apply(opened("s2"))
    assert witness.changes == [(opening,)]


async def test_a_redelivery_is_reported_as_not_new(store_url: str) -> None:
    witness = RecordingObserver()
    first = entry("i1")
    async with observed(store_url, witness) as store:
        assert await store.accept(first)
        assert not await store.accept(first)
    assert witness.entries == [("i1", True), ("i1", False)]


async def test_the_observer_is_called_after_the_commit(store_url: str) -> None:
    found: list[asyncio.Task[object]] = []

    class Reading(RecordingObserver):
        def on_applied(self, changes: tuple[Change, ...]) -> None:
            found.append(group.create_task(store.sessions.get("s1")))

    async with observed(store_url, Reading()) as store, asyncio.TaskGroup() as group:
        await store.apply(opened("s1"))
    assert found[0].result() is not None


async def test_records_are_counted_by_state(store: SessionStore) -> None:
    assert await store.count_records() == NOTHING
    await store.apply(
        opened("s1", key="telegram:1"),
        opened("s2", key="telegram:2"),
        opened("s3", key="telegram:3"),
        opened("s4", key="telegram:4"),
        SetSession("s2", SessionState.SUSPENDED, SessionReason.STOP, 1),
        SetSession("s3", SessionState.CLOSED, SessionReason.NEW, 1),
        SetSession("s4", SessionState.CLOSED, SessionReason.NEW, 1),
        PutItem(item("a1")),
        PutItem(item("a2", state=ItemState.UNKNOWN)),
        PutItem(item("a3")),
        PutItem(item("a4")),
        SetItem(id="a3", state=ItemState.SENT, at=1),
        SetItem(id="a4", state=ItemState.DEAD, at=1),
    )
    states = (
        [InboxState.WAITING] * 3
        + [InboxState.HELD] * 2
        + [InboxState.IGNORED, InboxState.REFUSED, InboxState.COMMAND]
    )
    for number, state in enumerate(states):
        await store.accept(entry(f"i{number}", state=state))
    await store.apply(started("t1", "s1", "i0"), ended("t1"))
    assert await store.count_records() == StoreCounts(
        active=1, suspended=1, closed=2, waiting=2, held=2, to_show=2
    )


async def test_counts_use_partial_indexes_except_for_sessions(store: SessionStore) -> None:
    if store.database.dialect.name != "sqlite":
        return  # PostgreSQL scans small tables
    statement = _COUNTS.compile(dialect=store.database.dialect)
    plan = await store.database.read(
        lambda c: [row[3] for row in c.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}")]
    )
    for index in (
        "ux_sessions_active",
        "ix_sessions_suspended",
        "ix_inbox_waiting",
        "ix_inbox_held",
        "ix_outbox_open",
    ):
        assert any(index in step for step in plan), plan


@pytest.mark.timeout(60)
async def test_a_store_with_many_sessions_is_counted_too(store: SessionStore) -> None:
    rows = [
        {"id": f"s{number}", "key": f"telegram:{number}", "address": ADDRESS, "state": "closed"}
        | {"created_at": 1, "updated_at": 1}
        for number in range(20_000)
    ]
    await store.database.write(lambda c: c.execute(sa.insert(schema.sessions), rows))
    assert (await store.count_records()).closed == 20_000
