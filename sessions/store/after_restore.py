"""Closes the open work of a restored copy, which replaces a newer state.

Since the copy was made, a daemon may have answered waiting messages, delivered items and run
allowed calls. None of that may happen twice, so the open work is closed, and the operator is told
how much there was.
"""

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import (
    ApprovalState,
    InboxState,
    ItemKind,
    ItemState,
    SessionReason,
    SessionState,
    TurnState,
)
from sessions.store import prepare
from sessions.store.engine import DatabaseLocation, reader_engine
from sessions.store.schema import approvals, inbox, outbox, sessions, shelves, turns

RESTORED_REASON = "restored from a backup: it may have been done since"
_MARK = "mark"
SHELF, MOMENT = "restored", "at"
"""Shelf and name of the restore time; earlier messages may already have been answered."""

_OPEN_ITEMS = (ItemState.PENDING.value, ItemState.ATTEMPTING.value, ItemState.UNKNOWN.value)
_NOW = given("now", type_=sa.BigInteger())
_running_sessions = sa.select(turns.c.session_id).where(turns.c.state == TurnState.RUNNING.value)
_waiting_keys = sa.select(inbox.c.key).where(inbox.c.state == InboxState.WAITING.value)

_SUSPEND = (
    sa.update(sessions)
    .where(
        sessions.c.state == SessionState.ACTIVE.value,
        sa.or_(sessions.c.id.in_(_running_sessions), sessions.c.key.in_(_waiting_keys)),
    )
    .values(state=SessionState.SUSPENDED.value, reason=SessionReason.CRASH.value, updated_at=_NOW)
)
_END_TURNS = (
    sa.update(turns)
    .where(turns.c.state == TurnState.RUNNING.value)
    .values(state=TurnState.INTERRUPTED.value, cause="restored", finished_at=_NOW)
)
_END_RUNNING = (
    sa.update(inbox)
    .where(inbox.c.state == InboxState.RUNNING.value)
    .values(state=InboxState.DONE.value, settled_at=_NOW)
)
# Waiting messages are held with the session that was just suspended, if there is one.
_suspended_session = (
    sa.select(sa.func.max(sessions.c.id))
    .where(
        sessions.c.key == inbox.c.key,
        sessions.c.state == SessionState.SUSPENDED.value,
        sessions.c.updated_at == _NOW,
    )
    .scalar_subquery()
)
_HOLD_WAITING = (
    sa.update(inbox)
    .where(inbox.c.state == InboxState.WAITING.value, _suspended_session.is_not(None))
    .values(state=InboxState.HELD.value, session_id=_suspended_session)
)
_DROP_WAITING = (
    sa.update(inbox)
    .where(inbox.c.state == InboxState.WAITING.value)
    .values(state=InboxState.DONE.value, decision=RESTORED_REASON, settled_at=_NOW)
)
_DROP_COMMANDS = (
    sa.update(inbox)
    .where(inbox.c.state == InboxState.COMMAND.value)
    .values(state=InboxState.DONE.value, decision=RESTORED_REASON, settled_at=_NOW)
)
_END_ITEMS = (
    sa.update(outbox)
    .where(outbox.c.state.in_(_OPEN_ITEMS))
    .values(state=ItemState.DEAD.value, error=RESTORED_REASON, settled_at=_NOW)
)
_END_QUESTIONS = (
    sa.update(approvals)
    .where(approvals.c.state.in_([ApprovalState.OPEN.value, ApprovalState.ALLOWED.value]))
    .values(state=ApprovalState.EXPIRED.value, reason=RESTORED_REASON, answered_at=_NOW)
)


class ClosedWork(msgspec.Struct, frozen=True, kw_only=True):
    """Amount of open work that was closed in a copy."""

    turns: int = 0  # interrupted, with their sessions suspended
    held: int = 0  # messages kept with a suspended session
    unanswered: int = 0  # messages and commands closed without an answer
    unsent: int = 0
    questions: int = 0


def close_open_work(connection: Connection, now: int) -> ClosedWork:
    """Close all work that would otherwise continue by itself."""
    row = {"now": now}

    def done(statement: sa.Update) -> int:
        return connection.execute(statement, row).rowcount

    done(_SUSPEND)
    ended = done(_END_TURNS)
    done(_END_RUNNING)
    over = ClosedWork(
        turns=ended,
        held=done(_HOLD_WAITING),
        unanswered=done(_DROP_WAITING) + done(_DROP_COMMANDS),
        unsent=done(_END_ITEMS),
        questions=done(_END_QUESTIONS),
    )
    record_restore_time(connection, now)
    return over


def record_restore_time(connection: Connection, now: int) -> None:
    """Store the restore time; later messages are certainly new."""
    mark = (shelves.c.shelf == SHELF, shelves.c.name == MOMENT)
    connection.execute(sa.delete(shelves).where(*mark))
    connection.execute(sa.insert(shelves).values(shelf=SHELF, name=MOMENT, value=str(now)))


def set_mark(connection: Connection, mark: str) -> None:
    """Store the mark of the restore that this transaction belongs to."""
    connection.execute(sa.delete(shelves).where(shelves.c.shelf == SHELF, shelves.c.name == _MARK))
    connection.execute(sa.insert(shelves).values(shelf=SHELF, name=_MARK, value=mark))


def has_mark(where: DatabaseLocation, mark: str) -> bool:
    """Return True if a database was replaced by the restore with this mark."""
    with (
        prepare.connect(where, reader_engine(where, without_writer=True)) as connection,
        connection.begin(),
    ):
        if prepare.current_revision(connection) is None:
            return False
        found = sa.select(shelves.c.value).where(shelves.c.shelf == SHELF, shelves.c.name == _MARK)
        return bool(connection.scalar(found) == mark)


def remove_writer_rows(connection: Connection) -> None:
    """Delete the rows of the process that wrote the copy, which will not return."""
    connection.execute(sa.delete(shelves).where(shelves.c.shelf == "writers"))


def rewrite_upload_paths(connection: Connection, before: str, after: str) -> None:
    """Replace the folder in the paths of uploads with the one that has the files now."""
    found = sa.select(outbox.c.seq, outbox.c.body).where(outbox.c.kind == ItemKind.UPLOAD.value)
    for seq, body in connection.execute(found).all():
        old, new = (msgspec.json.encode(path)[1:-1] for path in (before, after))
        moved = body.replace(b'"path":"' + old, b'"path":"' + new)
        if moved != body:
            connection.execute(sa.update(outbox).where(outbox.c.seq == seq).values(body=moved))
