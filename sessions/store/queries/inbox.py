"""Queries for received messages, commands and reactions."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import InboxEntry, InboxState
from sessions.store import schema
from sessions.store.queries.rows import ENTRY_COLUMNS, LIMIT, forward_and_newest, read_entry
from sessions.store.statements import state_is
from sessions.values.address import Address

_ENTRIES = sa.select(*ENTRY_COLUMNS).order_by(schema.inbox.c.seq)
_WAITING = _ENTRIES.where(
    schema.inbox.c.key == given("key"), state_is(schema.inbox.c.state, InboxState.WAITING)
)
_WAITING_KEYS = (
    sa.select(schema.inbox.c.key)
    .where(state_is(schema.inbox.c.state, InboxState.WAITING))
    .distinct()
)
# In the order of the partial indexes, so that the size of the inbox does not matter.
_ALL_WAITING = (
    sa.select(*ENTRY_COLUMNS)
    .where(state_is(schema.inbox.c.state, InboxState.WAITING))
    .order_by(schema.inbox.c.key, schema.inbox.c.seq)
)
_ALL_HELD = (
    sa.select(*ENTRY_COLUMNS)
    .where(state_is(schema.inbox.c.state, InboxState.HELD))
    .order_by(schema.inbox.c.session_id, schema.inbox.c.seq)
)
_COMMANDS = _ENTRIES.where(state_is(schema.inbox.c.state, InboxState.COMMAND))
_held = (
    schema.inbox.c.session_id == given("session"),
    state_is(schema.inbox.c.state, InboxState.HELD),
)
_HELD = _ENTRIES.where(*_held)
_COUNT_HELD = sa.select(sa.func.count()).select_from(schema.inbox).where(*_held)
_TURN_INBOX = _ENTRIES.where(schema.inbox.c.turn_id == given("turn"))
_ENTRY_BY_EVENT = sa.select(*ENTRY_COLUMNS).where(
    schema.inbox.c.source == given("source"), schema.inbox.c.event == given("event")
)
_ENTRY_BY_ID = sa.select(*ENTRY_COLUMNS).where(schema.inbox.c.id == given("entry"))
_with_text = (schema.inbox.c.address == given("address"), schema.inbox.c.payload.is_not(None))
_MESSAGES_OF_CHAT = forward_and_newest(ENTRY_COLUMNS, _with_text, schema.inbox.c.seq)
_MESSAGE_SEQS = forward_and_newest((schema.inbox.c.seq,), _with_text, schema.inbox.c.seq)
_ENTRY_AT = sa.select(*ENTRY_COLUMNS).where(schema.inbox.c.seq == given("seq"))
_text = given("text", type_=schema.inbox.c.event.type)
_ENTRIES_ABOUT = (
    sa.select(*ENTRY_COLUMNS)
    .where(
        sa.or_(
            schema.inbox.c.key == _text,
            schema.inbox.c.address == _text,
            schema.inbox.c.event == _text,
            schema.inbox.c.id == _text,
            schema.inbox.c.turn_id == _text,
            schema.inbox.c.session_id == _text,
            # all conversations in a room
            sa.and_(schema.inbox.c.key > given("inside"), schema.inbox.c.key < given("behind")),
        )
    )
    .order_by(schema.inbox.c.seq.desc())
    .limit(LIMIT)
)
_OPEN_ENTRIES_ABOUT = _ENTRIES_ABOUT.where(
    state_is(
        schema.inbox.c.state,
        InboxState.WAITING,
        InboxState.COMMAND,
        InboxState.RUNNING,
        InboxState.HELD,
    )
)
_MAX_OPEN_ENTRIES = 100
"""Number of open entries that are listed even if many newer entries match."""
_NEWEST = (
    sa.select(*ENTRY_COLUMNS)
    .where(
        sa.or_(*(schema.inbox.c.key.startswith(given(name)) for name in ("plain", "of_account"))),
        sa.or_(
            given("every", type_=sa.Boolean()), schema.inbox.c.state == InboxState.IGNORED.value
        ),
    )
    .order_by(schema.inbox.c.seq.desc())
    .limit(LIMIT)
)
_CORRECTIONS = (
    sa.select(*ENTRY_COLUMNS)
    .where(
        schema.inbox.c.source == given("source"),
        schema.inbox.c.decision.in_(given("decisions", expanding=True)),
        schema.inbox.c.seq > given("after"),
    )
    .order_by(schema.inbox.c.seq.desc())
    .limit(LIMIT)
)


def waiting_entries(connection: Connection, key: str) -> tuple[InboxEntry, ...]:
    """Return the waiting messages of a conversation."""
    return tuple(map(read_entry, connection.execute(_WAITING, {"key": key})))


def count_held(connection: Connection, session_id: str) -> int:
    """Count the messages held with a suspended session."""
    return connection.scalar(_COUNT_HELD, {"session": session_id}) or 0


def messages_of_chat(
    connection: Connection, address: Address, after: int, limit: int
) -> tuple[InboxEntry, ...]:
    """Return the first messages of a chat after a number; after 0, the newest."""
    found = {"address": address, "after": after, "limit": limit}
    return tuple(map(read_entry, connection.execute(_MESSAGES_OF_CHAT[after == 0], found)))


def message_seqs(
    connection: Connection, address: Address, after: int, limit: int
) -> tuple[int, ...]:
    """Return the numbers that `messages_of_chat` would find, without reading the content."""
    found = {"address": address, "after": after, "limit": limit}
    return tuple(connection.scalars(_MESSAGE_SEQS[after == 0], found))


def entry_at(connection: Connection, seq: int) -> tuple[InboxEntry, ...]:
    """Return the entry with this number, if there is one."""
    return tuple(map(read_entry, connection.execute(_ENTRY_AT, {"seq": seq})))


def entries_about(connection: Connection, text: str, limit: int) -> tuple[InboxEntry, ...]:
    """Return recent entries that match a key, an address or an id, and all open ones."""
    found = {"text": text, "inside": f"{text}:", "behind": f"{text};"}
    recent = connection.execute(_ENTRIES_ABOUT, found | {"limit": limit})
    rows = {entry.seq: entry for entry in map(read_entry, recent)}
    if len(rows) == limit:
        still_open = connection.execute(_OPEN_ENTRIES_ABOUT, found | {"limit": _MAX_OPEN_ENTRIES})
        rows |= {entry.seq: entry for entry in map(read_entry, still_open)}
    return tuple(rows[seq] for seq in sorted(rows, reverse=True))


def waiting_keys(connection: Connection) -> tuple[str, ...]:
    """Return the keys of conversations with waiting messages."""
    return tuple(connection.scalars(_WAITING_KEYS))


def unanswered_entries(connection: Connection) -> tuple[InboxEntry, ...]:
    """Return the messages of all conversations that wait or are held, oldest first."""
    rows = (*connection.execute(_ALL_WAITING), *connection.execute(_ALL_HELD))
    return tuple(sorted(map(read_entry, rows), key=lambda entry: entry.seq))


def pending_commands(connection: Connection) -> tuple[InboxEntry, ...]:
    """Return the commands that have not run yet."""
    return tuple(map(read_entry, connection.execute(_COMMANDS)))


def held_entries(connection: Connection, session_id: str) -> tuple[InboxEntry, ...]:
    """Return the messages held with a suspended session."""
    return tuple(map(read_entry, connection.execute(_HELD, {"session": session_id})))


def entries_of_turn(connection: Connection, turn_id: str) -> tuple[InboxEntry, ...]:
    """Return the entries that a turn answers."""
    return tuple(map(read_entry, connection.execute(_TURN_INBOX, {"turn": turn_id})))


def find_entry(connection: Connection, source: str, event: str) -> InboxEntry | None:
    """Return an entry by the two fields that a redelivery repeats."""
    row = connection.execute(_ENTRY_BY_EVENT, {"source": source, "event": event}).first()
    return read_entry(row) if row else None


def find_entry_by_id(connection: Connection, id_: str) -> InboxEntry | None:
    """Return an entry by id."""
    row = connection.execute(_ENTRY_BY_ID, {"entry": id_}).first()
    return read_entry(row) if row else None


def newest_entries(
    connection: Connection, platform: str, limit: int, *, ignored_only: bool
) -> tuple[InboxEntry, ...]:
    """Return the newest entries of a platform; optionally only ignored ones."""
    found = {"plain": f"{platform}:", "of_account": f"{platform}@", "every": not ignored_only}
    return tuple(map(read_entry, connection.execute(_NEWEST, found | {"limit": limit})))


def find_corrections(
    connection: Connection, entry: InboxEntry, decisions: Collection[str], limit: int
) -> tuple[InboxEntry, ...]:
    """Return later entries of the same source with one of these decisions, newest first."""
    found = {"source": entry.source, "after": entry.seq, "limit": limit}
    rows = connection.execute(_CORRECTIONS, found | {"decisions": list(decisions)})
    return tuple(map(read_entry, rows))
