"""Queries for sessions and their history."""

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import Message, Session, SessionReason, SessionState
from sessions.store import schema
from sessions.store.queries.rows import LIMIT, NO_LIMIT, SESSION_COLUMNS, read_session
from sessions.store.statements import state_is
from sessions.values.address import Address

_SESSIONS = sa.select(*SESSION_COLUMNS).order_by(schema.sessions.c.id.desc()).limit(LIMIT)
_SESSION_BY_ID = sa.select(*SESSION_COLUMNS).where(schema.sessions.c.id == given("session"))
_SESSIONS_BY_PREFIX = _SESSIONS.where(
    schema.sessions.c.id >= given("start"),
    schema.sessions.c.id < given("end", type_=schema.sessions.c.id.type),
)
_SESSIONS_OF_KEY = _SESSIONS.where(schema.sessions.c.key == given("key"))
_ACTIVE = sa.select(*SESSION_COLUMNS).where(
    schema.sessions.c.key == given("key"), state_is(schema.sessions.c.state, SessionState.ACTIVE)
)
_SUSPENDED = (
    sa.select(*SESSION_COLUMNS)
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
    .where(
        _OF_PLATFORM, sa.func.coalesce(schema.sessions.c.reason, "") != SessionReason.DELETED.value
    )
    .subquery()
)
_CHATS = (
    sa.select(_newest_of_chat.c.address, _newest_of_chat.c.title, _newest_of_chat.c.updated_at)
    .where(_newest_of_chat.c.place == 1)
    .order_by(_newest_of_chat.c.updated_at.desc())
    .limit(LIMIT)
)


def find_session(connection: Connection, id_: str) -> Session | None:
    """Return a session by id."""
    row = connection.execute(_SESSION_BY_ID, {"session": id_}).first()
    return read_session(row) if row else None


def find_by_prefix(connection: Connection, prefix: str, key: str | None) -> tuple[Session, ...]:
    """Return the session with this id, or those whose ids begin with it.

    At most two without a key.
    """
    exact = find_session(connection, prefix)
    if exact:
        return (exact,) if key in {None, exact.key} else ()
    bounds = {"start": prefix, "end": f"{prefix}\U0010ffff", "limit": NO_LIMIT if key else 2}
    found = tuple(map(read_session, connection.execute(_SESSIONS_BY_PREFIX, bounds)))
    return tuple(session for session in found if key in {None, session.key})


def list_sessions(
    connection: Connection, key: str | None, platform: str | None, limit: int | None
) -> tuple[Session, ...]:
    """Return sessions, newest first."""
    most: dict[str, Any] = {"limit": NO_LIMIT if limit is None else limit}
    if key is not None:
        found = connection.execute(_SESSIONS_OF_KEY, most | {"key": key})
    elif platform is not None:
        found = connection.execute(_SESSIONS_OF_PLATFORM, most | _platform_bounds(platform))
    else:
        found = connection.execute(_SESSIONS, most)
    return tuple(map(read_session, found))


def _platform_bounds(name: str) -> dict[str, str]:
    def after(sign: str) -> str:
        return chr(ord(sign) + 1)

    return {
        "colon": f"{name}:",
        "after_colon": name + after(":"),
        "at": f"{name}@",
        "after_at": name + after("@"),
    }


def list_chats(
    connection: Connection, platform: str, limit: int
) -> tuple[tuple[Address, str | None, int], ...]:
    """Return (address, title, last use) of a platform's chats, the last used first."""
    found = connection.execute(_CHATS, {"limit": limit, **_platform_bounds(platform)})
    return tuple((address, title, updated_at) for address, title, updated_at in found)


def active_session(connection: Connection, key: str) -> Session | None:
    """Return the active session of a conversation."""
    row = connection.execute(_ACTIVE, {"key": key}).first()
    return read_session(row) if row else None


def last_suspended_session(connection: Connection, key: str) -> Session | None:
    """Return the session of a conversation that was suspended last."""
    row = connection.execute(_SUSPENDED, {"key": key}).first()
    return read_session(row) if row else None


_HISTORY = (
    sa.select(schema.messages.c.body)
    .where(
        schema.messages.c.session_id == given("session"), schema.messages.c.taken_back == sa.false()
    )
    .order_by(schema.messages.c.id.desc())
    .limit(LIMIT)
)
_last_of_turn = (
    sa.select(sa.func.max(schema.messages.c.id))
    .where(
        schema.messages.c.session_id == given("session"), schema.messages.c.turn_id == given("turn")
    )
    .scalar_subquery()
)
_UP_TO_TURN = (
    sa.select(schema.messages.c.body)
    .where(
        schema.messages.c.session_id == given("session"),
        schema.messages.c.id <= _last_of_turn,
        schema.messages.c.taken_back == sa.false(),
    )
    .order_by(schema.messages.c.id)
)
_SUMMARY = sa.select(schema.summaries.c.text, schema.summaries.c.upto).where(
    schema.summaries.c.session_id == given("session")
)
_BEHIND_SUMMARY = (
    sa.select(schema.messages.c.body)
    .where(
        schema.messages.c.session_id == given("session"),
        schema.messages.c.id > given("mark"),
        schema.messages.c.taken_back == sa.false(),
    )
    .order_by(schema.messages.c.id)
)
# SQLite joins a thousand rows in a fraction of the time needed to turn them into a thousand
# objects, and keeps their order inside an aggregate. PostgreSQL does not promise that order, and
# returns rows faster.
_BEHIND_SUMMARY_AS_JSON = sa.select(sa.func.group_concat(_BEHIND_SUMMARY.subquery().c.body, ","))
_decoder = msgspec.json.Decoder(tuple[Message, ...])


def read_history(connection: Connection, session_id: str, limit: int | None) -> tuple[Message, ...]:
    """Return the newest rows of a session's history, in order."""
    most = NO_LIMIT if limit is None else limit
    rows = connection.scalars(_HISTORY, {"session": session_id, "limit": most}).all()
    return _decode(reversed(rows))


def read_history_up_to(
    connection: Connection, session_id: str, turn_id: str
) -> tuple[Message, ...]:
    """Return a session's history up to the end of a turn, in order."""
    rows = connection.scalars(_UP_TO_TURN, {"session": session_id, "turn": turn_id})
    return _decode(rows.all())


def read_context(connection: Connection, session_id: str) -> tuple[str, tuple[Message, ...]]:
    """Return the summary of the oldest rows and the later rows."""
    summary, mark = connection.execute(_SUMMARY, {"session": session_id}).first() or ("", 0)
    found = {"session": session_id, "mark": mark}
    if connection.dialect.name == "sqlite":
        return summary, _decode((connection.scalar(_BEHIND_SUMMARY_AS_JSON, found) or "",))
    rows = connection.scalars(_BEHIND_SUMMARY, found)
    return summary, _decode(rows.all())  # fetching one by one takes three times as long


def _decode(rows: Iterable[str]) -> tuple[Message, ...]:
    return _decoder.decode(f"[{','.join(rows)}]")
