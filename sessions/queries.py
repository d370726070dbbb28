"""Reads the store: statements and how their rows become records.

Each statement finds its rows by an index, so that it takes as long with ten thousand sessions as
with ten. All of this runs in the readers' threads.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions import schema
from sessions.records import (
    Conversation,
    InboxEntry,
    InboxState,
    Item,
    ItemState,
    Message,
    Reason,
    Session,
    SessionState,
    ToolRun,
    Traced,
    Turn,
    TurnState,
)
from sessions.statements import state_is

_SESSION_STATES = {state.value: state for state in SessionState}
_REASONS: dict[str | None, Reason | None] = {None: None, **{r.value: r for r in Reason}}
_INBOX_STATES = {state.value: state for state in InboxState}
_TURN_STATES = {state.value: state for state in TurnState}
_ITEM_STATES = {state.value: state for state in ItemState}

R = TypeVar("R")

_EVERYTHING = 2**62
"""A limit that limits nothing; then one statement serves both."""
_LIMIT = given("limit", type_=sa.BigInteger())


def _columns(table: sa.Table, record: type[msgspec.Struct]) -> list[sa.Column[Any]]:
    """The columns of a record, in the order of its fields."""
    return [table.c[name] for name in record.__struct_fields__]


_SESSION = _columns(schema.sessions, Session)
_ENTRY = _columns(schema.inbox, InboxEntry)
_TURN = _columns(schema.turns, Turn)
_RUN = _columns(schema.tool_runs, ToolRun)
_ITEM = _columns(schema.outbox, Item)


def _reader(
    record: Callable[..., R], states: Mapping[str, enum.StrEnum], at: int
) -> Callable[[Sequence[Any]], R]:
    """How a row becomes a record whose field number `at` is a state."""

    def read(row: Sequence[Any]) -> R:
        return record(*row[:at], states[row[at]], *row[at + 1 :])

    return read


def _session(row: Sequence[Any]) -> Session:
    id_, key, address, state, reason, title, count, created_at, updated_at = row
    return Session(
        id_,
        key,
        address,
        _SESSION_STATES[state],
        _REASONS[reason],
        title,
        count,
        created_at,
        updated_at,
    )


_entry = _reader(InboxEntry, _INBOX_STATES, 5)
_turn = _reader(Turn, _TURN_STATES, 4)
_item = _reader(Item, _ITEM_STATES, 3)


# --- sessions --------------------------------------------------------------------------------

_SESSIONS = sa.select(*_SESSION).order_by(schema.sessions.c.id.desc()).limit(_LIMIT)
_SESSION_BY_ID = sa.select(*_SESSION).where(schema.sessions.c.id == given("session"))
_SESSIONS_BY_START = _SESSIONS.where(
    schema.sessions.c.id >= given("start"),
    schema.sessions.c.id < given("end", type_=schema.sessions.c.id.type),
)
_SESSIONS_OF_KEY = _SESSIONS.where(schema.sessions.c.key == given("key"))
_ACTIVE = sa.select(*_SESSION).where(
    schema.sessions.c.key == given("key"), state_is(schema.sessions.c.state, SessionState.ACTIVE)
)
_SUSPENDED = (
    sa.select(*_SESSION)
    .where(
        schema.sessions.c.key == given("key"),
        state_is(schema.sessions.c.state, SessionState.SUSPENDED),
    )
    .order_by(schema.sessions.c.updated_at.desc())
    .limit(1)
)
# Keys of a platform begin with `platform:` or `platform@account:`.
_OF_PLATFORM = sa.or_(
    sa.and_(schema.sessions.c.key >= given("colon"), schema.sessions.c.key < given("after_colon")),
    sa.and_(schema.sessions.c.key >= given("at"), schema.sessions.c.key < given("after_at")),
)
_SESSIONS_OF_PLATFORM = _SESSIONS.where(_OF_PLATFORM)
_newest_of_chat = (
    sa.select(
        schema.sessions.c.address,
        schema.sessions.c.title,
        schema.sessions.c.updated_at,
        sa.func.row_number()
        .over(
            partition_by=schema.sessions.c.address,
            order_by=(schema.sessions.c.updated_at.desc(), schema.sessions.c.id.desc()),
        )
        .label("place"),
    )
    .where(_OF_PLATFORM, sa.func.coalesce(schema.sessions.c.reason, "") != Reason.DELETED.value)
    .subquery()
)
_CHATS = (
    sa.select(_newest_of_chat.c.address, _newest_of_chat.c.title, _newest_of_chat.c.updated_at)
    .where(_newest_of_chat.c.place == 1)
    .order_by(_newest_of_chat.c.updated_at.desc())
    .limit(_LIMIT)
)


def session(connection: Connection, id_: str) -> Session | None:
    """Find a session."""
    row = connection.execute(_SESSION_BY_ID, {"session": id_}).first()
    return _session(row) if row else None


def find_session(connection: Connection, text: str, key: str | None) -> tuple[Session, ...]:
    """Find a session by its id, or those whose ids begin so; two are too many already."""
    exact = session(connection, text)
    if exact:
        return (exact,) if key in {None, exact.key} else ()
    bounds = {"start": text, "end": f"{text}\U0010ffff", "limit": _EVERYTHING if key else 2}
    found = tuple(map(_session, connection.execute(_SESSIONS_BY_START, bounds)))
    return tuple(each for each in found if key in {None, each.key})


def sessions(
    connection: Connection, key: str | None, platform: str | None, limit: int | None
) -> tuple[Session, ...]:
    """List sessions, the newest first."""
    most: dict[str, Any] = {"limit": _EVERYTHING if limit is None else limit}
    if key is not None:
        found = connection.execute(_SESSIONS_OF_KEY, most | {"key": key})
    elif platform is not None:
        found = connection.execute(_SESSIONS_OF_PLATFORM, most | _platform(platform))
    else:
        found = connection.execute(_SESSIONS, most)
    return tuple(map(_session, found))


def _platform(name: str) -> dict[str, str]:
    def after(sign: str) -> str:
        return chr(ord(sign) + 1)

    return {
        "colon": f"{name}:",
        "after_colon": name + after(":"),
        "at": f"{name}@",
        "after_at": name + after("@"),
    }


def chats(
    connection: Connection, platform: str, limit: int
) -> tuple[tuple[str, str | None, int], ...]:
    """List the chats of a platform, the last used first: address, title, when."""
    found = connection.execute(_CHATS, {"limit": limit, **_platform(platform)})
    return tuple((address, title, updated_at) for address, title, updated_at in found)


def conversation(connection: Connection, key: str) -> Conversation:
    """Gather what the owner of a conversation must know."""
    mine = {"key": key}
    entries = tuple(map(_entry, connection.execute(_WAITING, mine)))
    newest = next(iter(sessions(connection, key, None, 1)), None)
    if newest is None:
        return Conversation(waiting=entries)
    active: Session | None = newest
    if newest.state is not SessionState.ACTIVE:
        row = connection.execute(_ACTIVE, mine).first()
        active = _session(row) if row else None
    row = connection.execute(_SUSPENDED, mine).first()
    suspended = _session(row) if row else None
    present = active or suspended
    return Conversation(
        active=active,
        suspended=suspended,
        newest=newest,
        waiting=entries,
        held=connection.scalar(_COUNT_HELD, {"session": suspended.id}) or 0 if suspended else 0,
        last_turn=last_turn(connection, present.id) if present else None,
        running=tuple(map(_turn, connection.execute(_RUNNING_OF_KEY, mine))),
    )


# --- history ---------------------------------------------------------------------------------

_HISTORY = (
    sa.select(schema.messages.c.body)
    .where(
        schema.messages.c.session_id == given("session"), schema.messages.c.taken_back == sa.false()
    )
    .order_by(schema.messages.c.id.desc())
    .limit(_LIMIT)
)
_decoder = msgspec.json.Decoder(tuple[Message, ...])


def history(connection: Connection, session_id: str, limit: int | None) -> tuple[Message, ...]:
    """Read the newest rows of a session's history, in order."""
    most = _EVERYTHING if limit is None else limit
    rows = connection.scalars(_HISTORY, {"session": session_id, "limit": most}).all()
    return _decoder.decode(f"[{','.join(reversed(rows))}]")


