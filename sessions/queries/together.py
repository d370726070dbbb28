"""Answers that take several questions."""

from sqlalchemy.engine import Connection

from sessions.queries import inbox, outbox, sessions, turns
from sessions.records import Conversation, InboxEntry, Item, Session, SessionState, Traced


def conversation(connection: Connection, key: str) -> Conversation:
    """Gather what the owner of a conversation must know."""
    waiting = inbox.waiting(connection, key)
    newest = next(iter(sessions.listed(connection, key, None, 1)), None)
    if newest is None:
        return Conversation(waiting=waiting)
    active: Session | None = newest
    if newest.state is not SessionState.ACTIVE:
        active = sessions.active(connection, key)
    suspended = sessions.suspended(connection, key)
    present = active or suspended
    return Conversation(
        active=active,
        suspended=suspended,
        newest=newest,
        waiting=waiting,
        held=inbox.count_held(connection, suspended.id) if suspended else 0,
        last_turn=turns.last(connection, present.id) if present else None,
        running=turns.running_of(connection, key),
    )


def timeline(
    connection: Connection, address: str, after: int, limit: int
) -> tuple[InboxEntry | Item, ...]:
    """Read what a chat shows: the first rows after a number, or the newest, in order."""
    rows: list[InboxEntry | Item] = [
        *inbox.said(connection, address, after, limit),
        *outbox.shown(connection, address, after, limit),
    ]
    rows.sort(key=lambda row: row.seq)
    return tuple(rows[:limit] if after else rows[-limit:])


def trace(connection: Connection, text: str, limit: int) -> tuple[Traced, ...]:
    """Find what was received lately by a key, an address or an id, with what came of it."""
    return tuple(_traced(connection, entry) for entry in inbox.about(connection, text, limit))


def _traced(connection: Connection, entry: InboxEntry) -> Traced:
    if entry.turn_id is None:
        return Traced(entry, None, ())
    turn = turns.turn(connection, entry.turn_id)
    return Traced(entry, turn, outbox.of_turn(connection, entry.turn_id, entry.seq))
