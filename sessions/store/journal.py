"""The writing half of the store: the SQL statements for each change.

A change takes a fixed number of statements, independent of the size of the database. Everything
runs in the writer thread, inside a transaction opened by the caller.
"""

import itertools
from collections.abc import Mapping
from typing import Any, assert_never

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import IntegrityError

from sessions.attached import with_fetch_results
from sessions.changes import (
    AnswerApproval,
    AppendMessages,
    BudgetLimit,
    BudgetReservation,
    Change,
    Checkpoint,
    EndAttempt,
    EndTool,
    EndTurn,
    OpenSession,
    PutApproval,
    PutItem,
    PutSummary,
    PutValue,
    SetFileResults,
    SetInbox,
    SetItem,
    SetRequest,
    SetSession,
    SetTitle,
    SettleBudget,
    StartAttempt,
    StartTool,
    StartTurn,
    TakeBackTurn,
)
from sessions.errors import Conflict, RecordNotFound, ToolAlreadyStarted
from sessions.records import (
    AWAITING_CLIENT,
    Approval,
    ApprovalState,
    InboxEntry,
    InboxState,
    ItemState,
    Message,
    MessageRole,
    OutboxItem,
    SessionState,
    TurnState,
)
from sessions.store import statements as sql
from sessions.store.engine import upsert_insert
from sessions.store.schema import MAX_DOLLARS, make_storable

_TITLE_LENGTH = 60

_UNLIMITED_TOKENS = 2**62

_MAX_PLACEHOLDERS = 1000  # results of client tools that one answer can wait for

_SETTLED_INBOX_STATES = {InboxState.DONE, InboxState.REFUSED, InboxState.IGNORED}
_SETTLED_ITEM_STATES = {ItemState.SENT, ItemState.DEAD}

_read_message = msgspec.json.Decoder(Message).decode

Row = dict[str, Any]


