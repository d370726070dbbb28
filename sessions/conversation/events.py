"""Sans-IO: state, events and effects of a conversation.

`ConversationState` comes first, then the events that `sessions.conversation.machine` decides about,
then the effects.
"""

import enum

import msgspec

from sessions.changes import Change
from sessions.records import Message, SessionReason, TurnState
from sessions.values.address import Address
from sessions.values.notices import NoticeFields, NoticeId


class BusyPolicy(enum.StrEnum):
    """Handling of a message that arrives while a turn is running."""

    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT = "interrupt"
    COLLECT = "collect"


class PendingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message waiting for a turn."""

    id: str  # of the inbox row
    address: Address
    person: str
    message: Message
    mode: BusyPolicy = BusyPolicy.QUEUE
    reply_to: str = ""  # platform id of the message to reply to; empty: none
    direct: bool = False  # in a private chat, where a prompt answer is not shown as a reply
    origin: str = ""  # derived from the received event; ids of answers are made from it
    prior_messages: tuple[Message, ...] = ()
    """Messages that start the history of a new session, or extend that of `continued_session`."""
    request_options: bytes = b""  # how to answer; opaque here, read by the turn
    single_turn: bool = False  # the session is for this message only and ends with the turn
    continued_session: str = ""  # session to continue, even if it was closed
    continued_turn: str = ""
    """Turn of `continued_session` that ended with calls of the client, whose results these are."""


class RunningTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The running turn; `cancelling` from the cancellation until the task has ended.

    All its messages come from `person`, whose workspace, budget and rights it uses.
    """

    id: str
    session: str
    address: Address
    person: str
    request: str
    started_at: int
    cancelling: bool = False
    reply_to: str = ""  # as in `PendingMessage`
    origin: str = ""
    """As in `PendingMessage`, of the message or command that started the turn."""
    request_options: bytes = b""  # as in `PendingMessage`
    single_turn: bool = False  # as in `PendingMessage`


class ResumableSession(msgspec.Struct, frozen=True):
    """The suspended session that `/resume` would reactivate."""

    session: str
    reason: SessionReason
    request: str = ""  # of the last turn
    held: int = 0
    person: str = ""  # requester of the last turn


class LastTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The newest exchange of a session, for `/retry` and `/undo`."""

    id: str
    session: str
    address: Address
    inbox: tuple[str, ...]
    messages: tuple[Message, ...]
    person: str = ""  # author of the messages; the turn runs again with this person's authority
    repeatable: bool = True
    """False if the author has no access any more, or if it contains messages of several people."""
    reply_to: str = ""  # as in `PendingMessage`, of the last message
    request_options: bytes = b""  # as in `PendingMessage`
    single_turn: bool = False  # as in `PendingMessage`


class QueueNotice(msgspec.Struct, frozen=True):
    """The notice that shows the queue; edited as the queue changes, removed with the last message."""

    id: str
    address: Address


class ConversationState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one conversation, held by the actor."""

    key: str
    session: str | None = None
    session_used_at: int = 0
    resumable: ResumableSession | None = None
    turn: RunningTurn | None = None
    waiting: tuple[PendingMessage, ...] = ()
    person: str = ""  # last requester; may retry and undo
    draining: bool = False
    draining_announced: bool = False
    queue_notice: QueueNotice | None = None
    replaced_reason: SessionReason | None = None
    """Reason of the interrupted session that the next message replaces; the notice must say so."""
    auto_resume: bool = False
    """The interruption could not be announced, so the next message continues the same session."""


# --- events ----------------------------------------------------------------------------------


class MessageArrived(msgspec.Struct, frozen=True):
    """A stored message waits for a turn; `expired` is set if the session is too old."""

    pending: PendingMessage
    expired: SessionReason | None = None


class MessageRedelivered(msgspec.Struct, frozen=True):
    """A message was redelivered; a stored row that still waits without an owner arrives now."""

    inbox: str
    source: str
    event: str


class TurnEnded(msgspec.Struct, frozen=True):
    """The turn's task has ended; `changes` are committed with the end."""

    turn: str
    state: TurnState
    cause: str | None = None
    changes: tuple[Change, ...] = ()


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """The work that an interrupted turn was doing, for the notice about the interruption."""

    request: str
    minutes: int  # since the start of the turn
    tool: str = ""  # running tool that may have taken effect
    preview: str = ""  # start of the tool's arguments


class TurnCrashed(msgspec.Struct, frozen=True, kw_only=True):
    """The journal shows a running turn without a task, because the process died during it."""

    turn: RunningTurn
    changes: tuple[Change, ...]  # partial answer, and results of unfinished calls
    interruption: Interruption
    resume: bool  # resume the turn automatically
    stuck: bool = False  # resumed too often
    finished_cause: str = ""
    """Cause with which the turn counts as done, because its answer had been stored completely."""


