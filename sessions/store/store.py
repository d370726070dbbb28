"""The interface to the database.

A write returns after the commit (`synchronous=FULL`); concurrent writes share one commit. A
write that raises was not stored and may be repeated; if the outcome of a commit is unknown, the
write waits for the answer. A read sees one consistent snapshot that includes every write
returned before. Cancelling a task that waits for a write does not cancel the write.
"""

import asyncio
import contextlib
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from sqlalchemy.engine import Connection

from sessions.changes import BudgetLimit, BudgetReservation, Change
from sessions.errors import AmbiguousSession, StoreCorrupt
from sessions.records import (
    Approval,
    BudgetUsage,
    ConversationSnapshot,
    EntryContext,
    InboxEntry,
    Message,
    MessageTrace,
    OutboxItem,
    Session,
    StoreCounts,
    SweepResult,
    ToolRun,
    Turn,
    UsageTotals,
)
from sessions.store import prepare, soundness
from sessions.store import statements as sql
from sessions.store.database import Database, QueryCounts
from sessions.store.engine import parse_url
from sessions.store.forgetting import DataRemoval
from sessions.store.journal import Journal
from sessions.store.queries import (
    approvals,
    budgets,
    census,
    costs,
    inbox,
    outbox,
    sessions,
    together,
    turns,
    values,
)
from sessions.store.safety_copy import copy_before_migration
from sessions.values.clock import Clock