# --- what was received -----------------------------------------------------------------------

_ENTRIES = sa.select(*_ENTRY).order_by(schema.inbox.c.seq)
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
_ENTRY_BY_EVENT = sa.select(*_ENTRY).where(
    schema.inbox.c.source == given("source"), schema.inbox.c.event == given("event")
)


def waiting_keys(connection: Connection) -> tuple[str, ...]:
    """List the conversations in which something waits to be answered."""
    return tuple(connection.scalars(_WAITING_KEYS))


def commands(connection: Connection) -> tuple[InboxEntry, ...]:
    """List what waits to be carried out."""
    return tuple(map(_entry, connection.execute(_COMMANDS)))


def held(connection: Connection, session_id: str) -> tuple[InboxEntry, ...]:
    """List what a suspended session keeps."""
    return tuple(map(_entry, connection.execute(_HELD, {"session": session_id})))


def turn_inbox(connection: Connection, turn_id: str) -> tuple[InboxEntry, ...]:
    """List what a turn answers."""
    return tuple(map(_entry, connection.execute(_TURN_INBOX, {"turn": turn_id})))


def inbox_entry(connection: Connection, source: str, event: str) -> InboxEntry | None:
    """Find something received."""
    row = connection.execute(_ENTRY_BY_EVENT, {"source": source, "event": event}).first()
    return _entry(row) if row else None


