"""What the store holds, as frozen records. They know nothing of databases or platforms.

Addresses, inbound payloads and outbox bodies are opaque text and bytes here: the gateway writes
them and reads them back.
"""

import enum

import msgspec


class SessionState(enum.StrEnum):
    """Life of a session; at most one `ACTIVE` per key, enforced by the database."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    CLOSED = "closed"


class SessionReason(enum.StrEnum):
    """Why a session is suspended (first five) or closed (last five)."""

    STOP = "stop"
    RESTART = "restart"
    CRASH = "crash"
    STUCK = "stuck"
    SWITCHED = "switched"
    NEW = "new"
    IDLE = "idle"
    DAILY = "daily"
    DELETED = "deleted"
    ANSWERED = "answered"  # it was for one request


class InboxState(enum.StrEnum):
    """Life of something that was received."""

    WAITING = "waiting"  # to be answered, no turn has begun
    COMMAND = "command"  # to be carried out
    RUNNING = "running"  # its turn is under way
    HELD = "held"  # kept with a suspended session, unanswered
    DONE = "done"  # its turn ended, or the command was carried out
    REFUSED = "refused"  # the queue was full, the sender was told
    IGNORED = "ignored"  # not allowed or not addressed: no text is kept


class TurnState(enum.StrEnum):
    """Life of a turn."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


class ItemState(enum.StrEnum):
    """Life of something to be shown in a chat."""

    PENDING = "pending"
    ATTEMPTING = "attempting"
    SENT = "sent"
    UNKNOWN = "unknown"
    DEAD = "dead"


class ApprovalState(enum.StrEnum):
    """Life of a question whether a tool may run."""

    OPEN = "open"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    USED = "used"  # the call that was allowed has begun


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call as the model made it; `arguments` is its exact text."""

    id: str
    name: str
    arguments: str
    extra: bytes | None = None  # opaque parts a provider wants back, such as signatures


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A file that came with a message.

    Where it is put is settled when the message is taken in; it is fetched when its turn begins, and
    what came of that is written into the row: `fetched`, or `trouble`, and `heard` for speech.
    """

    name: str  # as its sender called it; only words
    media_type: str  # as the platform says; what the file holds may differ
    path: str  # in the workspace
    ref: str = ""  # what the adapter needs to fetch it
    size: int | None = None  # bytes; None: not known
    voice: bool = False  # recorded to be listened to in place of words
    fetched: bool = False
    trouble: str = ""  # why it is not there, in words for the model
    heard: str = ""  # what is said in it


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a session's history."""

    role: str  # "user", "assistant" or "tool"
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    interrupted: str | None = None  # why an assistant's text is not whole
    sender: str | None = None  # who said it, in a session shared by several people
    files: tuple[Attachment, ...] = ()  # that came with it
    reasoning: bytes | None = None  # opaque, for replay to the provider that made it


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of a conversation with its own history."""

    id: str
    key: str
    address: str
    state: SessionState
    reason: SessionReason | None
    title: str | None
    messages: int
    created_at: int
    updated_at: int


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something received, as stored before the platform is told that it arrived.

    `source` and `event` together are what a redelivery repeats: (platform, account, chat) and the
    platform's own id. `seq` grows over inbox and outbox together, so both make one timeline.
    """

    id: str
    source: str
    event: str
    key: str
    address: str
    state: InboxState
    payload: bytes | None
    received_at: int
    decision: str = ""  # how access and routing decided, for `holdfast why`
    seq: int = 0  # given by the store
    turn_id: str | None = None
    session_id: str | None = None
    settled_at: int | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """From a user's message to the final answer."""

    id: str
    session_id: str
    key: str
    address: str
    state: TurnState
    request: str  # the first 1,000 characters of what was asked
    started_at: int
    finished_at: int | None = None
    attempts: int = 0
    cause: str | None = None
    partial: str = ""  # last checkpoint of the visible text
    resumed: int = 0  # how often an interrupted turn was taken up again
    person: str = ""  # who asked


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model."""

    turn_id: str
    number: int
    target: str
    started_at: int
    finished_at: int | None = None
    verdict: str | None = None
    cause: str = ""


class ToolRun(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's effect: recorded as started before it, as finished after it."""

    turn_id: str
    call_id: str
    tool: str
    risk: str
    arguments: str
    started_at: int
    finished_at: int | None = None
    ok: bool | None = None
    result: str | None = None
    attempt: int = 0  # the request of the turn that brought the call; 0: not known


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A question whether one call may run with exactly these arguments, and its answer."""

    id: str
    key: str
    session_id: str
    turn_id: str
    call_id: str
    tool: str
    arguments: str  # exact text
    person: str  # who asked for the turn
    by_requester: bool  # that person may answer, not only an admin
    address: str
    asked_at: int
    expires_at: int
    state: ApprovalState
    answered_by: str = ""
    answered_at: int | None = None
    reason: str = ""


class UsageTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What requests to models used, together."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # of the input
    cost: float | None = None  # dollars, of the requests whose cost is known; None: of none
    requests: int = 0
    unpriced: int = 0  # requests that used tokens at a price that nobody knows


class BudgetUsage(msgspec.Struct, frozen=True):
    """What was spent on a day, of one thing that has a limit."""

    tokens: int = 0  # what counts: used, and held back
    cost: float = 0.0  # dollars
    held_tokens: int = 0  # of these: for requests of which it is not known yet what they use
    held_cost: float = 0.0

    @property
    def used_tokens(self) -> int:
        """What is known to be used."""
        return self.tokens - self.held_tokens

    @property
    def used_cost(self) -> float:
        """The same in dollars."""
        return self.cost - self.held_cost


class StoreCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is of what."""

    active: int  # sessions
    suspended: int
    closed: int
    waiting: int  # messages to be answered whose turn has not begun
    held: int  # messages kept unanswered with a suspended session
    to_show: int  # things that are not delivered yet


class OutboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something a chat should show: an answer, a notice, a question, a file.

    `body` is what it should show, `shown` what is known to be shown already; both belong to
    gateway/delivery.
    """

    id: str
    address: str
    kind: str  # "answer", "notice", "ask", "upload"
    state: ItemState
    body: bytes
    created_at: int
    shown: bytes = b""
    turn_id: str | None = None
    reply_to: str | None = None
    final: bool = True  # False while the turn still writes it
    tries: int = 0
    not_before: int = 0  # a platform's Retry-After, kept over a restart
    error: str | None = None
    seq: int = 0  # given by the store
    settled_at: int | None = None


class ConversationSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What its owner must know to go on with a conversation."""

    active: Session | None = None
    suspended: Session | None = None  # the last of them
    newest: Session | None = None  # whatever its state
    waiting: tuple[InboxEntry, ...] = ()  # oldest first
    held: int = 0  # how many wait in `suspended`
    last_turn: Turn | None = None  # of `active`, or else of `suspended`
    running: tuple[Turn, ...] = ()


class MessageTrace(msgspec.Struct, frozen=True):
    """Something received, and all that came of it."""

    entry: InboxEntry
    turn: Turn | None
    items: tuple[OutboxItem, ...]


class EntryContext(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around something received, and may be what it waits for."""

    session: Session | None = None  # of its turn, or that keeps it
    attempt: Attempt | None = (
        None  # the last of its turn, or of the one before it in its conversation
    )
    runs: tuple[ToolRun, ...] = ()  # of the same turn: the calls that are not over
    questions: tuple[Approval, ...] = ()  # of the same: open ones
    running: Turn | None = None  # the turn under way in its conversation
    ahead: int = 0  # messages that wait there before it
    together: int = 1  # messages that its turn answers
    corrections: tuple[InboxEntry, ...] = ()  # edits and deletions in its chat, the newest first


class SweepResult(msgspec.Struct, frozen=True):
    """How much was forgotten."""

    ignored: int