class Journal:
    """Executes changes inside the caller's transaction."""

    def __init__(self, dialect: Dialect) -> None:
        self._upserts = sql.upserts_for(upsert_insert(dialect))
        self._sequence = dialect.supports_sequences
        self._next_numbers: itertools.count[int] | None = None

    def accept(self, connection: Connection, entry: InboxEntry) -> bool:
        """Insert an inbox entry; return False for a redelivery."""
        row = msgspec.structs.asdict(entry)
        row["state"] = entry.state.value
        row["seq"] = self._next_seq(connection)
        return connection.execute(self._upserts.add_inbox, row).rowcount == 1

    def apply(self, connection: Connection, changes: tuple[Change, ...]) -> None:
        """Execute changes in order; the caller must roll back if one raises."""
        for change in changes:
            try:
                self._apply(connection, change)
            except IntegrityError as error:
                raise _integrity_conflict(change, error) from error

    def put_value(self, connection: Connection, shelf: str, name: str, value: str | None) -> None:
        """Store a small value; None deletes it."""
        if value is None:
            connection.execute(sql.DELETE_VALUE, {"of": shelf, "called": name})
        else:
            row = {"shelf": shelf, "name": name, "value": value}
            connection.execute(self._upserts.put_value, row)

    def save_texts(self, connection: Connection, texts: Mapping[str, str]) -> None:
        """Store the visible text of running turns by id; other turns are skipped."""
        rows = [{"turn": turn, "partial": text} for turn, text in texts.items()]
        _execute_many(connection, sql.CHECKPOINT, rows)

    def reserve(self, connection: Connection, reservation: BudgetReservation) -> BudgetLimit | None:
        """Reserve in all budgets.

        Return the first budget without enough left, reserving nothing.
        """
        taken: list[BudgetLimit] = []
        # In a fixed order, so that two processes cannot deadlock.
        for want in sorted(reservation.limits, key=lambda want: want.scope):
            if not self._reserve_one(connection, reservation, want):
                for other in taken:
                    _release_reservation(connection, reservation, other)
                return want
            taken.append(want)
        return None

    def _reserve_one(
        self, connection: Connection, reservation: BudgetReservation, limit: BudgetLimit
    ) -> bool:
        if limit.tokens is not None and reservation.tokens > limit.tokens:
            return False
        if limit.cost is not None and reservation.cost > limit.cost:
            return False
        row = {
            "day": reservation.day,
            "scope": limit.scope,
            "tokens": reservation.tokens,
            "cost": reservation.cost,
            "held_tokens": reservation.tokens,
            "held_cost": reservation.cost,
            "most_tokens": _UNLIMITED_TOKENS if limit.tokens is None else limit.tokens,
            "most_cost": MAX_DOLLARS if limit.cost is None else limit.cost,
        }
        return connection.execute(self._upserts.reserve_budget, row).rowcount == 1

    def _next_seq(self, connection: Connection) -> int:
        if self._sequence:
            return int(connection.execute(sql.NEXT_SEQ_POSTGRESQL).one()[1])
        if self._next_numbers is None:
            last = (connection.scalar(sql.LAST_INBOX_SEQ), connection.scalar(sql.LAST_OUTBOX_SEQ))
            self._next_numbers = itertools.count(max(number or 0 for number in last) + 1)
        return next(self._next_numbers)

    def _apply(self, connection: Connection, change: Change) -> None:
        match change:
            case SetItem():
                _set_item(connection, change)
            case PutItem():
                self._put_item(connection, change.item)
            case AppendMessages():
                _append_messages(
                    connection, change.session_id, change.turn_id, change.messages, change.at
                )
            case StartTurn():
                self._start_turn(connection, change)
            case EndTurn():
                _end_turn(connection, change)
            case StartAttempt():
                _start_attempt(connection, change)
            case EndAttempt():
                _end_attempt(connection, change)
            case Checkpoint():
                self.save_texts(connection, {change.turn_id: change.text})
            case StartTool():
                self._start_tool(connection, change)
            case EndTool():
                _end_tool(connection, change)
            case SetInbox():
                _set_inbox(connection, change)
            case OpenSession():
                _open_session(connection, change)
            case SetSession():
                _set_session(connection, change)
            case TakeBackTurn():
                _take_back_turn(connection, change)
            case SetFileResults():
                _set_file_results(connection, change)
            case SetRequest():
                _set_request(connection, change)
            case PutSummary():
                self._compact(connection, change)
            case PutApproval():
                _put_approval(connection, change.approval)
            case AnswerApproval():
                _answer_approval(connection, change)
            case SettleBudget():
                _settle_budget(connection, change)
            case SetTitle():
                row = {"session": change.session_id, "title": change.title}
                _execute_one(connection, sql.SET_TITLE, row, change.session_id)
            case PutValue():
                self.put_value(connection, change.shelf, change.name, change.value)
            case _:
                assert_never(change)

    def _start_turn(self, connection: Connection, change: StartTurn) -> None:
        row = {
            "id": change.id,
            "session_id": change.session_id,
            "key": change.key,
            "address": change.address,
            "state": TurnState.RUNNING.value,
            "request": change.request,
            "started_at": change.at,
            "person": change.person,
        }
        put = self._upserts.continue_turn if change.continues else self._upserts.start_turn
        connection.execute(put, row)
        _execute_many(
            connection,
            sql.MARK_INBOX_RUNNING,
            [
                {"row": row, "turn_id": change.id, "session_id": change.session_id}
                for row in change.inbox
            ],
        )
        title = _title(change.request)
        rows = _put_client_results(connection, change)
        _append_messages(connection, change.session_id, change.id, rows, change.at, title)

    def _start_tool(self, connection: Connection, change: StartTool) -> None:
        row = msgspec.structs.asdict(change)
        row["started_at"] = row.pop("at")
        if connection.execute(self._upserts.start_tool, row).rowcount == 0:
            msg = f"The tool call {change.call_id} of {change.turn_id} was already started"
            raise ToolAlreadyStarted(msg)

    def _put_item(self, connection: Connection, item: OutboxItem) -> None:
        row = msgspec.structs.asdict(item)
        row["state"], row["kind"] = item.state.value, item.kind.value
        row["seq"] = self._next_seq(connection)
        put = self._upserts.put_final_item if item.final else self._upserts.put_item
        connection.execute(put, row)

    def _compact(self, connection: Connection, change: PutSummary) -> None:
        found = {"session": change.session_id, "keep": change.keep}
        row = connection.execute(sql.COMPACTION_BOUNDS, found).first()
        if row is None:
            raise _not_found(change.session_id)
        mark, behind, newest_covered = row
        if change.rows not in {None, behind}:
            msg = f"{change.session_id} has {behind} rows behind its summary, not {change.rows}"
            raise Conflict(msg)
        if change.keep > behind:
            return
        upto = mark if newest_covered is None else newest_covered
        summary = {"session_id": change.session_id, "upto": upto, "text": change.summary}
        connection.execute(self._upserts.put_summary, summary)
        used = {"session": change.session_id, "updated_at": change.at}
        connection.execute(sql.TOUCH_SESSION, used)


def _execute_many(connection: Connection, statement: sa.Executable, rows: list[Row]) -> None:
    if len(rows) == 1:
        connection.execute(statement, rows[0])
    elif rows:
        connection.execute(statement, rows)


