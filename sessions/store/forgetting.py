"""Takes out of the store what is not to be kept: the words of a session, or all of it.

It is done in many small writes with pauses between them, so that no turn waits for it: each takes
a fixed number of rows. What must be looked for in a whole table is looked for by a reader. Of what
was received its name stays for a while, so that a platform that sends it once more is known.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import InboxState, ItemState, Reason, SessionState
from sessions.store.database import Database
from sessions.store.schema import (
    approvals,
    attempts,
    inbox,
    messages,
    outbox,
    sessions,
    shelves,
    summaries,
    tool_runs,
    turns,
)

AT_ONCE = 100
"""Rows of one write; a turn that wants to be stored waits for no more than that."""
SESSIONS_AT_ONCE = 50
NAMES_KEPT = 7 * 86_400_000
"""Milliseconds for which it is known that something was received; platforms repeat for hours."""
PAGES_AT_ONCE = 64

_OVER_ITEM = (ItemState.SENT.value, ItemState.DEAD.value)
_OVER_INBOX = (InboxState.DONE.value, InboxState.REFUSED.value)
_GONE = "deleted"

_LIMIT = given("limit", type_=sa.BigInteger())
_THEM: sa.BindParameter[Sequence[str]] = given("sessions", expanding=True)
_turn_of_them = sa.select(turns.c.id).where(turns.c.session_id.in_(_THEM))

_IDLE = (
    sa.select(sessions.c.id, sessions.c.key, sessions.c.address)
    .where(
        sessions.c.state.in_([SessionState.CLOSED.value, SessionState.SUSPENDED.value]),
        sessions.c.updated_at < given("before"),
    )
    .order_by(sessions.c.id)
    .limit(_LIMIT)
)
_WITH_WORDS = (
    sa.select(sessions.c.id)
    .where(
        sessions.c.reason == Reason.DELETED.value,
        sa.or_(
            sessions.c.title.is_not(None),
            sessions.c.messages != 0,
            sa.exists().where(messages.c.session_id == sessions.c.id),
            sa.exists().where(turns.c.session_id == sessions.c.id, turns.c.request != ""),
        ),
    )
    .order_by(sessions.c.id)
    .limit(_LIMIT)
)


def _some(table: sa.Table, key: sa.Column[Any], *where: sa.ColumnElement[bool]) -> sa.Delete:
    return sa.delete(table).where(key.in_(sa.select(key).where(*where).limit(_LIMIT)))


# In this order: what is found by a turn goes before the turn.
_WORDS = (
    _some(messages, messages.c.id, messages.c.session_id.in_(_THEM)),
    _some(summaries, summaries.c.session_id, summaries.c.session_id.in_(_THEM)),
    sa.delete(tool_runs).where(
        sa.tuple_(tool_runs.c.turn_id, tool_runs.c.call_id).in_(
            sa.select(tool_runs.c.turn_id, tool_runs.c.call_id)
            .where(tool_runs.c.turn_id.in_(_turn_of_them))
            .limit(_LIMIT)
        )
    ),
    _some(approvals, approvals.c.id, approvals.c.turn_id.in_(_turn_of_them)),
)
_BLANK_ATTEMPTS = (
    sa.update(attempts)
    .where(
        sa.tuple_(attempts.c.turn_id, attempts.c.number).in_(
            sa.select(attempts.c.turn_id, attempts.c.number)
            .where(attempts.c.turn_id.in_(_turn_of_them), attempts.c.cause != "")
            .limit(_LIMIT)
        )
    )
    .values(cause="")
)
_BLANK_TURNS = (
    sa.update(turns)
    .where(
        turns.c.id.in_(
            _turn_of_them.where(
                sa.or_(turns.c.request != "", turns.c.partial != "", turns.c.cause.is_not(None))
            ).limit(_LIMIT)
        )
    )
    .values(request="", partial="", cause=None)
)
_BLANK_SESSION = (
    sa.update(sessions)
    .where(
        sessions.c.id.in_(_THEM), sa.or_(sessions.c.title.is_not(None), sessions.c.messages != 0)
    )
    .values(title=None, messages=0)
)
_DROP_ATTEMPTS = sa.delete(attempts).where(
    sa.tuple_(attempts.c.turn_id, attempts.c.number).in_(
        sa.select(attempts.c.turn_id, attempts.c.number)
        .where(attempts.c.turn_id.in_(_turn_of_them))
        .limit(_LIMIT)
    )
)
_DROP_TURNS = _some(turns, turns.c.id, turns.c.session_id.in_(_THEM))
_DROP_SESSION = sa.delete(sessions).where(
    sessions.c.id.in_(_THEM), sessions.c.reason == Reason.DELETED.value
)

# Looked for by a reader, through the whole table.
_SHOWN_OF = sa.select(outbox.c.seq).where(outbox.c.turn_id.in_(_turn_of_them))
_RECEIVED_FOR = sa.select(inbox.c.seq).where(
    sa.or_(
        inbox.c.turn_id.in_(_turn_of_them),
        inbox.c.session_id.in_(_THEM),
    )
)
# Commands and what answered them belong to no turn; in a room they may be other people's.
_alone = sa.and_(
    sessions.c.id.in_(_THEM),
    ~sa.exists().where(
        (other := sessions.alias()).c.address == sessions.c.address,
        other.c.key != sessions.c.key,
    ),
)
_SAID_BESIDE = (
    sa.select(inbox.c.seq)
    .join(sessions, sessions.c.address == inbox.c.address)
    .where(
        _alone,
        inbox.c.payload.is_not(None),
        inbox.c.turn_id.is_(None),
        inbox.c.state.in_(_OVER_INBOX),
        inbox.c.received_at.between(sessions.c.created_at, sessions.c.updated_at),
    )
)
_SHOWN_BESIDE = (
    sa.select(outbox.c.seq)
    .join(sessions, sessions.c.address == outbox.c.address)
    .where(
        _alone,
        outbox.c.turn_id.is_(None),
        outbox.c.state.in_(_OVER_ITEM),
        outbox.c.created_at.between(sessions.c.created_at, sessions.c.updated_at),
    )
)

# What belongs to conversations that go on. Rows are numbered in the order in which they came, so
# the search ends at the first one that is young enough.
_FIRST_YOUNG = {
    table: sa.select(table.c.seq).where(moment >= given("before")).order_by(table.c.seq).limit(1)
    for table, moment in ((inbox, inbox.c.received_at), (outbox, outbox.c.created_at))
}
_OLD = {
    table: sa.select(table.c.seq)
    .where(
        table.c.seq < given("young"),
        table.c.state.in_(over),
        table.c.settled_at < given("before"),
    )
    .order_by(table.c.seq)
    for table, over in ((inbox, _OVER_INBOX), (outbox, _OVER_ITEM))
}
_OLD_RUNS = (
    sa.select(turns.c.id)
    .where(
        turns.c.finished_at < given("before"),
        sa.exists().where(tool_runs.c.turn_id == turns.c.id),
    )
    .order_by(turns.c.id)
)
_DROP_RUNS = sa.delete(tool_runs).where(tool_runs.c.turn_id == given("turn"))

_DROP_SHOWN = sa.delete(outbox).where(outbox.c.seq.in_(given("rows", expanding=True)))
_DROP_RECEIVED = sa.delete(inbox).where(
    inbox.c.seq.in_(given("rows", expanding=True)), inbox.c.received_at < given("repeats")
)
_NAME_ONLY = (
    sa.update(inbox)
    .where(inbox.c.seq.in_(given("rows", expanding=True)))
    .values(
        state=InboxState.IGNORED.value,  # which is what is kept of something for a while
        payload=None,
        turn_id=None,
        session_id=None,
        decision=_GONE,
    )
)
_NOTES = (
    sa.select(shelves.c.name)
    .outerjoin(inbox, inbox.c.id == shelves.c.name)
    .where(
        shelves.c.shelf == given("shelf"),
        sa.or_(inbox.c.id.is_(None), inbox.c.payload.is_(None)),
    )
)
_DROP_NOTES = sa.delete(shelves).where(
    shelves.c.shelf == given("of"), shelves.c.name.in_(given("names", expanding=True))
)


class Idle(msgspec.Struct, frozen=True):
    """A session that nobody has used for long, and is not in use."""

    id: str
    key: str
    address: str


class Forgetting:
    """The part of the store that forgets."""

    def __init__(self, database: Database, *, pause: float = 0.005) -> None:
        self._database = database
        self._pause = pause

    async def idle(self, before: int) -> tuple[Idle, ...]:
        """List some sessions that are closed or suspended and were not used since a moment."""
        row = {"before": before, "limit": SESSIONS_AT_ONCE}
        found = await self._database.read(lambda c: c.execute(_IDLE, row).all())
        return tuple(Idle(*each) for each in found)

    async def with_words(self) -> tuple[str, ...]:
        """List some deleted sessions of which not everything is gone."""
        row = {"limit": SESSIONS_AT_ONCE}
        return await self._database.read(lambda c: tuple(c.scalars(_WITH_WORDS, row)))

    async def words(self, *session_ids: str, now: int) -> None:
        """Take all words out of sessions that are deleted; what they cost is still known."""
        if not session_ids:
            return
        await self._around(session_ids, now)
        for statement in (*_WORDS, _BLANK_ATTEMPTS, _BLANK_TURNS):
            await self._all(statement, session_ids)
        await self._write(_BLANK_SESSION, sessions=session_ids)

    async def whole(self, *session_ids: str, now: int) -> None:
        """Take sessions that are deleted out of the store, with everything that belongs to them."""
        await self.words(*session_ids, now=now)
        for statement in (_DROP_ATTEMPTS, _DROP_TURNS):
            await self._all(statement, session_ids)
        await self._write(_DROP_SESSION, sessions=session_ids)

    async def old(self, before: int, now: int) -> int:
        """Forget what was received, shown and run before a moment, also of sessions that go on.

        Their histories stay. What is not settled stays. Tells how many rows that was.
        """
        shown = await self._before(outbox, before)
        received = await self._before(inbox, before)
        await self._drop(shown, received, now)
        turns_ = await self._numbers(_OLD_RUNS, before=before)
        for turn in turns_:
            await self._write(_DROP_RUNS, turn=turn)
        return len(shown) + len(received) + len(turns_)

    async def notes(self, shelf: str) -> None:
        """Drop values that are named after something received of which only the name is left."""
        names = await self._numbers(_NOTES, shelf=shelf)
        for some in _parts(names):
            await self._write(_DROP_NOTES, of=shelf, names=some)

    async def shrink(self) -> None:
        """Give pages that nothing stands on any more back to the disk, a few at a time."""
        if self._database.dialect.name != "sqlite":
            return
        more = True
        while more:
            more = await self._database.write(_shrunk)
            await asyncio.sleep(self._pause)

    # --- inside ---------------------------------------------------------------------------------

    async def _around(self, session_ids: Sequence[str], now: int) -> None:
        """Forget what sessions received and what was shown of them."""
        only = {"sessions": list(session_ids)}
        shown = {
            *await self._numbers(_SHOWN_OF, **only),
            *await self._numbers(_SHOWN_BESIDE, **only),
        }
        received = {
            *await self._numbers(_RECEIVED_FOR, **only),
            *await self._numbers(_SAID_BESIDE, **only),
        }
        await self._drop(sorted(shown), sorted(received), now)

    async def _drop(self, shown: Iterable[int], received: Iterable[int], now: int) -> None:
        for rows in _parts(shown):
            await self._write(_DROP_SHOWN, rows=rows)
        for rows in _parts(received):
            await self._write(_DROP_RECEIVED, rows=rows, repeats=now - NAMES_KEPT)
            await self._write(_NAME_ONLY, rows=rows)

    async def _before(self, table: sa.Table, before: int) -> list[int]:
        def look(connection: Connection) -> list[int]:
            young = connection.scalar(_FIRST_YOUNG[table], {"before": before})
            row = {"before": before, "young": 2**62 if young is None else young}
            return list(connection.scalars(_OLD[table], row))

        return await self._database.read(look)

    async def _numbers(self, question: sa.Select[Any], **row: Any) -> list[Any]:  # noqa: ANN401
        return await self._database.read(lambda c: list(c.scalars(question, row)))

    async def _all(self, statement: sa.Executable, session_ids: Sequence[str]) -> None:
        while await self._write(statement, sessions=session_ids, limit=AT_ONCE) >= AT_ONCE:
            pass

    async def _write(self, statement: sa.Executable, **row: Any) -> int:  # noqa: ANN401
        done = await self._database.write(lambda c: c.execute(statement, row).rowcount)
        await asyncio.sleep(self._pause)  # whoever waits meanwhile comes first
        return done


def _parts(rows: Iterable[Any]) -> list[list[Any]]:
    every = list(rows)
    return [every[start : start + AT_ONCE] for start in range(0, len(every), AT_ONCE)]


def _shrunk(connection: Connection) -> bool:
    """Free some pages; whether there are more."""
    incremental = 2
    if connection.exec_driver_sql("PRAGMA auto_vacuum").scalar() != incremental:
        return False
    left: int = connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0
    for _ in range(min(left, PAGES_AT_ONCE)):  # Python's driver takes one step of it, one page
        connection.exec_driver_sql("PRAGMA incremental_vacuum(1)").close()
    return left > PAGES_AT_ONCE
