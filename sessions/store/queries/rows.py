"""Conversion of rows into records."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as given

from sessions.records import (
    Approval,
    ApprovalState,
    Attempt,
    InboxEntry,
    InboxState,
    ItemState,
    OutboxItem,
    Session,
    SessionReason,
    SessionState,
    ToolRun,
    Turn,
    TurnState,
)
from sessions.store import schema

_SESSION_STATES = {state.value: state for state in SessionState}
_REASONS: dict[str | None, SessionReason | None] = {
    None: None,
    **{r.value: r for r in SessionReason},
}
_INBOX_STATES = {state.value: state for state in InboxState}
_TURN_STATES = {state.value: state for state in TurnState}
_APPROVAL_STATES = {state.value: state for state in ApprovalState}
_ITEM_STATES = {state.value: state for state in ItemState}

R = TypeVar("R", bound=msgspec.Struct)

NO_LIMIT = 2**62
"""A limit without effect, so that one statement serves both cases."""
LIMIT = given("limit", type_=sa.BigInteger())


def _columns(table: sa.Table, record: type[msgspec.Struct]) -> list[sa.Column[Any]]:
    """Return the columns of a record, in field order."""
    return [table.c[name] for name in record.__struct_fields__]


SESSION_COLUMNS = _columns(schema.sessions, Session)
ENTRY_COLUMNS = _columns(schema.inbox, InboxEntry)
TURN_COLUMNS = _columns(schema.turns, Turn)
ATTEMPT_COLUMNS = _columns(schema.attempts, Attempt)
TOOL_RUN_COLUMNS = _columns(schema.tool_runs, ToolRun)
APPROVAL_COLUMNS = _columns(schema.approvals, Approval)
ITEM_COLUMNS = _columns(schema.outbox, OutboxItem)


def _record_reader(
    record: type[R], states: Mapping[str, enum.StrEnum]
) -> Callable[[Sequence[Any]], R]:
    """Return a function that makes a record from a row, converting `state`."""
    names = record.__struct_fields__

    def read(row: Sequence[Any]) -> R:
        values = dict(zip(names, row, strict=True))
        values["state"] = states[values["state"]]
        return record(**values)

    return read


def read_session(row: Sequence[Any]) -> Session:
    """Convert a row into a session."""
    id_, key, address, state, reason, title, count, created_at, updated_at = row
    return Session(
        id=id_,
        key=key,
        address=address,
        state=_SESSION_STATES[state],
        reason=_REASONS[reason],
        title=title,
        messages=count,
        created_at=created_at,
        updated_at=updated_at,
    )


read_entry = _record_reader(InboxEntry, _INBOX_STATES)
read_turn = _record_reader(Turn, _TURN_STATES)
read_approval = _record_reader(Approval, _APPROVAL_STATES)
read_item = _record_reader(OutboxItem, _ITEM_STATES)


def forward_and_newest(
    columns: Iterable[sa.Column[Any]], where: Iterable[Any], seq: sa.Column[int]
) -> tuple[sa.Select[Any], sa.Select[Any]]:
    """Return a query for the first rows after a number, and one for the newest rows."""
    found = sa.select(*columns).where(*where, seq > given("after")).limit(LIMIT)
    return found.order_by(seq), found.order_by(seq.desc())