def _execute_one(connection: Connection, statement: sa.Executable, row: Row, what: str) -> None:
    if connection.execute(statement, row).rowcount == 0:
        raise _not_found(what)


def _not_found(what: str) -> RecordNotFound:
    return RecordNotFound(f"{what} is not in the database")


def _integrity_conflict(change: Change, error: IntegrityError) -> Conflict:
    if "foreign key" in str(error.orig).lower():
        return RecordNotFound(
            f"{type(change).__name__}: the record it belongs to is not in the database"
        )
    if isinstance(change, OpenSession):
        return Conflict(
            f"{change.key} already has an active session; {change.id} cannot become another"
        )
    if isinstance(change, SetSession):
        return Conflict(f"{change.id} cannot become active: another session of its key is")
    return Conflict(f"{type(change).__name__}: the record is already in the database")


def _open_session(connection: Connection, change: OpenSession) -> None:
    row = {
        "id": change.id,
        "key": change.key,
        "address": change.address,
        "state": SessionState.ACTIVE.value,
        "created_at": change.at,
        "updated_at": change.at,
    }
    connection.execute(sql.ADD_SESSION, row)


def _set_session(connection: Connection, change: SetSession) -> None:
    row = {
        "session": change.id,
        "state": change.state.value,
        "reason": change.reason.value if change.reason else None,
        "updated_at": change.at,
    }
    _execute_one(connection, sql.SET_SESSION, row, change.id)


def _append_messages(
    connection: Connection,
    session_id: str,
    turn_id: str,
    messages: tuple[Message, ...],
    at: int,
    title: str | None = None,
) -> None:
    rows = [
        {"session_id": session_id, "turn_id": turn_id, "at": at, "body": encode_message(message)}
        for message in messages
    ]
    grown = {"session": session_id, "more": len(rows), "updated_at": at, "title": title}
    _execute_one(connection, sql.GROW_SESSION, grown, session_id)
    _execute_many(connection, sql.ADD_MESSAGE, rows)


def _put_client_results(connection: Connection, change: StartTurn) -> tuple[Message, ...]:
    """Write results of client tools in the place of their placeholders; return the other rows.

    The placeholders are the newest rows of the session. A result without a placeholder is dropped,
    because the call already has a result.
    """
    called = {call.id for row in change.messages for call in row.tool_calls}
    brought = {
        row.tool_call_id: row
        for row in change.messages
        if row.role == MessageRole.TOOL and row.tool_call_id not in called
    }
    if not brought:
        return change.messages
    newest = {"session": change.session_id, "limit": _MAX_PLACEHOLDERS}
    rows = []
    for number, body in connection.execute(sql.NEWEST_MESSAGES, newest).all():
        stored = _read_message(body)
        if stored.interrupted != AWAITING_CLIENT:
            break
        if stored.tool_call_id in brought:
            result = brought[stored.tool_call_id]
            rows.append({"row": number, "body": encode_message(result)})
    _execute_many(connection, sql.REPLACE_MESSAGE, rows)
    results = list(brought.values())
    return tuple(row for row in change.messages if row not in results)


def _title(request: str) -> str | None:
    """Return the first line of a request, as the title of the session."""
    line = next(iter(request.strip().splitlines()), "")
    return line[:_TITLE_LENGTH].rstrip() or None


def _set_file_results(connection: Connection, change: SetFileResults) -> None:
    settled = {file.path: file for file in change.files}
    newest = {"session": change.session_id, "limit": change.newest}
    rows = []
    for number, body in connection.execute(sql.NEWEST_MESSAGES, newest).all():
        message = _read_message(body)
        changed = with_fetch_results(message, settled)
        if changed is not message:
            rows.append({"row": number, "body": encode_message(changed)})
    if not rows:
        raise _not_found(change.files[0].path)
    _execute_many(connection, sql.REPLACE_MESSAGE, rows)


def _set_request(connection: Connection, change: SetRequest) -> None:
    row = {"turn": change.turn_id, "request": change.request}
    _execute_one(connection, sql.SET_REQUEST, row, change.turn_id)
    named = {
        "session": change.session_id,
        "before": _title(change.before),
        "title": _title(change.request),
    }
    connection.execute(sql.RENAME_SESSION, named)


def encode_message(message: Message) -> str:
    """Encode a history row for storage."""
    try:
        return msgspec.json.encode(message).decode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON cannot hold
        return msgspec.json.encode(_make_storable(msgspec.to_builtins(message))).decode()


def _make_storable(part: object) -> object:
    if isinstance(part, str):
        return make_storable(part)
    if isinstance(part, dict):
        return {name: _make_storable(value) for name, value in part.items()}
    return [_make_storable(value) for value in part] if isinstance(part, list | tuple) else part