class StartWaiting(msgspec.Struct, frozen=True):
    """Start the next waiting message, after loading."""


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """Requester of a command, and where to answer."""

    address: Address
    person: str
    admin: bool = False
    inbox: str = ""  # row to mark as done with the command
    origin: str = ""  # as in `PendingMessage`


class StopTurn(msgspec.Struct, frozen=True):
    """`/stop`, or the button below an answer that is being written."""

    context: CommandContext
    turn: str = ""  # from a button: stop only this turn
    quiet: bool = False  # send no notice if nothing is running


class NewSession(msgspec.Struct, frozen=True):
    """`/new`."""

    context: CommandContext


class ResumeSession(msgspec.Struct, frozen=True, kw_only=True):
    """`/resume` of a session, as found in the store; None if there is none to resume."""

    context: CommandContext
    session: str | None
    held: tuple[PendingMessage, ...] = ()
    resume_turn: bool = False  # also continue the interrupted turn
    turn: str = ""  # from a button: valid only while this is the session's last turn
    last: LastTurn | None = None
    title: str = ""


class RetryTurn(msgspec.Struct, frozen=True):
    """`/retry`; `held` are the messages of a suspended session that is reactivated."""

    context: CommandContext
    last: LastTurn | None
    held: tuple[PendingMessage, ...] = ()
    turn: str = ""  # from a button, as in `ResumeSession`


class UndoTurn(msgspec.Struct, frozen=True):
    """`/undo`."""

    context: CommandContext
    last: LastTurn | None


class MessageDeleted(msgspec.Struct, frozen=True):
    """The sender deleted a message."""

    inbox: str


class AccessLost(msgspec.Struct, frozen=True):
    """People have no access any more; `held` are their messages of suspended sessions."""

    people: frozenset[str]
    held: tuple[PendingMessage, ...] = ()


class RequestAbandoned(msgspec.Struct, frozen=True):
    """The client of a request has left; the answer is not needed any more."""

    inbox: str
    origin: str  # as in `PendingMessage`


class MessageEdited(msgspec.Struct, frozen=True):
    """The sender edited a message."""

    inbox: str
    message: Message


class SteersRequested(msgspec.Struct, frozen=True):
    """The running turn can now take messages that its requester sent to steer it."""

    turn: str


class RequestTranscribed(msgspec.Struct, frozen=True):
    """The running turn has transcribed a spoken request."""

    turn: str
    request: str


class Drain(msgspec.Struct, frozen=True):
    """Start no new turn from now on."""


class InterruptTurn(msgspec.Struct, frozen=True):
    """Interrupt the running turn at the end of the grace period and suspend the session.

    With `resume_after_restart` the session stays active: the journal keeps the turn as running, and
    the next start resumes it.
    """

    reason: SessionReason
    interruption: Interruption
    resume_after_restart: bool = False


class DeleteSession(msgspec.Struct, frozen=True):
    """Close a session permanently, on behalf of the owner.

    With `if_idle`, only if the session is neither active nor about to be continued.
    """

    context: CommandContext
    session: str
    if_idle: bool = False


Event = (
    MessageArrived
    | MessageRedelivered
    | TurnEnded
    | TurnCrashed
    | StartWaiting
    | StopTurn
    | NewSession
    | ResumeSession
    | RetryTurn
    | UndoTurn
    | MessageDeleted
    | AccessLost
    | RequestAbandoned
    | MessageEdited
    | SteersRequested
    | RequestTranscribed
    | Drain
    | InterruptTurn
    | DeleteSession
)


# --- effects ---------------------------------------------------------------------------------


class StartTask(msgspec.Struct, frozen=True, kw_only=True):
    """Run a turn whose start was just committed."""

    turn: RunningTurn
    replaced_reason: SessionReason | None = None
    """Tell the model why the earlier conversation is not in view."""
    interrupted_request: str = ""
    resumed: bool = False  # tell the model that the turn was interrupted
    continued: bool = False  # the turn had ended with calls of its client, whose results are here
    opening_rows: tuple[Message, ...] = ()
    """All rows of a session that the start has opened; empty if the session has earlier rows."""


class CancelTask(msgspec.Struct, frozen=True):
    """Cancel a turn's task at once and keep the partial results under `cause`.

    With `resume_after_restart` the turn continues after a restart, so only a checkpoint is kept.
    """

    turn: RunningTurn
    cause: str
    resume_after_restart: bool = False


class SendNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Send a notice to a chat: an id of the notice catalogue, with fields."""

    notice: NoticeId
    address: Address
    fields: NoticeFields = {}
    urgent: bool = False
    item_id: str = ""  # id of the outbox item, if a later notice may replace this one
    turn: str | None = None
    origin: str = ""  # of the answered message, as in `PendingMessage`


class DeliverSteers(msgspec.Struct, frozen=True):
    """Hand messages to the running turn."""

    turn: str
    messages: tuple[Message, ...]
    reply_to: str = ""  # as in `PendingMessage`, of the last message


Effect = StartTask | CancelTask | SendNotice | DeliverSteers
