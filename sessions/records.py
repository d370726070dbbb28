"""Frozen records of everything the store holds, independent of databases and platforms.

Inbound payloads and outbox bodies are opaque bytes here: the gateway writes them and reads them
back.
"""

import enum
from typing import TYPE_CHECKING, Literal

import msgspec

from sessions.values.address import Address


class SessionState(enum.StrEnum):
    """Life cycle of a session; the database enforces at most one `ACTIVE` per key."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    CLOSED = "closed"


class SessionReason(enum.StrEnum):
    """Reason why a session is suspended (first five) or closed (last five)."""

    STOP = "stop"
    RESTART = "restart"
    CRASH = "crash"
    STUCK = "stuck"
    SWITCHED = "switched"
    NEW = "new"
    IDLE = "idle"
    DAILY = "daily"
    DELETED = "deleted"
    ANSWERED = "answered"  # the session was for a single request


class InboxState(enum.StrEnum):
    """Life cycle of a received message, command or reaction."""

    WAITING = "waiting"  # to be answered; no turn has started
    COMMAND = "command"  # a command that has not run yet
    RUNNING = "running"  # the turn is running
    HELD = "held"  # kept unanswered with a suspended session
    DONE = "done"  # the turn ended, or the command ran
    REFUSED = "refused"  # the queue was full; the sender has been told
    IGNORED = "ignored"  # not addressed (no text is stored), or the sender has no access


class TurnState(enum.StrEnum):
    """Life cycle of a turn."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


class ItemState(enum.StrEnum):
    """Life cycle of an outbox item."""

    PENDING = "pending"
    ATTEMPTING = "attempting"
    SENT = "sent"
    UNKNOWN = "unknown"
    DEAD = "dead"


class ItemKind(enum.StrEnum):
    """The content that an outbox item shows."""

    ANSWER = "answer"
    NOTICE = "notice"
    ASK = "ask"  # a question with buttons
    UPLOAD = "upload"


class ApprovalState(enum.StrEnum):
    """Life cycle of a tool approval."""

    OPEN = "open"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    USED = "used"  # the allowed call has started


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call of the model; `arguments` is the exact text."""

    id: str
    name: str
    arguments: str
    extra: bytes | None = None  # opaque data that the provider wants back, such as signatures


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A file that came with a message.

    `path` is fixed when the message is received. The file is downloaded when its turn starts, and
    the result is written into the row: `fetched` or `trouble`, and the transcript (`heard`) of
    speech.
    """

    name: str  # name given by the sender; display only
    media_type: str  # claimed by the platform; the content may differ
    path: str  # inside the workspace
    ref: str = ""  # reference that the adapter needs for the download
    size: int | None = None  # bytes; None: unknown
    voice: bool = False  # a voice message
    fetched: bool = False
    trouble: str = ""  # reason why the file is missing, worded for the model
    heard: str = ""  # transcript


class MessageRole(enum.StrEnum):
    """Author of a row of the history."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"  # result of a tool call


if TYPE_CHECKING:
    MessageRoleOrName = MessageRole | Literal["user", "assistant", "tool"]
else:
    MessageRoleOrName = MessageRole  # the type that decoding creates
"""Type of a role that plug-ins may also write as a plain string; compare it with `==`."""


AWAITING_CLIENT = "awaiting client"
"""Mark (`Message.interrupted`) of a result row that stands for the result of a client's tool.