def _take_back_turn(connection: Connection, change: TakeBackTurn) -> None:
    _execute_one(connection, sql.RETRACT_TURN, {"turn": change.turn_id}, change.turn_id)
    found = {"session": change.session_id, "turn": change.turn_id}
    hidden = connection.execute(sql.RETRACT_MESSAGES, found).rowcount
    grown = {"session": change.session_id, "more": -hidden, "updated_at": change.at, "title": None}
    _execute_one(connection, sql.GROW_SESSION, grown, change.session_id)


def _put_approval(connection: Connection, approval: Approval) -> None:
    row = msgspec.structs.asdict(approval)
    row["state"] = approval.state.value
    connection.execute(sql.ADD_APPROVAL, row)


def _answer_approval(connection: Connection, change: AnswerApproval) -> None:
    row = {"approval": change.id}
    if change.state is ApprovalState.USED:
        done = connection.execute(sql.USE_APPROVAL, row).rowcount
    elif change.state is not ApprovalState.OPEN:
        row |= {"state": change.state.value, "answered_by": change.by, "reason": change.reason}
        done = connection.execute(sql.ANSWER_APPROVAL, row | {"answered_at": change.at}).rowcount
    else:
        done = 0
    if not done:
        state = connection.scalar(sql.APPROVAL_STATE, {"approval": change.id})
        if state is None:
            raise _not_found(change.id)
        msg = f"The approval {change.id} is {state}; it cannot become {change.state.value}"
        raise Conflict(msg)


def _end_turn(connection: Connection, change: EndTurn) -> None:
    row = {
        "turn": change.id,
        "state": change.state.value,
        "finished_at": change.at,
        "cause": change.cause,
    }
    _execute_one(connection, sql.END_TURN, row, change.id)
    connection.execute(sql.MARK_INBOX_DONE, {"turn": change.id, "settled_at": change.at})


def _set_inbox(connection: Connection, change: SetInbox) -> None:
    settled_at = change.at if change.state in _SETTLED_INBOX_STATES else None
    state = change.state.value
    rows = [
        {
            "row": row,
            "state": state,
            "session_id": change.session_id,
            "turn_id": change.turn_id,
            "settled_at": settled_at,
        }
        for row in change.ids
    ]
    _execute_many(connection, sql.SET_INBOX, rows)
    if change.payload is not None:
        payloads: list[Row] = [{"row": row, "payload": change.payload} for row in change.ids]
        _execute_many(connection, sql.SET_PAYLOAD, payloads)


def _start_attempt(connection: Connection, change: StartAttempt) -> None:
    row = msgspec.structs.asdict(change)
    row["started_at"] = row.pop("at")
    connection.execute(sql.ADD_ATTEMPT, row)
    counted = {"turn": change.turn_id, "attempts": change.number}
    connection.execute(sql.COUNT_ATTEMPT, counted)


def _end_attempt(connection: Connection, change: EndAttempt) -> None:
    row = msgspec.structs.asdict(change)
    row["turn"], row["attempt"] = row.pop("turn_id"), row.pop("number")
    row["finished_at"] = row.pop("at")
    _execute_one(connection, sql.END_ATTEMPT, row, f"attempt {change.number} of {change.turn_id}")


def _end_tool(connection: Connection, change: EndTool) -> None:
    row = {
        "turn": change.turn_id,
        "call": change.call_id,
        "finished_at": change.at,
        "ok": change.ok,
        "result": change.result,
    }
    _execute_one(connection, sql.END_TOOL, row, f"tool call {change.call_id} of {change.turn_id}")


def _set_item(connection: Connection, change: SetItem) -> None:
    row = {
        "item": change.id,
        "state": change.state.value,
        "settled_at": change.at if change.state in _SETTLED_ITEM_STATES else None,
        "shown": change.shown,
        "tries": change.tries,
        "not_before": change.not_before,
        "error": change.error,
    }
    _execute_one(connection, sql.SET_ITEM, row, change.id)


def _settle_budget(connection: Connection, change: SettleBudget) -> None:
    held = change.reservation
    for want in sorted(held.limits, key=lambda want: want.scope):
        row = {
            "of_day": held.day,
            "of_scope": want.scope,
            "more_tokens": change.tokens - held.tokens,
            "more_cost": change.cost - held.cost,
            "more_held_tokens": -held.tokens,
            "more_held_cost": -held.cost,
        }
        connection.execute(sql.SETTLE_BUDGET, row)


def _release_reservation(
    connection: Connection, reservation: BudgetReservation, limit: BudgetLimit
) -> None:
    _settle_budget(
        connection, SettleBudget(msgspec.structs.replace(reservation, limits=(limit,)), 0, 0.0)
    )
