"""What becomes of a copy of a database that takes the place of a newer state.

Between the moment of the copy and now a daemon may have answered what waited in it, sent what was
to be shown, and carried out what was allowed. None of that may happen twice: it is over, and who
restores is told how much it is.
"""

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import ApprovalState, InboxState, ItemState, Reason, SessionState, TurnState
from sessions.store.schema import approvals, inbox, outbox, sessions, shelves, turns

WHY = "restored from a backup: it may have been done since"
SHELF, MOMENT = "restored", "at"
"""Where the moment of a restore stands: what was written before it may be answered already."""

_OPEN_ITEMS = (ItemState.PENDING.value, ItemState.ATTEMPTING.value, ItemState.UNKNOWN.value)
_NOW = given("now", type_=sa.BigInteger())
_caught = sa.select(turns.c.session_id).where(turns.c.state == TurnState.RUNNING.value)
_with_waiting = sa.select(inbox.c.key).where(inbox.c.state == InboxState.WAITING.value)

_SUSPEND = (
    sa.update(sessions)
    .where(
        sessions.c.state == SessionState.ACTIVE.value,
        sa.or_(sessions.c.id.in_(_caught), sessions.c.key.in_(_with_waiting)),
    )
    .values(state=SessionState.SUSPENDED.value, reason=Reason.CRASH.value, updated_at=_NOW)
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
# What waited behind a session is brought back with it; what had none has nowhere to be kept.
_newest = (
    sa.select(sa.func.max(sessions.c.id))
    .where(
        sessions.c.key == inbox.c.key,
        sessions.c.state == SessionState.SUSPENDED.value,
        sessions.c.updated_at == _NOW,
    )
    .scalar_subquery()
)
_HOLD = (
    sa.update(inbox)
    .where(inbox.c.state == InboxState.WAITING.value, _newest.is_not(None))
    .values(state=InboxState.HELD.value, session_id=_newest)
)
_DROP_WAITING = (
    sa.update(inbox)
    .where(inbox.c.state == InboxState.WAITING.value)
    .values(state=InboxState.DONE.value, decision=WHY, settled_at=_NOW)
)
_DROP_COMMANDS = (
    sa.update(inbox)
    .where(inbox.c.state == InboxState.COMMAND.value)
    .values(state=InboxState.DONE.value, decision=WHY, settled_at=_NOW)
)
_END_ITEMS = (
    sa.update(outbox)
    .where(outbox.c.state.in_(_OPEN_ITEMS))
    .values(state=ItemState.DEAD.value, error=WHY, settled_at=_NOW)
)
_END_QUESTIONS = (
    sa.update(approvals)
    .where(approvals.c.state.in_([ApprovalState.OPEN.value, ApprovalState.ALLOWED.value]))
    .values(state=ApprovalState.EXPIRED.value, reason=WHY, answered_at=_NOW)
)


class Over(msgspec.Struct, frozen=True):
    """How much was under way in a copy and is over now."""

    turns: int = 0  # interrupted, their sessions suspended
    held: int = 0  # messages kept with a suspended session
    unanswered: int = 0  # messages and commands that are left as they are
    unsent: int = 0
    questions: int = 0


def end_what_was_open(connection: Connection, now: int) -> Over:
    """Let nothing of a copy go on by itself."""
    row = {"now": now}

    def done(statement: sa.Update) -> int:
        return connection.execute(statement, row).rowcount

    done(_SUSPEND)
    ended = done(_END_TURNS)
    done(_END_RUNNING)
    over = Over(
        turns=ended,
        held=done(_HOLD),
        unanswered=done(_DROP_WAITING) + done(_DROP_COMMANDS),
        unsent=done(_END_ITEMS),
        questions=done(_END_QUESTIONS),
    )
    note(connection, now)
    return over


def note(connection: Connection, now: int) -> None:
    """Keep the moment, behind which messages are new for sure."""
    mark = (shelves.c.shelf == SHELF, shelves.c.name == MOMENT)
    connection.execute(sa.delete(shelves).where(*mark))
    connection.execute(sa.insert(shelves).values(shelf=SHELF, name=MOMENT, value=str(now)))


def tidy(connection: Connection) -> None:
    """Take out what belongs to the process that wrote the copy: nobody has its names any more."""
    connection.execute(sa.delete(shelves).where(shelves.c.shelf == "writers"))


def move_paths(connection: Connection, before: str, after: str) -> None:
    """Let what is shown from files name them where they lie now."""
    found = sa.select(outbox.c.seq, outbox.c.body).where(outbox.c.kind == "upload")
    for seq, body in connection.execute(found).all():
        old, new = (msgspec.json.encode(path)[1:-1] for path in (before, after))
        moved = body.replace(b'"path":"' + old, b'"path":"' + new)
        if moved != body:
            connection.execute(sa.update(outbox).where(outbox.c.seq == seq).values(body=moved))