The start of a turn that brings the result replaces the row.
"""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a session's history."""

    role: MessageRoleOrName
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    interrupted: str | None = None  # why an assistant's text, or a tool's result, is incomplete
    sender: str | None = None  # author, in a session shared by several people
    files: tuple[Attachment, ...] = ()  # attachments of the message
    reasoning: bytes | None = None  # opaque; replayed to the provider that created it
    words: str | None = None  # the author's own words, if `content` also frames words of others


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of a conversation, with its own history."""

    id: str
    key: str
    address: Address
    state: SessionState
    reason: SessionReason | None
    title: str | None
    messages: int
    created_at: int
    updated_at: int


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A received message, command or reaction, stored before the arrival is acknowledged.

    A redelivery repeats `source` (platform, account and chat) and `event` (the platform's own id).
    `seq` increases over inbox and outbox together, so that both form one timeline.
    """

    id: str
    source: str
    event: str
    key: str
    address: Address
    state: InboxState
    payload: bytes | None
    received_at: int
    decision: str = ""  # decision of access and routing, shown by `holdfast why`
    seq: int = 0  # assigned by the store
    turn_id: str | None = None
    session_id: str | None = None
    settled_at: int | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The work from a user's message to the final answer."""

    id: str
    session_id: str
    key: str
    address: Address
    state: TurnState
    request: str  # first 1,000 characters of the request
    started_at: int
    finished_at: int | None = None
    attempts: int = 0
    cause: str | None = None
    partial: str = ""  # last checkpoint of the visible text
    resumed: int = 0  # number of times an interrupted turn was resumed
    person: str = ""  # requester


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
    """One tool execution: recorded as started before the effect and as finished afterwards."""

    turn_id: str
    call_id: str
    tool: str
    risk: str
    arguments: str
    started_at: int
    finished_at: int | None = None
    ok: bool | None = None
    result: str | None = None
    attempt: int = 0  # model request of the turn that made the call; 0: unknown


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A request for permission to run one call with exactly these arguments, and the answer."""

    id: str
    key: str
    session_id: str
    turn_id: str
    call_id: str
    tool: str
    arguments: str  # exact text
    person: str  # requester of the turn
    by_requester: bool  # True if the requester may answer, not only an admin
    address: Address
    asked_at: int
    expires_at: int
    state: ApprovalState
    answered_by: str = ""
    answered_at: int | None = None
    reason: str = ""


class UsageTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sum of the usage of several model requests."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # part of the input
    cost: float | None = None  # dollars, over requests with a known cost; None: no cost is known
    requests: int = 0
    unpriced: int = 0  # requests that used tokens at an unknown price


class BudgetUsage(msgspec.Struct, frozen=True):
    """Spending of one budget on one day."""

    tokens: int = 0  # counted against the limit: used and reserved
    cost: float = 0.0  # dollars
    held_tokens: int = 0  # reserved part, for requests whose usage is not known yet
    held_cost: float = 0.0

    @property
    def used_tokens(self) -> int:
        """Tokens that are known to be used."""
        return self.tokens - self.held_tokens

    @property
    def used_cost(self) -> float:
        """Dollars that are known to be spent."""
        return self.cost - self.held_cost


class StoreCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of records in the store, by state."""

    active: int  # sessions
    suspended: int
    closed: int
    waiting: int  # messages to be answered whose turn has not started
    held: int  # messages kept unanswered with a suspended session
    to_show: int  # outbox items that are not delivered yet


class OutboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """Content that a chat should show: an answer, a notice, a question or a file.

    `body` is the wanted content, `shown` the part already known to be shown; only gateway/delivery
    interprets them.
    """

    id: str
    address: Address
    kind: ItemKind
    state: ItemState
    body: bytes
    created_at: int
    shown: bytes = b""
    turn_id: str | None = None
    reply_to: str | None = None
    final: bool = True  # False while the turn is still writing the item
    tries: int = 0
    not_before: int = 0  # the platform's Retry-After, kept across a restart
    error: str | None = None
    seq: int = 0  # assigned by the store
    settled_at: int | None = None


class ConversationSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an actor needs to load a conversation."""

    active: Session | None = None
    suspended: Session | None = None  # the one suspended last
    newest: Session | None = None  # in any state
    waiting: tuple[InboxEntry, ...] = ()  # oldest first
    held: int = 0  # number of messages held with `suspended`
    last_turn: Turn | None = None  # of `active`, or else of `suspended`
    running: tuple[Turn, ...] = ()


class MessageTrace(msgspec.Struct, frozen=True):
    """An inbox entry with turn and outbox items."""

    entry: InboxEntry
    turn: Turn | None
    items: tuple[OutboxItem, ...]


class EntryContext(msgspec.Struct, frozen=True, kw_only=True):
    """Circumstances of an inbox entry that explain why the entry may still be waiting."""

    session: Session | None = None  # session of the turn, or the one that holds the entry
    attempt: Attempt | None = None
    """Newest attempt of the turn, or of the running turn of the conversation."""
    runs: tuple[ToolRun, ...] = ()  # unfinished tool runs of the same turn
    questions: tuple[Approval, ...] = ()  # open approvals of the same turn
    running: Turn | None = None  # turn running in the conversation
    ahead: int = 0  # waiting messages before this one
    turn_entries: tuple[InboxEntry, ...] = ()  # all messages of the same turn, in order
    corrections: tuple[InboxEntry, ...] = ()  # edits and deletions in the chat, newest first


class SweepResult(msgspec.Struct, frozen=True):
    """Number of deleted rows."""

    ignored: int
