"""Queries for turns, attempts and tool runs."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import Attempt, ToolRun, Turn, TurnState
from sessions.store import schema
from sessions.store.queries.rows import ATTEMPT_COLUMNS, TOOL_RUN_COLUMNS, TURN_COLUMNS, read_turn
from sessions.store.statements import state_is

_TURN_BY_ID = sa.select(*TURN_COLUMNS).where(schema.turns.c.id == given("turn"))
_TURNS = (
    sa.select(*TURN_COLUMNS)
    .where(schema.turns.c.session_id == given("session"))
    .order_by(schema.turns.c.id)
)
_LAST_TURN = (
    sa.select(*TURN_COLUMNS)
    .where(schema.turns.c.session_id == given("session"), schema.turns.c.taken_back == sa.false())
    .order_by(schema.turns.c.id.desc())
    .limit(1)
)
_RUNNING = (
    sa.select(*TURN_COLUMNS)
    .where(state_is(schema.turns.c.state, TurnState.RUNNING))
    .order_by(schema.turns.c.key, schema.turns.c.id)  # as in the index
)
_RUNNING_OF_KEY = _RUNNING.where(schema.turns.c.key == given("key"))
_LAST_ATTEMPT = (
    sa.select(*ATTEMPT_COLUMNS)
    .where(schema.attempts.c.turn_id == given("turn"))
    .order_by(schema.attempts.c.number.desc())
    .limit(1)
)
_TOOL_RUNS = (
    sa.select(*TOOL_RUN_COLUMNS)
    .where(schema.tool_runs.c.turn_id == given("turn"))
    .order_by(schema.tool_runs.c.started_at, schema.tool_runs.c.call_id)
)
_RUNS_OF_CALL = (
    sa.select(*TOOL_RUN_COLUMNS)
    .join(schema.turns, schema.turns.c.id == schema.tool_runs.c.turn_id)
    .where(
        schema.turns.c.session_id == given("session"),
        schema.tool_runs.c.call_id == given("call"),
    )
)


def find_turn(connection: Connection, id_: str) -> Turn | None:
    """Return a turn by id."""
    row = connection.execute(_TURN_BY_ID, {"turn": id_}).first()
    return read_turn(row) if row else None


def turns_of_session(connection: Connection, session_id: str) -> tuple[Turn, ...]:
    """Return the turns of a session, oldest first, including retracted ones."""
    return tuple(map(read_turn, connection.execute(_TURNS, {"session": session_id})))


def last_turn(connection: Connection, session_id: str) -> Turn | None:
    """Return the newest turn of a session that was not retracted."""
    row = connection.execute(_LAST_TURN, {"session": session_id}).first()
    return read_turn(row) if row else None


def running_turns_of(connection: Connection, key: str) -> tuple[Turn, ...]:
    """Return the running turns of a conversation; there should be one at most."""
    return tuple(map(read_turn, connection.execute(_RUNNING_OF_KEY, {"key": key})))


def running_turns(connection: Connection) -> tuple[Turn, ...]:
    """Return the running turns, including those that were running when the process died."""
    return tuple(map(read_turn, connection.execute(_RUNNING)))


def last_attempt(connection: Connection, turn_id: str) -> Attempt | None:
    """Return the newest attempt of a turn."""
    row = connection.execute(_LAST_ATTEMPT, {"turn": turn_id}).mappings().first()
    return Attempt(**row) if row else None


def tool_runs(connection: Connection, turn_id: str) -> tuple[ToolRun, ...]:
    """Return the tool runs of a turn in order of their start."""
    rows = connection.execute(_TOOL_RUNS, {"turn": turn_id}).mappings()
    return tuple(ToolRun(**row) for row in rows)


def tool_runs_of_calls(
    connection: Connection, session_id: str, calls: Collection[str]
) -> tuple[ToolRun, ...]:
    """Return the tool runs of these calls, from any turn of the session."""
    found = [
        ToolRun(**row)
        for call in calls
        for row in connection.execute(
            _RUNS_OF_CALL, {"session": session_id, "call": call}
        ).mappings()
    ]
    return tuple(sorted(found, key=lambda run: (run.started_at, run.call_id)))
