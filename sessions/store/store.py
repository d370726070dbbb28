"""The one door to the database.

Writes return when they are committed (`synchronous=FULL`); those that wait at the same moment share
one commit. When one raises, it is not stored and may be repeated; where that is not known, it waits
until it is. Reads see one unchanging moment each, and every write that returned before. A task
may be cancelled while it waits for a write: the write is done all the same.
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
    """Is told what became durable, right after it did, and must be quick about it.

    What was committed although nobody waited for it any more is not told.
    """

    def on_accepted(self, entry: InboxEntry, *, new: bool) -> None:
        """Something was received; not new: it was there already."""
        ...

    def on_applied(self, changes: tuple[Change, ...]) -> None:
        """These are true now."""
        ...


class SessionStore:
    """Sessions, their history, and the journal of what was received, done and shown."""

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
        """Open a database, made or brought up to date if need be.

        Before it is brought up to date a copy of a SQLite file goes into `keep_in`. Read-only it
        must be there and up to date; it may be open elsewhere. Raises `StoreUnavailable`,
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
        """Make sure that `open` would find what it can use or bring up to date; changes nothing.

        It may be open elsewhere. Raises `StoreUnavailable`, `StoreTooNew` or `StoreCorrupt`.
        """
        await asyncio.to_thread(prepare.check_compatible, parse_url(url))

    async def close(self) -> None:
        """Finish what was begun, and take nothing more."""
        self.database.stop()
        await asyncio.to_thread(self.database.close)

    # --- writing ------------------------------------------------------------------------------

    async def accept(self, entry: InboxEntry) -> bool:
        """Keep something received; False when it is there already. Then it may be acknowledged."""
        new = await self.database.write(lambda c: self._journal.accept(c, entry))
        if self.observer:
            self.observer.on_accepted(entry, new=new)
        return new

    async def apply(self, *changes: Change) -> None:
        """Make changes true, all or none.

        Raises `Conflict` (or `ToolAlreadyStarted`, `RecordNotFound`) when what is stored is not what a change
        supposes.
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
        """Hold back what a request may use; None when that is done.

        Else nothing is held back, and this is the first budget that has not enough left. `first`
        becomes true in any case, and before that; `then` only where something is held back.
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
        """Put what a message says now in place of what it said; False when it waits no more."""
        row = {"row": inbox_id, "payload": payload}
        return await self.database.write(
            lambda c: c.execute(sql.REPLACE_PAYLOAD, row).rowcount == 1
        )

    async def put_value(self, shelf: str, name: str, value: str | None) -> None:
        """Keep a small value; None forgets it."""
        await self.database.write(lambda c: self._journal.put_value(c, shelf, name, value))

    async def delete_budgets(self, before: str) -> None:
        """Forget what was spent before a day."""
        await self.database.write(lambda c: c.execute(sql.FORGET_BUDGETS, {"before": before}))

    async def delete_ignored(self, before: int) -> SweepResult:
        """Forget what was ignored before a moment; a little at a time, so that nobody waits."""
        row = {"before": before, "limit": _SWEEP_BATCH_ROWS}
        ignored = 0
        while gone := await self.database.write(
            lambda c: c.execute(sql.FORGET_IGNORED, row).rowcount
        ):
            ignored += gone
        return SweepResult(ignored)

    async def check_writable(self) -> None:
        """Commit something, to know that it can be done."""
        await self.put_value(_STORE_SHELF, "written_at", str(self._clock.now()))

    async def check_responsive(self) -> None:
        """Hear from the thread that writes, without writing; raises `StoreError` when it cannot."""
        await self.database.write(lambda _: None)

    @property
    def writer_transactions(self) -> int:
        """What the thread that writes has taken in hand so far: while it grows, it gets on."""
        return self.database.writer_transactions

    # --- reading: conversations ---------------------------------------------------------------

    async def conversation(self, key: str) -> ConversationSnapshot:
        """What the owner of a conversation must know to go on with it."""
        return await self.database.read(lambda c: together.read_conversation(c, key))

    async def session(self, session_id: str) -> Session | None:
        """A session."""
        return await self.database.read(lambda c: sessions.find_session(c, session_id))

    async def find_session(self, text: str, key: str | None = None) -> Session | None:
        """The session with this id, or the only one whose id begins so.

        `key` looks among the sessions of one conversation. Raises `AmbiguousSession`.
        """
        found = await self.database.read(lambda c: sessions.find_by_prefix(c, text, key))
        if len(found) > 1:
            msg = f"{len(found)} sessions or more are meant by {text}; write more of the id"
            raise AmbiguousSession(msg)
        return found[0] if found else None

    async def sessions(
        self, *, key: str | None = None, platform: str | None = None, limit: int | None = None
    ) -> tuple[Session, ...]:
        """Sessions, the newest first: all, those of a conversation, or those of a platform."""
        return await self.database.read(lambda c: sessions.list_sessions(c, key, platform, limit))

    async def chats(self, platform: str, limit: int) -> tuple[tuple[str, str | None, int], ...]:
        """Chats of a platform, the last used first: address, title, when it was used."""
        return await self.database.read(lambda c: sessions.list_chats(c, platform, limit))

    async def history(self, session_id: str, limit: int | None = None) -> tuple[Message, ...]:
        """The rows of a session that were not taken back, in order; `limit`: the newest of them."""
        return await self.database.read(lambda c: sessions.read_history(c, session_id, limit))

    async def history_up_to(self, session_id: str, turn_id: str) -> tuple[Message, ...]:
        """The rows of a session as far as a turn, that one included; none when it left no row."""
        return await self.database.read(
            lambda c: sessions.read_history_up_to(c, session_id, turn_id)
        )

    async def context(self, session_id: str) -> tuple[str, tuple[Message, ...]]:
        """What a model is to see of a session: a summary of its oldest rows, and the rows behind.

        Without a summary ('') these are all rows; never those that were taken back.
        """
        return await self.database.read(lambda c: sessions.read_context(c, session_id))

    # --- reading: turns -----------------------------------------------------------------------

    async def turn(self, turn_id: str) -> Turn | None:
        """A turn."""
        return await self.database.read(lambda c: turns.find_turn(c, turn_id))

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """The turns of a session, the oldest first, also those that were taken back."""
        return await self.database.read(lambda c: turns.turns_of_session(c, session_id))

    async def last_turn(self, session_id: str) -> Turn | None:
        """The newest turn of a session that was not taken back."""
        return await self.database.read(lambda c: turns.last_turn(c, session_id))

    async def running_turns(self) -> tuple[Turn, ...]:
        """Turns under way; right after a start, those that a dead process left."""
        return await self.database.read(turns.running_turns)

    async def tool_runs(self, turn_id: str) -> tuple[ToolRun, ...]:
        """The tools a turn has started, in that order."""
        return await self.database.read(lambda c: turns.tool_runs(c, turn_id))

    async def tool_runs_of_calls(
        self, session_id: str, calls: Collection[str]
    ) -> tuple[ToolRun, ...]:
        """What was started of these calls of a session, in that order, whichever turns did."""
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
        """What the requests of turns used together, of those that fit all that is given.

        `since`: turns that began then or later. Turns that were taken back count as well, and
        requests that are still under way.
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
        """What was spent of these on a day, by scope; nothing at all counts as `Budget()`."""
        return await self.database.read(lambda c: budgets.read_usage(c, day, scopes))

    # --- reading: questions whether a tool may run --------------------------------------------

    async def approval(self, approval_id: str) -> Approval | None:
        """A question."""
        return await self.database.read(lambda c: approvals.find_approval(c, approval_id))

    async def open_approvals(self, key: str | None = None) -> tuple[Approval, ...]:
        """Questions that nobody has answered, the oldest first; `key`: of one conversation."""
        return await self.database.read(lambda c: approvals.open_approvals(c, key))

    async def allowed_approval(
        self, session_id: str, tool: str, arguments: str, since: int
    ) -> Approval | None:
        """The newest permission for exactly this call that was not used, asked since a moment."""
        return await self.database.read(
            lambda c: approvals.allowed_approval(c, session_id, tool, arguments, since)
        )

    # --- reading: what was received -----------------------------------------------------------

    async def inbox_entry(self, source: str, event: str) -> InboxEntry | None:
        """Something received, by what a redelivery of it would repeat."""
        return await self.database.read(lambda c: inbox.find_entry(c, source, event))

    async def inbox_entry_by_id(self, inbox_id: str) -> InboxEntry | None:
        """Something received, by its id here."""
        return await self.database.read(lambda c: inbox.find_entry_by_id(c, inbox_id))

    async def turn_inbox(self, turn_id: str) -> tuple[InboxEntry, ...]:
        """What a turn answers."""
        return await self.database.read(lambda c: inbox.entries_of_turn(c, turn_id))

    async def waiting_keys(self) -> tuple[str, ...]:
        """Conversations in which something waits to be answered."""
        return await self.database.read(inbox.waiting_keys)

    async def held_entries(self, session_id: str) -> tuple[InboxEntry, ...]:
        """What a suspended session keeps unanswered."""
        return await self.database.read(lambda c: inbox.held_entries(c, session_id))

    async def pending_commands(self) -> tuple[InboxEntry, ...]:
        """Commands that were received and not carried out."""
        return await self.database.read(inbox.pending_commands)

    # --- reading: what is to be shown ---------------------------------------------------------

    async def undelivered_items(self) -> tuple[OutboxItem, ...]:
        """What is not delivered yet, by `seq`."""
        return await self.database.read(outbox.undelivered_items)

    async def turn_items(self, turn_id: str) -> tuple[OutboxItem, ...]:
        """What a turn wants to be shown, by `seq`; its answer too, while it is written."""
        return await self.database.read(lambda c: outbox.items_of_turn(c, turn_id, -1))

    async def timeline(
        self, address: str, after: int, limit: int
    ) -> tuple[InboxEntry | OutboxItem, ...]:
        """What a chat shows, by `seq`: the first rows after a number; after 0, the newest.

        An item has its place where it became final, so that nothing appears behind a reader.
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
        """A damaged row hides no other: each is read by itself."""
        places = await self.database.read(
            lambda c: together.timeline_seqs(c, address, after, limit)
        )
        found = list[InboxEntry | OutboxItem]()
        for seq in places:
            with contextlib.suppress(StoreCorrupt):
                found += await self.database.read(partial(together.rows_at, seq=seq))
        return tuple(found)

    async def trace(self, text: str, limit: int = 20) -> tuple[MessageTrace, ...]:
        """What was received by a key, an address or an id, newest first, and what came of it.

        The key of a room finds all conversations in it.
        """
        return await self.database.read(lambda c: together.find_traces(c, text, limit))

    async def entry_context(
        self, entry: InboxEntry, correction_decisions: Collection[str]
    ) -> EntryContext:
        """What something received may wait for; `corrected`: the decisions on edits and deletions."""
        return await self.database.read(
            lambda c: together.entry_context(c, entry, correction_decisions)
        )

    async def newest_entries(
        self, platform: str, limit: int, *, ignored_only: bool = False
    ) -> tuple[InboxEntry, ...]:
        """What came from a platform last, the newest first; `ignored`: only what was."""
        return await self.database.read(
            lambda c: inbox.newest_entries(c, platform, limit, ignored_only=ignored_only)
        )

    async def item(self, item_id: str) -> OutboxItem | None:
        """Something that was to be shown."""
        return await self.database.read(lambda c: outbox.find_item(c, item_id))

    # --- the rest -----------------------------------------------------------------------------

    async def count_records(self) -> StoreCounts:
        """Count what is there; the sessions are looked at one by one, so do not ask often."""
        return await self.database.read(census.count_records)

    async def get_value(self, shelf: str, name: str) -> str | None:
        """A small value."""
        return await self.database.read(lambda c: values.read_value(c, shelf, name))

    async def values(self, shelf: str) -> dict[str, str]:
        """All small values of one owner."""
        return await self.database.read(lambda c: values.read_values(c, shelf))

    @property
    def damage(self) -> str:
        """What somebody found to be damaged since the start; empty: nothing so far."""
        return self.database.damage

    async def find_problems(self) -> tuple[str, ...]:
        """All that is wrong in the database, in sentences."""
        try:
            return await self.database.read(soundness.find_problems)
        except StoreCorrupt as error:
            return (str(error),)

    def count_queries(self) -> QueryCounts:
        """Count statements and commits from now on."""
        return self.database.count_queries()
