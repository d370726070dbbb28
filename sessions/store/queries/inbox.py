"""What was received."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import InboxEntry, InboxState
from sessions.store import schema
from sessions.store.queries.rows import ENTRY_COLUMNS, LIMIT, forward_and_newest, read_entry
from sessions.store.statements import state_is

_ENTRIES = sa.select(*ENTRY_COLUMNS).order_by(schema.inbox.c.seq)
_WAITING = _ENTRIES.where(
    schema.inbox.c.key == given("key"), state_is(schema.inbox.c.state, InboxState.WAITING)
)
_WAITING_KEYS = (
    sa.select(schema.inbox.c.key)
    .where(state_is(schema.inbox.c.state, InboxState.WAITING))
    .distinct()
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
            # all conversations of a room
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
MAX_OPEN_ENTRIES = 100
"""What waits is told of however much came after it, up to this number."""
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
    """List what waits to be answered in a conversation."""
    return tuple(map(read_entry, connection.execute(_WAITING, {"key": key})))


def count_held(connection: Connection, session_id: str) -> int:
    """Count what a suspended session keeps."""
    return connection.scalar(_COUNT_HELD, {"session": session_id}) or 0


def messages_of_chat(
    connection: Connection, address: str, after: int, limit: int
) -> tuple[InboxEntry, ...]:
    """List what was said in a chat after a number, the first of it; after 0, the newest."""
    found = {"address": address, "after": after, "limit": limit}
    return tuple(map(read_entry, connection.execute(_MESSAGES_OF_CHAT[after == 0], found)))


def message_seqs(connection: Connection, address: str, after: int, limit: int) -> tuple[int, ...]:
    """List the numbers of what `said` gives, without a look at the texts."""
    found = {"address": address, "after": after, "limit": limit}
    return tuple(connection.scalars(_MESSAGE_SEQS[after == 0], found))


def entry_at(connection: Connection, seq: int) -> tuple[InboxEntry, ...]:
    """Read what has this number."""
    return tuple(map(read_entry, connection.execute(_ENTRY_AT, {"seq": seq})))


def entries_about(connection: Connection, text: str, limit: int) -> tuple[InboxEntry, ...]:
    """List what was received lately by a key, an address or an id, and all of it that is open."""
    found = {"text": text, "inside": f"{text}:", "behind": f"{text};"}
    lately = connection.execute(_ENTRIES_ABOUT, found | {"limit": limit})
    rows = {entry.seq: entry for entry in map(read_entry, lately)}
    if len(rows) == limit:
        still = connection.execute(_OPEN_ENTRIES_ABOUT, found | {"limit": MAX_OPEN_ENTRIES})
        rows |= {entry.seq: entry for entry in map(read_entry, still)}
    return tuple(rows[seq] for seq in sorted(rows, reverse=True))


def waiting_keys(connection: Connection) -> tuple[str, ...]:
    """List the conversations in which something waits to be answered."""
    return tuple(connection.scalars(_WAITING_KEYS))


def pending_commands(connection: Connection) -> tuple[InboxEntry, ...]:
    """List what waits to be carried out."""
    return tuple(map(read_entry, connection.execute(_COMMANDS)))


def held_entries(connection: Connection, session_id: str) -> tuple[InboxEntry, ...]:
    """List what a suspended session keeps."""
    return tuple(map(read_entry, connection.execute(_HELD, {"session": session_id})))


def entries_of_turn(connection: Connection, turn_id: str) -> tuple[InboxEntry, ...]:
    """List what a turn answers."""
    return tuple(map(read_entry, connection.execute(_TURN_INBOX, {"turn": turn_id})))


def find_entry(connection: Connection, source: str, event: str) -> InboxEntry | None:
    """Find something received."""
    row = connection.execute(_ENTRY_BY_EVENT, {"source": source, "event": event}).first()
    return read_entry(row) if row else None


def find_entry_by_id(connection: Connection, id_: str) -> InboxEntry | None:
    """Find something received by its id here."""
    row = connection.execute(_ENTRY_BY_ID, {"entry": id_}).first()
    return read_entry(row) if row else None


def newest_entries(
    connection: Connection, platform: str, limit: int, *, ignored_only: bool
) -> tuple[InboxEntry, ...]:
    """List what came from a platform last; `ignored`: only what was."""
    found = {"plain": f"{platform}:", "of_account": f"{platform}@", "every": not ignored_only}
    return tuple(map(read_entry, connection.execute(_NEWEST, found | {"limit": limit})))


def find_corrections(
    connection: Connection, entry: InboxEntry, decisions: Collection[str], limit: int
) -> tuple[InboxEntry, ...]:
    """List what came from the same source later and was decided so, the newest first."""
    found = {"source": entry.source, "after": entry.seq, "limit": limit}
    rows = connection.execute(_CORRECTIONS, found | {"decisions": list(decisions)})
    return tuple(map(read_entry, rows))
