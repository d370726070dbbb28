"""What can be changed in the store, as data: a list of changes is one transaction.

The session machine and the turns say what should become true; `SessionStore.apply` makes it so, all
or nothing. Moments (`at`) are milliseconds since 1970.
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


class OpenSession(msgspec.Struct, frozen=True):
    """A new active session for a key that has none."""

    id: str
    key: str
    address: str
    at: int


class SetSession(msgspec.Struct, frozen=True):
    """Suspend, bring back or close a session."""

    id: str
    state: SessionState
    reason: SessionReason | None
    at: int


class StartTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn begins: its inbox rows become `running`, the request becomes the user's row."""

    id: str
    session_id: str
    key: str
    address: str
    inbox: tuple[str, ...]
    messages: tuple[Message, ...]
    request: str
    at: int
    person: str = ""  # who asked; a turn that is taken up again stays with whom it had


class AppendMessages(msgspec.Struct, frozen=True):
    """Rows at the end of a session's history."""

    session_id: str
    turn_id: str
    messages: tuple[Message, ...]
    at: int


class SetFileResults(msgspec.Struct, frozen=True):
    """What came of files is written into their rows, which are among the newest of a session.

    `newest` says how far back they may stand, so that it costs the same however long a history is.
    Files are known by their paths.
    """

    session_id: str
    newest: int
    files: tuple[Attachment, ...]


class SetRequest(msgspec.Struct, frozen=True):
    """What a turn is about is known better now; a session that was named after it follows."""

    turn_id: str
    session_id: str
    before: str
    request: str


class EndTurn(msgspec.Struct, frozen=True):
    """A turn has ended; its inbox rows are done."""

    id: str
    state: TurnState
    at: int
    cause: str | None = None


class SetInbox(msgspec.Struct, frozen=True, kw_only=True):
    """Received things change their state.

    `session_id` says which session holds them, `turn_id` which running turn took them in.
    """

    ids: tuple[str, ...]
    state: InboxState
    at: int
    session_id: str | None = None
    turn_id: str | None = None


class TakeBackTurn(msgspec.Struct, frozen=True):
    """A turn and its rows leave the history (they stay in the database, marked)."""

    session_id: str
    turn_id: str
    at: int


class PutSummary(msgspec.Struct, frozen=True, kw_only=True):
    """From now on a model is shown `summary` in place of all but the newest `keep` rows.

    Only what stands behind an earlier summary is counted, so that no row is ever covered and then
    shown again. Where there are fewer rows than `keep`, nothing changes. The rows stay as they are.
    Who decided this without owning the conversation says how many rows there were: it is refused
    with `Conflict` when that is not so any more.
    """

    session_id: str
    keep: int
    summary: str
    at: int
    rows: int | None = None


class StartAttempt(msgspec.Struct, frozen=True):
    """One request to a model is about to be sent."""

    turn_id: str
    number: int
    target: str
    at: int


class EndAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """How a request to a model ended."""

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
    cost: float | None = None  # dollars; None: not known
    request_hash: str = ""  # requests that say the same have the same


class Checkpoint(msgspec.Struct, frozen=True):
    """The visible text so far, for the case that the process dies."""

    turn_id: str
    text: str


class StartTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool is about to take effect. A second start of the same call is refused."""

    turn_id: str
    call_id: str
    tool: str
    risk: str
    arguments: str
    at: int
    attempt: int = 0  # the request of the turn that brought the call; 0: not known


class EndTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's effect and its result are known."""

    turn_id: str
    call_id: str
    ok: bool
    result: str
    at: int


class PutApproval(msgspec.Struct, frozen=True):
    """Somebody is to be asked; a second question of the same id is refused."""

    approval: Approval


class AnswerApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A question is settled, or what it allowed is used.

    Only an open question can be answered, and only an allowed one be used: whoever comes second is
    refused with `Conflict`. Using it changes nothing of what is known about the answer.
    """

    id: str
    state: ApprovalState
    by: str
    at: int
    reason: str = ""


class PutItem(msgspec.Struct, frozen=True):
    """Something the chat should show from now on; replaces an item of the same id."""

    item: OutboxItem


class SetItem(msgspec.Struct, frozen=True, kw_only=True):
    """Delivery of an item went on; fields left out (None) stay as they are."""

    id: str
    state: ItemState
    at: int
    shown: bytes | None = None
    tries: int | None = None
    not_before: int | None = None
    error: str | None = None


class BudgetLimit(msgspec.Struct, frozen=True):
    """A budget that a request is to be paid from, and its limits; None: none of that kind."""

    scope: str
    tokens: int | None = None
    cost: float | None = None  # dollars


class BudgetReservation(msgspec.Struct, frozen=True):
    """What a request may use at most is held back, from all budgets or from none.

    Not one of the changes: it can be refused, see `SessionStore.hold`.
    """

    day: str
    limits: tuple[BudgetLimit, ...]
    tokens: int
    cost: float = 0.0


class SettleBudget(msgspec.Struct, frozen=True):
    """What was held back is given free, and what was used counts in its place."""

    reservation: BudgetReservation
    tokens: int
    cost: float = 0.0


class SetTitle(msgspec.Struct, frozen=True):
    """Name a session."""

    session_id: str
    title: str


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
)
