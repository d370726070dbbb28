"""Looks whether a database is sound: its file, what belongs to what, and what must always be true.

It may look while a daemon works: everything is read at one moment, and each rule holds after every
commit. What it finds is told in sentences.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sessions.records import Message

_MAX_NAMES = 3
_BATCH_ROWS = 1000

# Each gives the names of what breaks the rule.
_RULES: tuple[tuple[str, str], ...] = (
    (
        "Conversations have more than one active session",
        "SELECT key FROM sessions WHERE state = 'active' GROUP BY key HAVING count(*) > 1",
    ),
    (
        "Conversations have more than one turn under way",
        "SELECT key FROM turns WHERE state = 'running' GROUP BY key HAVING count(*) > 1",
    ),
    (
        "Turns belong to a session of another conversation",
        "SELECT t.id FROM turns t JOIN sessions s ON s.id = t.session_id WHERE s.key <> t.key",
    ),
    (
        "Sessions have more or fewer rows than they should",
        (
            "SELECT s.id FROM sessions s LEFT JOIN ("
            "SELECT session_id, count(*) AS n FROM messages WHERE NOT taken_back GROUP BY session_id"
            ") m ON m.session_id = s.id WHERE s.messages <> coalesce(m.n, 0)"
        ),
    ),
    (
        "Messages wait for a turn that is not under way",
        (
            "SELECT i.id FROM inbox i LEFT JOIN turns t ON t.id = i.turn_id "
            "WHERE i.state = 'running' AND (t.state IS NULL OR t.state <> 'running')"
        ),
    ),
    (
        "Messages are kept with a session that is not there",
        (
            "SELECT i.id FROM inbox i LEFT JOIN sessions s ON s.id = i.session_id "
            "WHERE i.state = 'held' AND s.id IS NULL"
        ),
    ),
    (
        "Things to be shown belong to a turn that is not there",
        (
            "SELECT o.id FROM outbox o LEFT JOIN turns t ON t.id = o.turn_id "
            "WHERE o.state IN ('pending', 'attempting', 'unknown') "
            "AND o.turn_id IS NOT NULL AND t.id IS NULL"
        ),
    ),
)

# Rows that came with a request are as a program sent them: they stand at the turn's first moment.
_ENDED_TURN_MESSAGES = """
SELECT m.session_id, m.turn_id, m.body FROM messages m JOIN turns t ON t.id = m.turn_id
WHERE NOT m.taken_back AND t.state <> 'running' AND m.at > t.started_at
ORDER BY m.session_id, m.id
"""
_decode_message = msgspec.json.Decoder(Message).decode


def find_problems(connection: Connection) -> tuple[str, ...]:
    """Tell all that is wrong."""
    broken = find_damage(connection)
    if broken:  # what a damaged file answers to other questions means nothing
        return broken
    found = [
        _describe(what, names)
        for what, question in _RULES
        if (names := list(connection.exec_driver_sql(question).scalars()))
    ]
    unanswered = list(_calls_without_result(connection))
    if unanswered:
        found.append(_describe("Calls of tools have no result behind them", unanswered))
    return tuple(found)


def find_damage(connection: Connection) -> tuple[str, ...]:
    """Tell what the database itself finds wrong; PostgreSQL checks what it reads by itself."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.literal(1)))
        return ()
    said = list(connection.exec_driver_sql("PRAGMA integrity_check").scalars())
    if said != ["ok"]:
        return tuple(said)
    orphans: dict[tuple[str, str], int] = {}
    for table, _, owner, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        orphans[table, owner] = orphans.get((table, owner), 0) + 1
    return tuple(
        f"Rows of {table} belong to rows of {owner} that are not there: {number}"
        for (table, owner), number in orphans.items()
    )


def _describe(what: str, names: list[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return f"{what}: {shown} and {more} more" if more > 0 else f"{what}: {shown}"


def _calls_without_result(connection: Connection) -> Iterator[str]:
    """Find calls in ended turns whose result is not in the rows right behind them."""
    waiting: dict[str, None] = {}
    place: tuple[str, str] | None = None
    rows = connection.execution_options(yield_per=_BATCH_ROWS).execute(
        sa.text(_ENDED_TURN_MESSAGES)
    )
    for session, turn, body in rows:
        # Most rows are neither: they need not be taken apart.
        calls, result = '"tool_calls":[' in body, '"role":"tool"' in body
        if waiting and ((session, turn) != place or not result):
            yield from waiting
            waiting = {}
        if not (calls or result):
            continue
        message = _decode_message(body)
        place = (session, turn)
        if message.role == "tool" and message.tool_call_id:
            waiting.pop(message.tool_call_id, None)
        else:
            waiting |= dict.fromkeys(call.id for call in message.tool_calls)
    yield from waiting