# --- turns -----------------------------------------------------------------------------------

_TURN_BY_ID = sa.select(*_TURN).where(schema.turns.c.id == given("turn"))
_TURNS = (
    sa.select(*_TURN)
    .where(schema.turns.c.session_id == given("session"))
    .order_by(schema.turns.c.id)
)
_LAST_TURN = (
    sa.select(*_TURN)
    .where(schema.turns.c.session_id == given("session"), schema.turns.c.taken_back == sa.false())
    .order_by(schema.turns.c.id.desc())
    .limit(1)
)
_RUNNING = (
    sa.select(*_TURN)
    .where(state_is(schema.turns.c.state, TurnState.RUNNING))
    .order_by(schema.turns.c.key, schema.turns.c.id)  # as in the index
)
_RUNNING_OF_KEY = _RUNNING.where(schema.turns.c.key == given("key"))
_TOOL_RUNS = (
    sa.select(*_RUN)
    .where(schema.tool_runs.c.turn_id == given("turn"))
    .order_by(schema.tool_runs.c.started_at, schema.tool_runs.c.call_id)
)


def turn(connection: Connection, id_: str) -> Turn | None:
    """Find a turn."""
    row = connection.execute(_TURN_BY_ID, {"turn": id_}).first()
    return _turn(row) if row else None


def turns(connection: Connection, session_id: str) -> tuple[Turn, ...]:
    """List the turns of a session, the oldest first, also those taken back."""
    return tuple(map(_turn, connection.execute(_TURNS, {"session": session_id})))


def last_turn(connection: Connection, session_id: str) -> Turn | None:
    """Find the newest turn of a session that was not taken back."""
    row = connection.execute(_LAST_TURN, {"session": session_id}).first()
    return _turn(row) if row else None


def running_turns(connection: Connection) -> tuple[Turn, ...]:
    """List the turns that are under way, or were when the process died."""
    return tuple(map(_turn, connection.execute(_RUNNING)))


def tool_runs(connection: Connection, turn_id: str) -> tuple[ToolRun, ...]:
    """List the tools a turn has started."""
    return tuple(ToolRun(*row) for row in connection.execute(_TOOL_RUNS, {"turn": turn_id}))


# --- what is to be shown ---------------------------------------------------------------------

