"""Queries for approvals."""

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import Approval, ApprovalState
from sessions.store import schema
from sessions.store.queries.rows import APPROVAL_COLUMNS, read_approval
from sessions.store.statements import state_is

_BY_ID = sa.select(*APPROVAL_COLUMNS).where(schema.approvals.c.id == given("approval"))
_OPEN = sa.select(*APPROVAL_COLUMNS).where(state_is(schema.approvals.c.state, ApprovalState.OPEN))
_OPEN_OF_KEY = _OPEN.where(schema.approvals.c.key == given("key")).order_by(
    schema.approvals.c.asked_at, schema.approvals.c.id
)
_ALLOWED = (
    sa.select(*APPROVAL_COLUMNS)
    .where(
        schema.approvals.c.session_id == given("session"),
        schema.approvals.c.asked_at >= given("since"),
        state_is(schema.approvals.c.state, ApprovalState.ALLOWED),
        schema.approvals.c.tool == given("tool"),
        schema.approvals.c.arguments == given("arguments"),
    )
    .order_by(schema.approvals.c.asked_at.desc(), schema.approvals.c.id.desc())
    .limit(1)
)


def find_approval(connection: Connection, id_: str) -> Approval | None:
    """Return an approval by id."""
    row = connection.execute(_BY_ID, {"approval": id_}).first()
    return read_approval(row) if row else None


def open_approvals(connection: Connection, key: str | None) -> tuple[Approval, ...]:
    """Return the open approvals, oldest first: all, or those of a conversation."""
    if key is not None:
        return tuple(map(read_approval, connection.execute(_OPEN_OF_KEY, {"key": key})))
    found = map(read_approval, connection.execute(_OPEN))  # the index orders them by conversation
    return tuple(sorted(found, key=lambda approval: (approval.asked_at, approval.id)))


def allowed_approval(
    connection: Connection, session_id: str, tool: str, arguments: str, since: int
) -> Approval | None:
    """Return the newest unused permission for exactly this call."""
    found = {"session": session_id, "tool": tool, "arguments": arguments, "since": since}
    row = connection.execute(_ALLOWED, found).first()
    return read_approval(row) if row else None
