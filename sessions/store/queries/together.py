"""Answers that take several questions."""

from collections.abc import Collection

from sqlalchemy.engine import Connection

from sessions.records import (
    Around,
    Conversation,
    InboxEntry,
    Item,
    Session,
    SessionState,
    Traced,
)
from sessions.store.queries import approvals, inbox, outbox, sessions, turns
from sessions.values.ids import made_of

_CORRECTIONS = 100
"""As many later edits and deletions in a chat are looked through for those of one message."""


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


def places(connection: Connection, address: str, after: int, limit: int) -> tuple[int, ...]:
    """List the numbers of what `timeline` gives, in order."""
    found = sorted(
        (
            *inbox.places_said(connection, address, after, limit),
            *outbox.places_shown(connection, address, after, limit),
        )
    )
    return tuple(found[:limit] if after else found[-limit:])


def at(connection: Connection, seq: int) -> tuple[InboxEntry | Item, ...]:
    """Read what has this number."""
    return (*inbox.at(connection, seq), *outbox.at(connection, seq))


def trace(connection: Connection, text: str, limit: int) -> tuple[Traced, ...]:
    """Find what was received lately by a key, an address or an id, with what came of it."""
    found = inbox.about(connection, text, limit)
    if not found and (item := outbox.item(connection, text)) and item.turn_id:
        found = inbox.about(connection, item.turn_id, limit)
    return tuple(_traced(connection, entry) for entry in found)


def _traced(connection: Connection, entry: InboxEntry) -> Traced:
    named = outbox.answering(connection, made_of(entry.source, entry.event))
    if entry.turn_id is None:
        return Traced(entry, None, named)
    turn = turns.turn(connection, entry.turn_id)
    items = {item.id: item for item in outbox.of_turn(connection, entry.turn_id, entry.seq)}
    items |= {item.id: item for item in named}
    return Traced(entry, turn, tuple(sorted(items.values(), key=lambda item: item.seq)))


def around(connection: Connection, entry: InboxEntry, corrected: Collection[str]) -> Around:
    """Find what something received may wait for; `corrected`: decisions on edits and deletions."""
    running = next(iter(turns.running_of(connection, entry.key)), None)
    turn_id = entry.turn_id or (running.id if running else "")
    waiting = inbox.waiting(connection, entry.key)
    asked = approvals.unanswered(connection, entry.key)
    return Around(
        session=sessions.session(connection, entry.session_id) if entry.session_id else None,
        attempt=turns.last_attempt(connection, turn_id),
        runs=tuple(run for run in turns.tools(connection, turn_id) if run.finished_at is None),
        questions=tuple(each for each in asked if each.turn_id == turn_id),
        running=running,
        ahead=sum(other.seq < entry.seq for other in waiting),
        together=len(inbox.of_turn(connection, entry.turn_id)) if entry.turn_id else 1,
        corrections=inbox.corrections(connection, entry, corrected, _CORRECTIONS),
    )