_ITEMS = sa.select(*_ITEM).order_by(schema.outbox.c.seq)
_OPEN_ITEMS = _ITEMS.where(
    state_is(schema.outbox.c.state, ItemState.PENDING, ItemState.ATTEMPTING, ItemState.UNKNOWN)
)
_ITEMS_OF_TURN = _ITEMS.where(
    schema.outbox.c.seq > given("after"), schema.outbox.c.turn_id == given("turn")
)
_shown: tuple[sa.ColumnElement[bool], ...] = (
    schema.outbox.c.address == given("address"),
    sa.literal_column("final"),  # as in the index
    schema.outbox.c.state != ItemState.DEAD.value,
    schema.outbox.c.seq > given("after"),
)
_said: tuple[sa.ColumnElement[bool], ...] = (
    schema.inbox.c.address == given("address"),
    schema.inbox.c.payload.is_not(None),
    schema.inbox.c.seq > given("after"),
)


def _both_ways(
    columns: Iterable[sa.Column[Any]], where: Iterable[Any], seq: sa.Column[int]
) -> tuple[sa.Select[Any], sa.Select[Any]]:
    """The first rows after a number, and the newest rows."""
    found = sa.select(*columns).where(*where).limit(_LIMIT)
    return found.order_by(seq), found.order_by(seq.desc())


_SAID = _both_ways(_ENTRY, _said, schema.inbox.c.seq)
_SHOWN = _both_ways(_ITEM, _shown, schema.outbox.c.seq)
_text = given("text", type_=schema.inbox.c.event.type)
_TRACE = (
    sa.select(*_ENTRY)
    .where(
        sa.or_(
            schema.inbox.c.key == _text,
            schema.inbox.c.address == _text,
            schema.inbox.c.event == _text,
            schema.inbox.c.id == _text,
            schema.inbox.c.turn_id == _text,
        )
    )
    .order_by(schema.inbox.c.seq.desc())
    .limit(_LIMIT)
)


def open_items(connection: Connection) -> tuple[Item, ...]:
    """List what is not delivered yet, in the order in which it was put."""
    return tuple(map(_item, connection.execute(_OPEN_ITEMS)))


def timeline(
    connection: Connection, address: str, after: int, limit: int
) -> tuple[InboxEntry | Item, ...]:
    """Read what a chat shows: the first rows after a number, or the newest, in order."""
    newest = after == 0
    found = {"address": address, "after": after, "limit": limit}
    said = map(_entry, connection.execute(_SAID[newest], found))
    shown = map(_item, connection.execute(_SHOWN[newest], found))
    rows: list[InboxEntry | Item] = [*said, *shown]
    rows.sort(key=lambda row: row.seq)
    return tuple(rows[-limit:] if newest else rows[:limit])


def trace(connection: Connection, text: str, limit: int) -> tuple[Traced, ...]:
    """Find what was received lately by a key, an address or an id, with what came of it."""
    entries = map(_entry, connection.execute(_TRACE, {"text": text, "limit": limit}).all())
    return tuple(_traced(connection, entry) for entry in entries)


def _traced(connection: Connection, entry: InboxEntry) -> Traced:
    if entry.turn_id is None:
        return Traced(entry, None, ())
    found = {"turn": entry.turn_id, "after": entry.seq}
    items = tuple(map(_item, connection.execute(_ITEMS_OF_TURN, found)))
    return Traced(entry, turn(connection, entry.turn_id), items)


# --- small values ----------------------------------------------------------------------------

_VALUE = sa.select(schema.shelves.c.value).where(
    schema.shelves.c.shelf == given("shelf"), schema.shelves.c.name == given("name")
)
_VALUES = sa.select(schema.shelves.c.name, schema.shelves.c.value).where(
    schema.shelves.c.shelf == given("shelf")
)


def value(connection: Connection, shelf: str, name: str) -> str | None:
    """Read a value."""
    found: str | None = connection.scalar(_VALUE, {"shelf": shelf, "name": name})
    return found


def values(connection: Connection, shelf: str) -> dict[str, str]:
    """Read all values of a shelf."""
    found = connection.execute(_VALUES, {"shelf": shelf})
    return {name: value for name, value in found}  # noqa: C416 - rows are not quite pairs


# --- the database itself ---------------------------------------------------------------------


def integrity(connection: Connection) -> str:
    """Let SQLite check its file; PostgreSQL checks what it reads by itself."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.literal(1)))
        return "ok"
    return "\n".join(connection.exec_driver_sql("PRAGMA integrity_check").scalars())
