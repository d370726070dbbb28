"""The interface to the database.

A write returns after the commit (`synchronous=FULL`); concurrent writes share one commit. A
write that raises was not stored and may be repeated; if the outcome of a commit is unknown, the
write waits for the answer. A read sees one consistent snapshot that includes every write
returned before. Cancelling a task that waits for a write does not cancel the write.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from sqlalchemy.engine import Connection

from sessions.changes import BudgetLimit, BudgetReservation, Change
from sessions.errors import StoreCorrupt
from sessions.records import (
    ConversationSnapshot,
    EntryContext,
    InboxEntry,
    MessageTrace,
    OutboxItem,
    StoreCounts,
    SweepResult,
)
from sessions.store import prepare, soundness
from sessions.store import statements as sql
from sessions.store.database import Database, QueryCounts
from sessions.store.engine import parse_url, release_statements
from sessions.store.forgetting import DataRemoval
from sessions.store.journal import Journal
from sessions.store.queries import (
    census,
    together,
    values,
)
from sessions.store.readers import (
    ApprovalReader,
    OutboxReader,
    ReceivedReader,
    SessionReader,
    SpendingReader,
    TurnReader,
)
from sessions.store.safety_copy import copy_before_migration
from sessions.values.address import Address
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

__all__ = ["ConversationSnapshot", "SessionStore", "StoreObserver"]

_CLOSE_TIMEOUT_SECONDS = 10.0
_SWEEP_BATCH_ROWS = 500
_STORE_SHELF = "store"


class StoreObserver(Protocol):
    """Receives committed changes, right after the commit; methods must return quickly.

    Writes whose task was cancelled before the commit are not reported.
    """

    def on_accepted(self, entry: InboxEntry, *, new: bool) -> None:
        """Handle a stored inbox entry; `new` is False for a redelivery."""
        ...

    def on_applied(self, changes: tuple[Change, ...]) -> None:
        """Handle committed changes."""
        ...


class SessionStore:
    """Sessions, their history, and the journal of everything received, executed and shown."""

    def __init__(
        self, database: Database, clock: Clock, observer: StoreObserver | None = None
    ) -> None:
        self.database = database
        self._clock = clock
        self._observer = observer
        self._journal = Journal(database.dialect)
        self.data_removal = DataRemoval(database)
        self.sessions = SessionReader(database)
        self.turns = TurnReader(database)
        self.spending = SpendingReader(database)
        self.approvals = ApprovalReader(database)
        self.inbox = ReceivedReader(database)
        self.outbox = OutboxReader(database)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock,
        read_only: bool = False,
        copy_folder: Path | None = None,
        observer: StoreObserver | None = None,
    ) -> Self:
        """Open a database, creating or migrating where necessary.

        Before a migration a SQLite file is copied into `copy_folder`. A database opened read-only
        must exist and be up to date; other processes may use it. Raises `StoreUnavailable`,
        `StoreTooNew`, `StoreTooOld` or `StoreCorrupt`.
        """
        where = parse_url(url)
        if read_only:
            await asyncio.to_thread(prepare.check_current, where)
        else:
            keep = copy_before_migration(copy_folder, clock.now())
            await asyncio.to_thread(prepare.prepare, where, keep)
        return cls(Database(where, read_only=read_only), clock, observer)

    @staticmethod
    async def check_compatible(url: str) -> None:
        """Check that `open` could use or migrate the database; change nothing.

        Other processes may use it. Raises `StoreUnavailable`, `StoreTooNew` or `StoreCorrupt`.
        """
        await asyncio.to_thread(prepare.check_compatible, parse_url(url))

    async def close(self, timeout_seconds: float = _CLOSE_TIMEOUT_SECONDS) -> None:
        """Finish all submitted work and refuse more.

        Work that the database does not finish in time is left: a write is then stored or not, as
        after a crash.
        """
        self.database.stop()
        if not await asyncio.to_thread(self.database.close, timeout_seconds):
            log.error(
                "the database %s did not finish within %g s", self.database.name, timeout_seconds
            )

    # --- writing ------------------------------------------------------------------------------

    async def accept(self, entry: InboxEntry) -> bool:
        """Store an inbox entry, so that the event may be acknowledged.

        Return False for a redelivery.
        """
        new = await self.database.write(lambda c: self._journal.accept(c, entry))
        if self._observer:
            self._observer.on_accepted(entry, new=new)
        return new

    async def apply(self, *changes: Change) -> None:
        """Commit changes, all or none.

        Raises `Conflict` (or `ToolAlreadyStarted`, `RecordNotFound`) if the stored state is not
        what a change expects.
        """
        await self.database.write(lambda c: self._journal.apply(c, changes))
        if self._observer:
            self._observer.on_applied(changes)

    async def reserve_budget(
        self,
        reservation: BudgetReservation,
        before: Collection[Change] = (),
        if_reserved: Collection[Change] = (),
    ) -> BudgetLimit | None:
        """Reserve the most a request may use; return None, or the first budget without enough left.

        In the latter case nothing is reserved. `before` is committed in any case and comes first;
        `if_reserved` is committed only with the reservation.
        """
        before, if_reserved = tuple(before), tuple(if_reserved)

        def work(connection: Connection) -> BudgetLimit | None:
            self._journal.apply(connection, before)
            refused = self._journal.reserve(connection, reservation)
            if refused is None:
                self._journal.apply(connection, if_reserved)
            return refused

        refused = await self.database.write(work)
        if self._observer:
            self._observer.on_applied(before if refused else (*before, *if_reserved))
        return refused

    async def save_texts(self, texts: Mapping[str, str]) -> None:
        """Store the visible text of running turns by id, all in one write; see `Checkpoint`."""
        await self.database.write(lambda c: self._journal.save_texts(c, texts))

    async def replace_payload(self, inbox_id: str, payload: bytes | None) -> bool:
        """Replace the payload of an edited message; return False if the entry waits no longer."""
        row = {"row": inbox_id, "payload": payload}
        return await self.database.write(
            lambda c: c.execute(sql.REPLACE_PAYLOAD, row).rowcount == 1
        )

    async def put_value(self, shelf: str, name: str, value: str | None) -> None:
        """Store a small value; None deletes it."""
        await self.database.write(lambda c: self._journal.put_value(c, shelf, name, value))

    async def delete_budgets(self, before: str) -> None:
        """Delete spending records before a day."""
        await self.database.write(lambda c: c.execute(sql.FORGET_BUDGETS, {"before": before}))

    async def delete_ignored(self, before: int) -> SweepResult:
        """Delete ignored entries before a time, in small batches that do not delay other writes."""
        row = {"before": before, "limit": _SWEEP_BATCH_ROWS}
        ignored = 0
        while deleted := await self.database.write(
            lambda c: c.execute(sql.FORGET_IGNORED, row).rowcount
        ):
            ignored += deleted
        return SweepResult(ignored)

    async def check_writable(self) -> None:
        """Commit a small write to check that the database is writable."""
        await self.put_value(_STORE_SHELF, "written_at", str(self._clock.now()))

    async def release_memory(self) -> None:
        """Free the memory that the writer's last statements keep; raises `StoreError`."""
        await self.database.write(release_statements)

    async def check_responsive(self) -> None:
        """Wait for the writer thread without writing; raise `StoreError` without an answer."""
        await self.database.write(lambda _: None)

    @property
    def writer_transactions(self) -> int:
        """Number of transactions the writer thread has begun.

        The number grows while the thread makes progress.
        """
        return self.database.writer_transactions

    # --- reading ---------------------------------------------------------------

    async def conversation(self, key: str) -> ConversationSnapshot:
        """Return everything an actor needs to load a conversation."""
        return await self.database.read(lambda c: together.read_conversation(c, key))

    async def timeline(
        self, address: Address, after: int, limit: int
    ) -> tuple[InboxEntry | OutboxItem, ...]:
        """Return the content of a chat by `seq`: the first rows after a number, or (0) the newest.

        An item is placed at the moment of becoming final, so that a reader never misses one.
        """
        try:
            return await self.database.read(
                lambda c: together.read_timeline(c, address, after, limit)
            )
        except StoreCorrupt:
            return await self._timeline_row_by_row(address, after, limit)

    async def _timeline_row_by_row(
        self, address: Address, after: int, limit: int
    ) -> tuple[InboxEntry | OutboxItem, ...]:
        """Read each row separately, so that a damaged row does not hide the others."""
        places = await self.database.read(
            lambda c: together.timeline_seqs(c, address, after, limit)
        )
        found = list[InboxEntry | OutboxItem]()
        for seq in places:
            with contextlib.suppress(StoreCorrupt):
                found += await self.database.read(partial(together.rows_at, seq=seq))
        return tuple(found)

    async def trace(self, text: str, limit: int = 20) -> tuple[MessageTrace, ...]:
        """Return entries matching a key, an id or the text of an address, with turns and items.

        The newest is first. The key of a room matches all conversations in the room.
        """
        return await self.database.read(lambda c: together.find_traces(c, text, limit))

    async def entry_context(
        self, entry: InboxEntry, correction_decisions: Collection[str]
    ) -> EntryContext:
        """Return why an entry may be waiting.

        `correction_decisions`: decisions on edits and deletions.
        """
        return await self.database.read(
            lambda c: together.entry_context(c, entry, correction_decisions)
        )

    # --- values, counts and checks --------------------------------------------------------------

    async def count_records(self) -> StoreCounts:
        """Count records by state; slow, because every session is visited."""
        return await self.database.read(census.count_records)

    async def get_value(self, shelf: str, name: str) -> str | None:
        """Return a small value."""
        return await self.database.read(lambda c: values.read_value(c, shelf, name))

    async def values(self, shelf: str) -> dict[str, str]:
        """Return all small values of one shelf."""
        return await self.database.read(lambda c: values.read_values(c, shelf))

    @property
    def damage(self) -> str:
        """First damage found since the start; empty if there is none."""
        return self.database.damage

    async def find_problems(self) -> tuple[str, ...]:
        """Return all problems of the database as sentences."""
        try:
            return await self.database.read(soundness.find_problems)
        except StoreCorrupt as error:
            return (str(error),)

    def count_queries(self) -> QueryCounts:
        """Return counters of statements and commits, running from now on."""
        return self.database.count_queries()
