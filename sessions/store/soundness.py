"""Checks whether a database is sound: file, references and invariants.

The check may run next to a daemon: only one snapshot is read, and every invariant holds after each
commit. Problems are reported as sentences.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sessions.records import Message, MessageRole

_MAX_NAMES = 3
_BATCH_ROWS = 1000

# Each query returns the names of the rows that break the rule.
_RULES: tuple[tuple[str, str], ...] = (
    (
        "Conversations have more than one active session",
        "SELECT key FROM sessions WHERE state = 'active' GROUP BY key HAVING count(*) > 1",
    ),
    (
        "Conversations have more than one running turn",
        "SELECT key FROM turns WHERE state = 'running' GROUP BY key HAVING count(*) > 1",
    ),
    (
        "Turns belong to a session of another conversation",
        "SELECT t.id FROM turns t JOIN sessions s ON s.id = t.session_id WHERE s.key <> t.key",
    ),
    (
        "The stored number of messages is wrong for sessions",
        (
            "SELECT s.id FROM sessions s LEFT JOIN ("
            "SELECT session_id, count(*) AS n FROM messages WHERE NOT taken_back GROUP BY session_id"
            ") m ON m.session_id = s.id WHERE s.messages <> coalesce(m.n, 0)"
        ),
    ),
    (
        "Messages are marked as running without a running turn",
        (
            "SELECT i.id FROM inbox i LEFT JOIN turns t ON t.id = i.turn_id "
            "WHERE i.state = 'running' AND (t.state IS NULL OR t.state <> 'running')"
        ),
    ),
    (
        "Messages are held with a session that does not exist",
        (
            "SELECT i.id FROM inbox i LEFT JOIN sessions s ON s.id = i.session_id "
            "WHERE i.state = 'held' AND s.id IS NULL"
        ),
    ),
    (
        "Undelivered items belong to a turn that does not exist",
        (
            "SELECT o.id FROM outbox o LEFT JOIN turns t ON t.id = o.turn_id "
            "WHERE o.state IN ('pending', 'attempting', 'unknown') "
            "AND o.turn_id IS NOT NULL AND t.id IS NULL"
        ),
    ),
)

# Rows that came with an API request are stored as sent; they carry the turn's start time.
_ENDED_TURN_MESSAGES = """
SELECT m.session_id, m.turn_id, m.body FROM messages m JOIN turns t ON t.id = m.turn_id
WHERE NOT m.taken_back AND t.state <> 'running' AND m.at > t.started_at
ORDER BY m.session_id, m.id
"""
_decode_message = msgspec.json.Decoder(Message).decode


def find_problems(connection: Connection) -> tuple[str, ...]:
    """Return all problems."""
    broken = find_damage(connection)
    if broken:  # other answers of a damaged file mean nothing
        return broken
    found = [
        _describe(what, names)
        for what, question in _RULES
        if (names := list(connection.exec_driver_sql(question).scalars()))
    ]
    without_result = list(_calls_without_result(connection))
    if without_result:
        found.append(_describe("Tool calls have no result after them", without_result))
    return tuple(found)


def find_damage(connection: Connection) -> tuple[str, ...]:
    """Return the damage that the database itself reports.

    PostgreSQL checks pages while reading.
    """
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.literal(1)))
        return ()
    report = list(connection.exec_driver_sql("PRAGMA integrity_check").scalars())
    if report != ["ok"]:
        return tuple(report)
    orphans: dict[tuple[str, str], int] = {}
    for table, _, owner, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        orphans[table, owner] = orphans.get((table, owner), 0) + 1
    return tuple(
        f"Rows of {table} refer to rows of {owner} that do not exist: {number}"
        for (table, owner), number in orphans.items()
    )


def _describe(what: str, names: list[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return f"{what}: {shown} and {more} more" if more > 0 else f"{what}: {shown}"


def _calls_without_result(connection: Connection) -> Iterator[str]:
    """Return calls in ended turns whose result is not in the rows directly after them."""
    waiting: dict[str, None] = {}
    place: tuple[str, str] | None = None
    rows = connection.execution_options(yield_per=_BATCH_ROWS).execute(
        sa.text(_ENDED_TURN_MESSAGES)
    )
    for session, turn, body in rows:
        # Most rows are neither, and need not be decoded.
        calls, result = '"tool_calls":[' in body, '"role":"tool"' in body
        if waiting and ((session, turn) != place or not result):
            yield from waiting
            waiting = {}
        if not (calls or result):
            continue
        message = _decode_message(body)
        place = (session, turn)
        if message.role == MessageRole.TOOL and message.tool_call_id:
            waiting.pop(message.tool_call_id, None)
        else:
            waiting |= dict.fromkeys(call.id for call in message.tool_calls)
    yield from waiting
