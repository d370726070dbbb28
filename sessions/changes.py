"""Changes to the store, as data; a list of changes is one transaction.

The state machine and the turns produce changes; `SessionStore.apply` commits all of them or none.
Times (`at`) are milliseconds since 1970.
"""

import msgspec

from sessions.records import (
    Approval,
    ApprovalState,
    Attachment,
    InboxState,
    ItemState,
    Message,
    OutboxItem,
    SessionReason,
    SessionState,
    TurnState,
)
from sessions.values.address import Address


class OpenSession(msgspec.Struct, frozen=True):
    """Open an active session for a key that has none."""

    id: str
    key: str
    address: Address
    at: int


class SetSession(msgspec.Struct, frozen=True):
    """Suspend, reactivate or close a session."""

    id: str
    state: SessionState
    reason: SessionReason | None
    at: int


class StartTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Start a turn: mark the inbox rows as running and append the messages to the history.

    A tool result among the messages whose call is not among them takes the place of its placeholder
    (`AWAITING_CLIENT`), one of the newest rows of the session. With `continues`, a turn that ended
    with calls of its client goes on, under its id.
    """

    id: str
    session_id: str
    key: str
    address: Address
    inbox: tuple[str, ...]
    messages: tuple[Message, ...]
    request: str
    at: int
    person: str = ""  # requester; resuming a turn keeps the stored one
    continues: bool = False


class AppendMessages(msgspec.Struct, frozen=True):
    """Append rows to a session's history."""

    session_id: str
    turn_id: str
    messages: tuple[Message, ...]
    at: int


class SetFileResults(msgspec.Struct, frozen=True):
    """Write download results into the newest history rows of a session, matched by file path.

    Only the `newest` rows are searched, so that the cost does not depend on the history's length.
    """

    session_id: str
    newest: int
    files: tuple[Attachment, ...]


class SetRequest(msgspec.Struct, frozen=True):
    """Replace a turn's request text; a session titled after the old text is renamed as well."""

    turn_id: str
    session_id: str
    before: str
    request: str


class EndTurn(msgspec.Struct, frozen=True):
    """End a turn and mark the inbox rows as done."""

    id: str
    state: TurnState
    at: int
    cause: str | None = None


class SetInbox(msgspec.Struct, frozen=True, kw_only=True):
    """Set the state of inbox rows.

    `session_id` is the session that holds the rows, `turn_id` the running turn that took them.
    `payload`, if set, replaces the stored event.
    """

    ids: tuple[str, ...]
    state: InboxState
    at: int
    session_id: str | None = None
    turn_id: str | None = None
    payload: bytes | None = None


class TakeBackTurn(msgspec.Struct, frozen=True):
    """Remove the rows of a turn from the history; they stay in the database, marked."""

    session_id: str
    turn_id: str
    at: int


class PutSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Show the model `summary` in place of all but the newest `keep` rows.

    Only rows after an earlier summary are counted, so that a covered row never becomes visible
    again. With fewer than `keep` rows nothing changes. The rows themselves stay as they are. A
    caller that does not own the conversation passes the number of rows it has seen as `rows`: the
    change is refused with `Conflict` if the number is different by now.
    """

    session_id: str
    keep: int
    summary: str
    at: int
    rows: int | None = None


class StartAttempt(msgspec.Struct, frozen=True):
    """Record a model request that is about to be sent."""

    turn_id: str
    number: int
    target: str
    at: int


class EndAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Record the end of a model request."""

    turn_id: str
    number: int
    verdict: str
    at: int
    phase: str = ""
    received: int = 0
    cause: str = ""
    request_id: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None  # dollars; None: unknown
    request_hash: str = ""  # equal for requests with equal content


class Checkpoint(msgspec.Struct, frozen=True):
    """Store the visible text of a running turn, in case the process dies."""

    turn_id: str
    text: str


class StartTool(msgspec.Struct, frozen=True, kw_only=True):
    """Record a tool run before its effect. A second start of the same call is refused."""

    turn_id: str
    call_id: str
    tool: str
    risk: str
    arguments: str
    at: int
    attempt: int = 0  # model request of the turn that made the call; 0: unknown


class EndTool(msgspec.Struct, frozen=True, kw_only=True):
    """Record the result of a tool run."""

    turn_id: str
    call_id: str
    ok: bool
    result: str
    at: int


class PutApproval(msgspec.Struct, frozen=True):
    """Ask for an approval; a second one with the same id is refused."""

    approval: Approval


class AnswerApproval(msgspec.Struct, frozen=True, kw_only=True):
    """Answer an approval, or mark an allowed one as used.

    Only an open approval can be answered, and only an allowed one can be used; anything else is
    refused with `Conflict`. Using an approval keeps the recorded answer.
    """

    id: str
    state: ApprovalState
    by: str
    at: int
    reason: str = ""


class PutItem(msgspec.Struct, frozen=True):
    """Put an item into the outbox, replacing an item with the same id."""

    item: OutboxItem


class SetItem(msgspec.Struct, frozen=True, kw_only=True):
    """Update the delivery state of an item; fields that are None keep their value."""

    id: str
    state: ItemState
    at: int
    shown: bytes | None = None
    tries: int | None = None
    not_before: int | None = None
    error: str | None = None


class BudgetLimit(msgspec.Struct, frozen=True):
    """A budget that pays for a request, with limits; None: no limit of that kind."""

    scope: str
    tokens: int | None = None
    cost: float | None = None  # dollars


class BudgetReservation(msgspec.Struct, frozen=True):
    """Reserve the most a request may use, in all budgets or in none.

    Not a `Change`, because a reservation can be refused: see `SessionStore.reserve_budget`.
    """

    day: str
    limits: tuple[BudgetLimit, ...]
    tokens: int
    cost: float = 0.0


class SettleBudget(msgspec.Struct, frozen=True):
    """Release a reservation and count the real usage in its place."""

    reservation: BudgetReservation
    tokens: int
    cost: float = 0.0


class SetTitle(msgspec.Struct, frozen=True):
    """Set the title of a session."""

    session_id: str
    title: str


class PutValue(msgspec.Struct, frozen=True):
    """Store a small value; None deletes it."""

    shelf: str
    name: str
    value: str | None


Change = (
    OpenSession
    | SetSession
    | StartTurn
    | AppendMessages
    | SetFileResults
    | SetRequest
    | EndTurn
    | SetInbox
    | TakeBackTurn
    | PutSummary
    | StartAttempt
    | EndAttempt
    | Checkpoint
    | StartTool
    | EndTool
    | PutApproval
    | AnswerApproval
    | PutItem
    | SetItem
    | SettleBudget
    | SetTitle
    | PutValue
)
