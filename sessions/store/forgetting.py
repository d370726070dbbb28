"""Deletes data that is not kept any longer: the content of a session, or the whole session.

Deletion takes many small writes with pauses between them, each for a fixed number of rows, so that
no turn is delayed. Searches through whole tables run in a reader thread. The ids of received
events are kept for a while, so that a redelivery is still recognised.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import InboxState, ItemState, SessionReason, SessionState, TurnState
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
from sessions.values.address import Address

BATCH_ROWS = 100
"""Rows per write; other writes wait for one such write at most."""
_BATCH_SESSIONS = 50
INBOX_ID_RETENTION_MS = 7 * 86_400_000
"""Milliseconds for which a received event is recognised; platforms redeliver for hours."""
_VACUUM_BATCH_PAGES = 64

_SETTLED_ITEM_STATES = (ItemState.SENT.value, ItemState.DEAD.value)
_SETTLED_INBOX_STATES = (InboxState.DONE.value, InboxState.REFUSED.value)
_DELETED_DECISION = "deleted"

_LIMIT = given("limit", type_=sa.BigInteger())
_SESSION_IDS: sa.BindParameter[Sequence[str]] = given("sessions", expanding=True)
_turn_ids = sa.select(turns.c.id).where(turns.c.session_id.in_(_SESSION_IDS))

_IDLE_SESSIONS = (
    sa.select(sessions.c.id, sessions.c.key, sessions.c.address)
    .where(
        sessions.c.state.in_([SessionState.CLOSED.value, SessionState.SUSPENDED.value]),
        sessions.c.updated_at < given("before"),
    )
    .order_by(sessions.c.id)
    .limit(_LIMIT)
)
_UNCLEARED_SESSIONS = (
    sa.select(sessions.c.id)
    .where(
        sessions.c.reason == SessionReason.DELETED.value,
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


def _delete_batch(
    table: sa.Table, key: sa.Column[Any], *where: sa.ColumnElement[bool]
) -> sa.Delete:
    return sa.delete(table).where(key.in_(sa.select(key).where(*where).limit(_LIMIT)))


# The order matters: rows found through a turn are deleted before the turn.
_DELETE_CONTENT = (
    _delete_batch(messages, messages.c.id, messages.c.session_id.in_(_SESSION_IDS)),
    _delete_batch(summaries, summaries.c.session_id, summaries.c.session_id.in_(_SESSION_IDS)),
    sa.delete(tool_runs).where(
        sa.tuple_(tool_runs.c.turn_id, tool_runs.c.call_id).in_(
            sa.select(tool_runs.c.turn_id, tool_runs.c.call_id)
            .where(tool_runs.c.turn_id.in_(_turn_ids))
            .limit(_LIMIT)
        )
    ),
    _delete_batch(approvals, approvals.c.id, approvals.c.turn_id.in_(_turn_ids)),
)
_BLANK_ATTEMPTS = (
    sa.update(attempts)
    .where(
        sa.tuple_(attempts.c.turn_id, attempts.c.number).in_(
            sa.select(attempts.c.turn_id, attempts.c.number)
            .where(attempts.c.turn_id.in_(_turn_ids), attempts.c.cause != "")
            .limit(_LIMIT)
        )
    )
    .values(cause="")
)
_BLANK_TURNS = (
    sa.update(turns)
    .where(
        turns.c.id.in_(
            _turn_ids.where(
                sa.or_(turns.c.request != "", turns.c.partial != "", turns.c.cause.is_not(None))
            ).limit(_LIMIT)
        )
    )
    .values(request="", partial="", cause=None)
)
_BLANK_SESSION = (
    sa.update(sessions)
    .where(
        sessions.c.id.in_(_SESSION_IDS),
        sa.or_(sessions.c.title.is_not(None), sessions.c.messages != 0),
    )
    .values(title=None, messages=0)
)
_DROP_ATTEMPTS = sa.delete(attempts).where(
    sa.tuple_(attempts.c.turn_id, attempts.c.number).in_(
        sa.select(attempts.c.turn_id, attempts.c.number)
        .where(attempts.c.turn_id.in_(_turn_ids))
        .limit(_LIMIT)
    )
)
_DROP_TURNS = _delete_batch(turns, turns.c.id, turns.c.session_id.in_(_SESSION_IDS))
_DROP_SESSION = sa.delete(sessions).where(
    sessions.c.id.in_(_SESSION_IDS), sessions.c.reason == SessionReason.DELETED.value
)

# These search whole tables, so they run in a reader thread.
_OUTBOX_OF_SESSIONS = sa.select(outbox.c.seq).where(outbox.c.turn_id.in_(_turn_ids))
_INBOX_OF_SESSIONS = sa.select(inbox.c.seq).where(
    sa.or_(
        inbox.c.turn_id.in_(_turn_ids),
        inbox.c.session_id.in_(_SESSION_IDS),
    )
)
# Commands and their answers belong to no turn; in a room they may be those of other people.
_only_session_in_chat = sa.and_(
    sessions.c.id.in_(_SESSION_IDS),
    ~sa.exists().where(
        (other := sessions.alias()).c.address == sessions.c.address,
        other.c.key != sessions.c.key,
    ),
)
_UNLINKED_INBOX = (
    sa.select(inbox.c.seq)
    .join(sessions, sessions.c.address == inbox.c.address)
    .where(
        _only_session_in_chat,
        inbox.c.payload.is_not(None),
        inbox.c.turn_id.is_(None),
        inbox.c.state.in_(_SETTLED_INBOX_STATES),
        inbox.c.received_at.between(sessions.c.created_at, sessions.c.updated_at),
    )
)
_UNLINKED_OUTBOX = (
    sa.select(outbox.c.seq)
    .join(sessions, sessions.c.address == outbox.c.address)
    .where(
        _only_session_in_chat,
        outbox.c.turn_id.is_(None),
        outbox.c.state.in_(_SETTLED_ITEM_STATES),
        outbox.c.created_at.between(sessions.c.created_at, sessions.c.updated_at),
    )
)

# Rows of sessions that continue. Rows are numbered in order of arrival, so the search ends at the
# first recent one.
_FIRST_RECENT = {
    table: sa.select(table.c.seq).where(moment >= given("before")).order_by(table.c.seq).limit(1)
    for table, moment in ((inbox, inbox.c.received_at), (outbox, outbox.c.created_at))
}
_OLD_ROWS = {
    table: sa.select(table.c.seq)
    .where(
        table.c.seq < given("young"),
        table.c.state.in_(over),
        table.c.settled_at < given("before"),
    )
    .order_by(table.c.seq)
    for table, over in ((inbox, _SETTLED_INBOX_STATES), (outbox, _SETTLED_ITEM_STATES))
}
_TURNS_WITH_OLD_RUNS = (
    sa.select(turns.c.id)
    .where(
        turns.c.finished_at < given("before"),
        sa.exists().where(tool_runs.c.turn_id == turns.c.id),
    )
    .order_by(turns.c.id)
)
_LEFT_TEXTS = sa.select(turns.c.id).where(
    turns.c.partial != "", turns.c.state != TurnState.RUNNING.value
)
_DROP_TEXTS = (
    sa.update(turns)
    .where(turns.c.id.in_(given("turns", expanding=True)), turns.c.state != TurnState.RUNNING.value)
    .values(partial="")
)
_DROP_RUNS = sa.delete(tool_runs).where(tool_runs.c.turn_id == given("turn"))

_DROP_OUTBOX = sa.delete(outbox).where(outbox.c.seq.in_(given("rows", expanding=True)))
_DROP_INBOX = sa.delete(inbox).where(
    inbox.c.seq.in_(given("rows", expanding=True)), inbox.c.received_at < given("repeats")
)
_BLANK_INBOX = (
    sa.update(inbox)
    .where(inbox.c.seq.in_(given("rows", expanding=True)))
    .values(
        state=InboxState.IGNORED.value,  # the state of entries kept only for their ids
        payload=None,
        turn_id=None,
        session_id=None,
        decision=_DELETED_DECISION,
    )
)
_ORPHANED_VALUES = (
    sa.select(shelves.c.name)
    .outerjoin(inbox, inbox.c.id == shelves.c.name)
    .where(
        shelves.c.shelf == given("shelf"),
        sa.or_(inbox.c.id.is_(None), inbox.c.payload.is_(None)),
    )
)
_DROP_VALUES = sa.delete(shelves).where(
    shelves.c.shelf == given("of"), shelves.c.name.in_(given("names", expanding=True))
)


class IdleSession(msgspec.Struct, frozen=True):
    """A session that has not been used for long and is not active."""

    id: str
    key: str
    address: Address


class DataRemoval:
    """Deletes sessions, their content and old rows."""

    def __init__(self, database: Database, *, pause_seconds: float = 0.005) -> None:
        self._database = database
        self._pause_seconds = pause_seconds

    async def idle_sessions(self, before: int) -> tuple[IdleSession, ...]:
        """Return a batch of closed or suspended sessions not used since a time."""
        row = {"before": before, "limit": _BATCH_SESSIONS}
        found = await self._database.read(lambda c: c.execute(_IDLE_SESSIONS, row).all())
        return tuple(IdleSession(*each) for each in found)

    async def uncleared_sessions(self) -> tuple[str, ...]:
        """Return a batch of deleted sessions that still have content."""
        row = {"limit": _BATCH_SESSIONS}
        return await self._database.read(lambda c: tuple(c.scalars(_UNCLEARED_SESSIONS, row)))

    async def clear_sessions(self, *session_ids: str, now: int) -> None:
        """Delete the content of deleted sessions; their costs stay known."""
        if not session_ids:
            return
        await self._remove_messages_of(session_ids, now)
        for statement in (*_DELETE_CONTENT, _BLANK_ATTEMPTS, _BLANK_TURNS):
            await self._run_until_done(statement, session_ids)
        await self._write(_BLANK_SESSION, sessions=session_ids)

    async def delete_sessions(self, *session_ids: str, now: int) -> None:
        """Delete sessions that are marked as deleted, with all their rows."""
        await self.clear_sessions(*session_ids, now=now)
        for statement in (_DROP_ATTEMPTS, _DROP_TURNS):
            await self._run_until_done(statement, session_ids)
        await self._write(_DROP_SESSION, sessions=session_ids)

    async def delete_older_than(self, before: int, now: int) -> int:
        """Delete what was received, shown and run before a time, also of sessions that continue.

        Histories and unsettled rows stay. Returns the number of deleted rows.
        """
        shown = await self._rows_before(outbox, before)
        received = await self._rows_before(inbox, before)
        await self._remove_rows(shown, received, now)
        turns_ = await self._read_scalars(_TURNS_WITH_OLD_RUNS, before=before)
        for turn in turns_:
            await self._write(_DROP_RUNS, turn=turn)
        return len(shown) + len(received) + len(turns_)

    async def delete_orphaned_values(self, shelf: str) -> None:
        """Delete values named after inbox entries whose content is gone."""
        names = await self._read_scalars(_ORPHANED_VALUES, shelf=shelf)
        for some in _batches(names):
            await self._write(_DROP_VALUES, of=shelf, names=some)

    async def delete_checkpoints(self) -> int:
        """Delete the texts that older versions kept after the end of a turn; return their number."""
        turns_ = await self._read_scalars(_LEFT_TEXTS)
        for some in _batches(turns_):
            await self._write(_DROP_TEXTS, turns=some)
        return len(turns_)

    async def release_free_pages(self) -> None:
        """Return free pages to the disk, a few at a time."""
        if self._database.dialect.name != "sqlite":
            return
        more = True
        while more:
            more = await self._database.write(_vacuum_pages)
            await asyncio.sleep(self._pause_seconds)

    # --- private ------------------------------------------------------------------------------

    async def _remove_messages_of(self, session_ids: Sequence[str], now: int) -> None:
        """Delete the inbox and outbox rows of sessions."""
        only = {"sessions": list(session_ids)}
        shown = {
            *await self._read_scalars(_OUTBOX_OF_SESSIONS, **only),
            *await self._read_scalars(_UNLINKED_OUTBOX, **only),
        }
        received = {
            *await self._read_scalars(_INBOX_OF_SESSIONS, **only),
            *await self._read_scalars(_UNLINKED_INBOX, **only),
        }
        await self._remove_rows(sorted(shown), sorted(received), now)

    async def _remove_rows(
        self, outbox_rows: Iterable[int], inbox_rows: Iterable[int], now: int
    ) -> None:
        for rows in _batches(outbox_rows):
            await self._write(_DROP_OUTBOX, rows=rows)
        for rows in _batches(inbox_rows):
            await self._write(_DROP_INBOX, rows=rows, repeats=now - INBOX_ID_RETENTION_MS)
            await self._write(_BLANK_INBOX, rows=rows)

    async def _rows_before(self, table: sa.Table, before: int) -> list[int]:
        def look(connection: Connection) -> list[int]:
            young = connection.scalar(_FIRST_RECENT[table], {"before": before})
            row = {"before": before, "young": 2**62 if young is None else young}
            return list(connection.scalars(_OLD_ROWS[table], row))

        return await self._database.read(look)

    async def _read_scalars(self, statement: sa.Select[Any], **row: Any) -> list[Any]:  # noqa: ANN401
        return await self._database.read(lambda c: list(c.scalars(statement, row)))

    async def _run_until_done(self, statement: sa.Executable, session_ids: Sequence[str]) -> None:
        while await self._write(statement, sessions=session_ids, limit=BATCH_ROWS) >= BATCH_ROWS:
            pass

    async def _write(self, statement: sa.Executable, **row: Any) -> int:  # noqa: ANN401
        done = await self._database.write(lambda c: c.execute(statement, row).rowcount)
        await asyncio.sleep(self._pause_seconds)  # let waiting writes go first
        return done


def _batches(rows: Iterable[Any]) -> list[list[Any]]:
    all_rows = list(rows)
    return [all_rows[start : start + BATCH_ROWS] for start in range(0, len(all_rows), BATCH_ROWS)]


def _vacuum_pages(connection: Connection) -> bool:
    """Free some pages; return True if there are more."""
    incremental = 2
    if connection.exec_driver_sql("PRAGMA auto_vacuum").scalar() != incremental:
        return False
    left: int = connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0
    for _ in range(min(left, _VACUUM_BATCH_PAGES)):  # the driver frees one page per call
        connection.exec_driver_sql("PRAGMA incremental_vacuum(1)").close()
    return left > _VACUUM_BATCH_PAGES
