"""Queries that combine several kinds of records."""

from collections.abc import Collection

from sqlalchemy.engine import Connection

from sessions.records import (
    ConversationSnapshot,
    EntryContext,
    InboxEntry,
    MessageTrace,
    OutboxItem,
    Session,
    SessionState,
)
from sessions.store.queries import approvals, inbox, outbox, sessions, turns
from sessions.values.address import Address
from sessions.values.ids import stable_id

_MAX_CORRECTIONS = 100
"""Number of later edits and deletions in a chat that are searched for those of one message."""


def read_conversation(connection: Connection, key: str) -> ConversationSnapshot:
    """Return everything an actor needs to load a conversation."""
    waiting = inbox.waiting_entries(connection, key)
    newest = next(iter(sessions.list_sessions(connection, key, None, 1)), None)
    if newest is None:
        return ConversationSnapshot(waiting=waiting)
    active: Session | None = newest
    if newest.state is not SessionState.ACTIVE:
        active = sessions.active_session(connection, key)
    suspended = sessions.last_suspended_session(connection, key)
    present = active or suspended
    return ConversationSnapshot(
        active=active,
        suspended=suspended,
        newest=newest,
        waiting=waiting,
        held=inbox.count_held(connection, suspended.id) if suspended else 0,
        last_turn=turns.last_turn(connection, present.id) if present else None,
        running=turns.running_turns_of(connection, key),
    )


def read_timeline(
    connection: Connection, address: Address, after: int, limit: int
) -> tuple[InboxEntry | OutboxItem, ...]:
    """Return the first rows of a chat after a number, or the newest, in order."""
    rows: list[InboxEntry | OutboxItem] = [
        *inbox.messages_of_chat(connection, address, after, limit),
        *outbox.items_of_chat(connection, address, after, limit),
    ]
    rows.sort(key=lambda row: row.seq)
    return tuple(rows[:limit] if after else rows[-limit:])


def timeline_seqs(
    connection: Connection, address: Address, after: int, limit: int
) -> tuple[int, ...]:
    """Return the numbers of the rows that `read_timeline` would return, in order."""
    found = sorted(
        (
            *inbox.message_seqs(connection, address, after, limit),
            *outbox.item_seqs(connection, address, after, limit),
        )
    )
    return tuple(found[:limit] if after else found[-limit:])


def rows_at(connection: Connection, seq: int) -> tuple[InboxEntry | OutboxItem, ...]:
    """Return the row with this number, if there is one."""
    return (*inbox.entry_at(connection, seq), *outbox.item_at(connection, seq))


def request_entries(connection: Connection, turn_id: str) -> tuple[InboxEntry, ...]:
    """Return the entries that a turn answers; for a resumed turn, those of an earlier turn.

    The earlier turn is the newest one of the same person in the session that has entries.
    """
    own = inbox.entries_of_turn(connection, turn_id)
    turn = None if own else turns.find_turn(connection, turn_id)
    if turn is None:
        return own
    for earlier in reversed(turns.turns_of_session(connection, turn.session_id)):
        if earlier.id < turn.id and earlier.person == turn.person:
            found = inbox.entries_of_turn(connection, earlier.id)
            if found:
                return found
    return ()


def find_traces(connection: Connection, text: str, limit: int) -> tuple[MessageTrace, ...]:
    """Return recent entries that match a key, an address or an id, with turns and items."""
    found = inbox.entries_about(connection, text, limit)
    if not found and (item := outbox.find_item(connection, text)) and item.turn_id:
        found = inbox.entries_about(connection, item.turn_id, limit)
    return tuple(_trace(connection, entry) for entry in found)


def _trace(connection: Connection, entry: InboxEntry) -> MessageTrace:
    named = outbox.items_answering(connection, stable_id(entry.source, entry.event))
    if entry.turn_id is None:
        return MessageTrace(entry, None, named)
    turn = turns.find_turn(connection, entry.turn_id)
    items = {item.id: item for item in outbox.items_of_turn(connection, entry.turn_id, entry.seq)}
    items |= {item.id: item for item in named}
    return MessageTrace(entry, turn, tuple(sorted(items.values(), key=lambda item: item.seq)))


def entry_context(
    connection: Connection, entry: InboxEntry, decisions: Collection[str]
) -> EntryContext:
    """Return why an entry may be waiting; `decisions`: decisions on edits and deletions."""
    running = next(iter(turns.running_turns_of(connection, entry.key)), None)
    turn_id = entry.turn_id or (running.id if running else "")
    waiting = inbox.waiting_entries(connection, entry.key)
    asked = approvals.open_approvals(connection, entry.key)
    return EntryContext(
        session=sessions.find_session(connection, entry.session_id) if entry.session_id else None,
        attempt=turns.last_attempt(connection, turn_id),
        runs=tuple(run for run in turns.tool_runs(connection, turn_id) if run.finished_at is None),
        questions=tuple(approval for approval in asked if approval.turn_id == turn_id),
        running=running,
        ahead=sum(other.seq < entry.seq for other in waiting),
        turn_entries=inbox.entries_of_turn(connection, entry.turn_id) if entry.turn_id else (),
        corrections=inbox.find_corrections(connection, entry, decisions, _MAX_CORRECTIONS),
    )
