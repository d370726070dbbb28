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
    ItemKind,
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
from sessions.values.frames import strip_stored_frames

_SESSION_STATES = {state.value: state for state in SessionState}
_REASONS: dict[str | None, SessionReason | None] = {
    None: None,
    **{r.value: r for r in SessionReason},
}
_INBOX_STATES = {state.value: state for state in InboxState}
_TURN_STATES = {state.value: state for state in TurnState}
_APPROVAL_STATES = {state.value: state for state in ApprovalState}
_ITEM_STATES = {state.value: state for state in ItemState}
_ITEM_KINDS = {kind.value: kind for kind in ItemKind}

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
    record: type[R], **enums: Mapping[str, enum.StrEnum]
) -> Callable[[Sequence[Any]], R]:
    """Return a function that makes a record from a row, converting the named columns."""
    names = record.__struct_fields__

    def read(row: Sequence[Any]) -> R:
        values = dict(zip(names, row, strict=True))
        for name, members in enums.items():
            values[name] = members[values[name]]
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
        title=(strip_stored_frames(title) or None) if title else None,
        messages=count,
        created_at=created_at,
        updated_at=updated_at,
    )


read_entry = _record_reader(InboxEntry, state=_INBOX_STATES)
_read_turn_as_stored = _record_reader(Turn, state=_TURN_STATES)
read_approval = _record_reader(Approval, state=_APPROVAL_STATES)
read_item = _record_reader(OutboxItem, state=_ITEM_STATES, kind=_ITEM_KINDS)


def read_turn(row: Sequence[Any]) -> Turn:
    """Convert a row into a turn; older versions stored the request with the frames of its prompt."""
    turn = _read_turn_as_stored(row)
    request = strip_stored_frames(turn.request)
    return turn if request == turn.request else msgspec.structs.replace(turn, request=request)


def forward_and_newest(
    columns: Iterable[sa.Column[Any]], where: Iterable[Any], seq: sa.Column[int]
) -> tuple[sa.Select[Any], sa.Select[Any]]:
    """Return a query for the first rows after a number, and one for the newest rows."""
    found = sa.select(*columns).where(*where, seq > given("after")).limit(LIMIT)
    return found.order_by(seq), found.order_by(seq.desc())