__all__ = ["ConversationSnapshot", "SessionStore", "StoreObserver"]

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

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self._clock = clock
        self._journal = Journal(database.dialect)
        self.data_removal = DataRemoval(database)
        self.observer: StoreObserver | None = None

    @classmethod
    async def open(
        cls, url: str, *, clock: Clock, read_only: bool = False, copy_folder: Path | None = None
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
        return cls(Database(where, read_only=read_only), clock)

    @staticmethod
    async def check_compatible(url: str) -> None:
        """Check that `open` could use or migrate the database; change nothing.

        Other processes may use it. Raises `StoreUnavailable`, `StoreTooNew` or `StoreCorrupt`.
        """
        await asyncio.to_thread(prepare.check_compatible, parse_url(url))

    async def close(self) -> None:
        """Finish all submitted work and refuse more."""
        self.database.stop()
        await asyncio.to_thread(self.database.close)

    # --- writing ------------------------------------------------------------------------------

    async def accept(self, entry: InboxEntry) -> bool:
        """Store an inbox entry, so that the event may be acknowledged.

        Return False for a redelivery.
        """
        new = await self.database.write(lambda c: self._journal.accept(c, entry))
        if self.observer:
            self.observer.on_accepted(entry, new=new)
        return new

    async def apply(self, *changes: Change) -> None:
        """Commit changes, all or none.

        Raises `Conflict` (or `ToolAlreadyStarted`, `RecordNotFound`) if the stored state is not
        what a change expects.
        """
        await self.database.write(lambda c: self._journal.apply(c, changes))
        if self.observer:
            self.observer.on_applied(changes)

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
        if self.observer:
            self.observer.on_applied(before if refused else (*before, *if_reserved))
        return refused

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

    async def check_responsive(self) -> None:
        """Wait for the writer thread without writing; raise `StoreError` without an answer."""
        await self.database.write(lambda _: None)

    @property
    def writer_transactions(self) -> int:
        """Number of transactions the writer thread has begun.

        The number grows while the thread makes progress.
        """
        return self.database.writer_transactions

    # --- reading: conversations ---------------------------------------------------------------

    async def conversation(self, key: str) -> ConversationSnapshot:
        """Return everything an actor needs to load a conversation."""
        return await self.database.read(lambda c: together.read_conversation(c, key))

    async def session(self, session_id: str) -> Session | None:
        """Return a session by id."""
        return await self.database.read(lambda c: sessions.find_session(c, session_id))

    async def find_session(self, text: str, key: str | None = None) -> Session | None:
        """Return the session with this id, or the only one whose id begins with this text.

        With `key`, search only that conversation. Raises `AmbiguousSession`.
        """
        found = await self.database.read(lambda c: sessions.find_by_prefix(c, text, key))
        if len(found) > 1:
            msg = f"{text} matches {len(found)} or more sessions; give more of the id"
            raise AmbiguousSession(msg)
        return found[0] if found else None

    async def sessions(
        self, *, key: str | None = None, platform: str | None = None, limit: int | None = None
    ) -> tuple[Session, ...]:
        """Return sessions, newest first: all, those of a conversation, or those of a platform."""
        return await self.database.read(lambda c: sessions.list_sessions(c, key, platform, limit))

    async def chats(self, platform: str, limit: int) -> tuple[tuple[str, str | None, int], ...]:
        """Return (address, title, last use) of a platform's chats, the last used first."""
        return await self.database.read(lambda c: sessions.list_chats(c, platform, limit))

    async def history(self, session_id: str, limit: int | None = None) -> tuple[Message, ...]:
        """Return the history of a session in order, without retracted rows.

        `limit`: only the newest.
        """
        return await self.database.read(lambda c: sessions.read_history(c, session_id, limit))

    async def history_up_to(self, session_id: str, turn_id: str) -> tuple[Message, ...]:
        """Return the history up to and including a turn; nothing if the turn has no rows."""
        return await self.database.read(
            lambda c: sessions.read_history_up_to(c, session_id, turn_id)
        )

    async def context(self, session_id: str) -> tuple[str, tuple[Message, ...]]:
        """Return the session as a model sees it: a summary of old rows, then the newer rows.

        Without a summary ("") these are all rows. Retracted rows are never included.
        """
        return await self.database.read(lambda c: sessions.read_context(c, session_id))

    # --- reading: turns -----------------------------------------------------------------------

    async def turn(self, turn_id: str) -> Turn | None:
        """Return a turn by id."""
        return await self.database.read(lambda c: turns.find_turn(c, turn_id))

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """Return the turns of a session, oldest first, including retracted ones."""
        return await self.database.read(lambda c: turns.turns_of_session(c, session_id))

    async def last_turn(self, session_id: str) -> Turn | None:
        """Return the newest turn of a session that was not retracted."""
        return await self.database.read(lambda c: turns.last_turn(c, session_id))

    async def running_turns(self) -> tuple[Turn, ...]:
        """Return the running turns; right after a start, those that a dead process left."""
        return await self.database.read(turns.running_turns)

    async def tool_runs(self, turn_id: str) -> tuple[ToolRun, ...]:
        """Return the tool runs of a turn in order of their start."""
        return await self.database.read(lambda c: turns.tool_runs(c, turn_id))

    async def tool_runs_of_calls(
        self, session_id: str, calls: Collection[str]
    ) -> tuple[ToolRun, ...]:
        """Return the tool runs of these calls, from any turn of the session, by start time."""
        if not calls:
            return ()
        return await self.database.read(lambda c: turns.tool_runs_of_calls(c, session_id, calls))

    async def usage_totals(
        self,
        *,
        turn_id: str | None = None,
        session_id: str | None = None,
        key: str | None = None,
        person: str | None = None,
        since: int | None = None,
    ) -> UsageTotals:
        """Return the total usage of the turns that match all given filters.

        `since` selects turns started at that time or later. Retracted turns and unfinished requests
        are included.
        """
        given = {
            "turn_id": turn_id,
            "session_id": session_id,
            "key": key,
            "person": person,
            "since": since,
        }
        only = {name: value for name, value in given.items() if value is not None}
        return await self.database.read(lambda c: costs.sum_usage(c, only))

    async def budget_usage(self, day: str, scopes: Collection[str]) -> dict[str, BudgetUsage]:
        """Return the spending of these scopes on a day; `BudgetUsage()` for scopes without any."""
        return await self.database.read(lambda c: budgets.read_usage(c, day, scopes))

    # --- reading: approvals --------------------------------------------------------------------

    async def approval(self, approval_id: str) -> Approval | None:
        """Return an approval by id."""
        return await self.database.read(lambda c: approvals.find_approval(c, approval_id))

    async def open_approvals(self, key: str | None = None) -> tuple[Approval, ...]:
        """Return the open approvals, oldest first; `key`: of one conversation."""
        return await self.database.read(lambda c: approvals.open_approvals(c, key))

    async def allowed_approval(
        self, session_id: str, tool: str, arguments: str, since: int
    ) -> Approval | None:
        """Return the newest unused permission for exactly this call, asked since a time."""
        return await self.database.read(
            lambda c: approvals.allowed_approval(c, session_id, tool, arguments, since)
        )

    # --- reading: inbox ------------------------------------------------------------------------

    async def inbox_entry(self, source: str, event: str) -> InboxEntry | None:
        """Return an inbox entry by the two fields that a redelivery repeats."""
        return await self.database.read(lambda c: inbox.find_entry(c, source, event))

    async def inbox_entry_by_id(self, inbox_id: str) -> InboxEntry | None:
        """Return an inbox entry by id."""
        return await self.database.read(lambda c: inbox.find_entry_by_id(c, inbox_id))

    async def turn_inbox(self, turn_id: str) -> tuple[InboxEntry, ...]:
        """Return the entries that a turn answers."""
        return await self.database.read(lambda c: inbox.entries_of_turn(c, turn_id))

    async def waiting_keys(self) -> tuple[str, ...]:
        """Return the keys of conversations with waiting messages."""
        return await self.database.read(inbox.waiting_keys)

    async def held_entries(self, session_id: str) -> tuple[InboxEntry, ...]:
        """Return the messages held with a suspended session."""
        return await self.database.read(lambda c: inbox.held_entries(c, session_id))

    async def pending_commands(self) -> tuple[InboxEntry, ...]:
        """Return commands that were received and not yet executed."""
        return await self.database.read(inbox.pending_commands)

    # --- reading: outbox -----------------------------------------------------------------------

    async def undelivered_items(self) -> tuple[OutboxItem, ...]:
        """Return the undelivered items, by `seq`."""
        return await self.database.read(outbox.undelivered_items)

    async def turn_items(self, turn_id: str) -> tuple[OutboxItem, ...]:
        """Return the items of a turn by `seq`, including an answer still being written."""
        return await self.database.read(lambda c: outbox.items_of_turn(c, turn_id, -1))

    async def timeline(
        self, address: str, after: int, limit: int
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
        self, address: str, after: int, limit: int
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
        """Return entries matching a key, an address or an id, newest first, with turns and items.

        The key of a room matches all conversations in the room.
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

    async def newest_entries(
        self, platform: str, limit: int, *, ignored_only: bool = False
    ) -> tuple[InboxEntry, ...]:
        """Return the newest entries of a platform, newest first; optionally only ignored ones."""
        return await self.database.read(
            lambda c: inbox.newest_entries(c, platform, limit, ignored_only=ignored_only)
        )

    async def item(self, item_id: str) -> OutboxItem | None:
        """Return an outbox item by id."""
        return await self.database.read(lambda c: outbox.find_item(c, item_id))

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
