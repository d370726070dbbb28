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

from sessions.changes import Change, Hold, Want
from sessions.errors import Ambiguous, StoreCorrupt
from sessions.records import (
    Approval,
    Around,
    Budget,
    Census,
    Conversation,
    InboxEntry,
    Item,
    Message,
    Session,
    Spent,
    Swept,
    ToolRun,
    Traced,
    Turn,
)
from sessions.store import prepare, soundness
from sessions.store import statements as sql
from sessions.store.database import Counts, Database
from sessions.store.engine import place
from sessions.store.forgetting import Forgetting
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
from sessions.store.safety_copy import before_steps
from sessions.values.clock import Clock

__all__ = ["Conversation", "SessionStore", "Witness"]

_SWEPT_AT_ONCE = 500
_OWN_SHELF = "store"


class Witness(Protocol):
    """Is told what became durable, right after it did, and must be quick about it.

    What was committed although nobody waited for it any more is not told.
    """

    def accepted(self, entry: InboxEntry, *, new: bool) -> None:
        """Something was received; not new: it was there already."""
        ...

    def applied(self, changes: tuple[Change, ...]) -> None:
        """These are true now."""
        ...


class SessionStore:
    """Sessions, their history, and the journal of what was received, done and shown."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self._clock = clock
        self._journal = Journal(database.dialect)
        self.forgetting = Forgetting(database)
        self.witness: Witness | None = None

    @classmethod
    async def open(
        cls, url: str, *, clock: Clock, read_only: bool = False, keep_in: Path | None = None
    ) -> Self:
        """Open a database, made or brought up to date if need be.

        Before it is brought up to date a copy of a SQLite file goes into `keep_in`. Read-only it
        must be there and up to date; it may be open elsewhere. Raises `StoreUnavailable`,
        `StoreTooNew`, `StoreTooOld` or `StoreCorrupt`.
        """
        where = place(url)
        if read_only:
            await asyncio.to_thread(prepare.check, where)
        else:
            keep = before_steps(keep_in, clock.now())
            await asyncio.to_thread(prepare.prepare, where, keep)
        return cls(Database(where, read_only=read_only), clock)

    @staticmethod
    async def check_fit(url: str) -> None:
        """Make sure that `open` would find what it can use or bring up to date; changes nothing.

        It may be open elsewhere. Raises `StoreUnavailable`, `StoreTooNew` or `StoreCorrupt`.
        """
        await asyncio.to_thread(prepare.check_fit, place(url))

    async def close(self) -> None:
        """Finish what was begun, and take nothing more."""
        self.database.stop()
        await asyncio.to_thread(self.database.close)

    # --- writing ------------------------------------------------------------------------------

    async def accept(self, entry: InboxEntry) -> bool:
        """Keep something received; False when it is there already. Then it may be acknowledged."""
        new = await self.database.write(lambda c: self._journal.accept(c, entry))
        if self.witness:
            self.witness.accepted(entry, new=new)
        return new

    async def apply(self, *changes: Change) -> None:
        """Make changes true, all or none.

        Raises `Conflict` (or `AlreadyStarted`, `Missing`) when what is stored is not what a change
        supposes.
        """
        await self.database.write(lambda c: self._journal.apply(c, changes))
        if self.witness:
            self.witness.applied(changes)

    async def hold(
        self, hold: Hold, first: Collection[Change] = (), then: Collection[Change] = ()
    ) -> Want | None:
        """Hold back what a request may use; None when that is done.

        Else nothing is held back, and this is the first budget that has not enough left. `first`
        becomes true in any case, and before that; `then` only where something is held back.
        """
        first, then = tuple(first), tuple(then)

        def work(connection: Connection) -> Want | None:
            self._journal.apply(connection, first)
            refused = self._journal.hold(connection, hold)
            if refused is None:
                self._journal.apply(connection, then)
            return refused

        refused = await self.database.write(work)
        if self.witness:
            self.witness.applied(first if refused else (*first, *then))
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

    async def forget_budgets(self, before: str) -> None:
        """Forget what was spent before a day."""
        await self.database.write(lambda c: c.execute(sql.FORGET_BUDGETS, {"before": before}))

    async def sweep(self, before: int) -> Swept:
        """Forget what was ignored before a moment; a little at a time, so that nobody waits."""
        row = {"before": before, "limit": _SWEPT_AT_ONCE}
        ignored = 0
        while gone := await self.database.write(
            lambda c: c.execute(sql.FORGET_IGNORED, row).rowcount
        ):
            ignored += gone
        return Swept(ignored)

    async def prove_writable(self) -> None:
        """Commit something, to know that it can be done."""
        await self.put_value(_OWN_SHELF, "written_at", str(self._clock.now()))

    async def prove_answering(self) -> None:
        """Hear from the thread that writes, without writing; raises `StoreError` when it cannot."""
        await self.database.write(lambda _: None)

    @property
    def writer_steps(self) -> int:
        """What the thread that writes has taken in hand so far: while it grows, it gets on."""
        return self.database.writer_steps

    # --- reading: conversations ---------------------------------------------------------------

    async def conversation(self, key: str) -> Conversation:
        """What the owner of a conversation must know to go on with it."""
        return await self.database.read(lambda c: together.conversation(c, key))

    async def session(self, session_id: str) -> Session | None:
        """A session."""
        return await self.database.read(lambda c: sessions.session(c, session_id))

    async def find_session(self, text: str, key: str | None = None) -> Session | None:
        """The session with this id, or the only one whose id begins so.

        `key` looks among the sessions of one conversation. Raises `Ambiguous`.
        """
        found = await self.database.read(lambda c: sessions.meant(c, text, key))
        if len(found) > 1:
            msg = f"{len(found)} sessions or more are meant by {text}; write more of the id"
            raise Ambiguous(msg)
        return found[0] if found else None

    async def sessions(
        self, *, key: str | None = None, platform: str | None = None, limit: int | None = None
    ) -> tuple[Session, ...]:
        """Sessions, the newest first: all, those of a conversation, or those of a platform."""
        return await self.database.read(lambda c: sessions.listed(c, key, platform, limit))

    async def chats(self, platform: str, limit: int) -> tuple[tuple[str, str | None, int], ...]:
        """Chats of a platform, the last used first: address, title, when it was used."""
        return await self.database.read(lambda c: sessions.chats(c, platform, limit))

    async def history(self, session_id: str, limit: int | None = None) -> tuple[Message, ...]:
        """The rows of a session that were not taken back, in order; `limit`: the newest of them."""
        return await self.database.read(lambda c: sessions.history(c, session_id, limit))

    async def history_up_to(self, session_id: str, turn_id: str) -> tuple[Message, ...]:
        """The rows of a session as far as a turn, that one included; none when it left no row."""
        return await self.database.read(lambda c: sessions.up_to(c, session_id, turn_id))

    async def context(self, session_id: str) -> tuple[str, tuple[Message, ...]]:
        """What a model is to see of a session: a summary of its oldest rows, and the rows behind.

        Without a summary ('') these are all rows; never those that were taken back.
        """
        return await self.database.read(lambda c: sessions.context(c, session_id))

    # --- reading: turns -----------------------------------------------------------------------

    async def turn(self, turn_id: str) -> Turn | None:
        """A turn."""
        return await self.database.read(lambda c: turns.turn(c, turn_id))

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """The turns of a session, the oldest first, also those that were taken back."""
        return await self.database.read(lambda c: turns.of_session(c, session_id))

    async def last_turn(self, session_id: str) -> Turn | None:
        """The newest turn of a session that was not taken back."""
        return await self.database.read(lambda c: turns.last(c, session_id))

    async def running_turns(self) -> tuple[Turn, ...]:
        """Turns under way; right after a start, those that a dead process left."""
        return await self.database.read(turns.running)

    async def tool_runs(self, turn_id: str) -> tuple[ToolRun, ...]:
        """The tools a turn has started, in that order."""
        return await self.database.read(lambda c: turns.tools(c, turn_id))

    async def runs_of(self, session_id: str, calls: Collection[str]) -> tuple[ToolRun, ...]:
        """What was started of these calls of a session, in that order, whichever turns did."""
        if not calls:
            return ()
        return await self.database.read(lambda c: turns.tools_of(c, session_id, calls))

    async def spent(
        self,
        *,
        turn_id: str | None = None,
        session_id: str | None = None,
        key: str | None = None,
        person: str | None = None,
        since: int | None = None,
    ) -> Spent:
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
        return await self.database.read(lambda c: costs.spent(c, only))

    async def budgets(self, day: str, scopes: Collection[str]) -> dict[str, Budget]:
        """What was spent of these on a day, by scope; nothing at all counts as `Budget()`."""
        return await self.database.read(lambda c: budgets.spent(c, day, scopes))

    # --- reading: questions whether a tool may run --------------------------------------------

    async def approval(self, approval_id: str) -> Approval | None:
        """A question."""
        return await self.database.read(lambda c: approvals.approval(c, approval_id))

    async def open_approvals(self, key: str | None = None) -> tuple[Approval, ...]:
        """Questions that nobody has answered, the oldest first; `key`: of one conversation."""
        return await self.database.read(lambda c: approvals.unanswered(c, key))

    async def allowed_approval(
        self, session_id: str, tool: str, arguments: str, since: int
    ) -> Approval | None:
        """The newest permission for exactly this call that was not used, asked since a moment."""
        return await self.database.read(
            lambda c: approvals.allowed(c, session_id, tool, arguments, since)
        )

    # --- reading: what was received -----------------------------------------------------------

    async def inbox_entry(self, source: str, event: str) -> InboxEntry | None:
        """Something received, by what a redelivery of it would repeat."""
        return await self.database.read(lambda c: inbox.entry(c, source, event))

    async def received(self, inbox_id: str) -> InboxEntry | None:
        """Something received, by its id here."""
        return await self.database.read(lambda c: inbox.received(c, inbox_id))

    async def turn_inbox(self, turn_id: str) -> tuple[InboxEntry, ...]:
        """What a turn answers."""
        return await self.database.read(lambda c: inbox.of_turn(c, turn_id))

    async def waiting_keys(self) -> tuple[str, ...]:
        """Conversations in which something waits to be answered."""
        return await self.database.read(inbox.waiting_keys)

    async def held(self, session_id: str) -> tuple[InboxEntry, ...]:
        """What a suspended session keeps unanswered."""
        return await self.database.read(lambda c: inbox.held(c, session_id))

    async def commands(self) -> tuple[InboxEntry, ...]:
        """Commands that were received and not carried out."""
        return await self.database.read(inbox.commands)

    # --- reading: what is to be shown ---------------------------------------------------------

    async def open_items(self) -> tuple[Item, ...]:
        """What is not delivered yet, by `seq`."""
        return await self.database.read(outbox.undelivered)

    async def turn_items(self, turn_id: str) -> tuple[Item, ...]:
        """What a turn wants to be shown, by `seq`; its answer too, while it is written."""
        return await self.database.read(lambda c: outbox.of_turn(c, turn_id, -1))

    async def timeline(self, address: str, after: int, limit: int) -> tuple[InboxEntry | Item, ...]:
        """What a chat shows, by `seq`: the first rows after a number; after 0, the newest.

        An item has its place where it became final, so that nothing appears behind a reader.
        """
        try:
            return await self.database.read(lambda c: together.timeline(c, address, after, limit))
        except StoreCorrupt:
            return await self._readable(address, after, limit)

    async def _readable(
        self, address: str, after: int, limit: int
    ) -> tuple[InboxEntry | Item, ...]:
        """A damaged row hides no other: each is read by itself."""
        places = await self.database.read(lambda c: together.places(c, address, after, limit))
        found = list[InboxEntry | Item]()
        for seq in places:
            with contextlib.suppress(StoreCorrupt):
                found += await self.database.read(partial(together.at, seq=seq))
        return tuple(found)

    async def trace(self, text: str, limit: int = 20) -> tuple[Traced, ...]:
        """What was received by a key, an address or an id, newest first, and what came of it.

        The key of a room finds all conversations in it.
        """
        return await self.database.read(lambda c: together.trace(c, text, limit))

    async def around(self, entry: InboxEntry, corrected: Collection[str]) -> Around:
        """What something received may wait for; `corrected`: the decisions on edits and deletions."""
        return await self.database.read(lambda c: together.around(c, entry, corrected))

    async def newest(
        self, platform: str, limit: int, *, ignored: bool = False
    ) -> tuple[InboxEntry, ...]:
        """What came from a platform last, the newest first; `ignored`: only what was."""
        return await self.database.read(lambda c: inbox.newest(c, platform, limit, ignored=ignored))

    async def item(self, item_id: str) -> Item | None:
        """Something that was to be shown."""
        return await self.database.read(lambda c: outbox.item(c, item_id))

    # --- the rest -----------------------------------------------------------------------------

    async def census(self) -> Census:
        """Count what is there; the sessions are looked at one by one, so do not ask often."""
        return await self.database.read(census.taken)

    async def get_value(self, shelf: str, name: str) -> str | None:
        """A small value."""
        return await self.database.read(lambda c: values.value(c, shelf, name))

    async def values(self, shelf: str) -> dict[str, str]:
        """All small values of one owner."""
        return await self.database.read(lambda c: values.values(c, shelf))

    @property
    def damage(self) -> str:
        """What somebody found to be damaged since the start; empty: nothing so far."""
        return self.database.damage

    async def findings(self) -> tuple[str, ...]:
        """All that is wrong in the database, in sentences."""
        try:
            return await self.database.read(soundness.findings)
        except StoreCorrupt as error:
            return (str(error),)

    def count(self) -> Counts:
        """Count statements and commits from now on."""
        return self.database.count()
