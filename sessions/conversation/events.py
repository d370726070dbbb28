"""Sans-IO: a conversation as its owner knows it, what happens to it, and what follows.

`ConversationState` and its parts, then the events that `sessions.conversation.machine` decides about, then the acts it asks
for.
"""

import enum

import msgspec

from sessions.changes import Change
from sessions.records import Message, SessionReason, TurnState
from sessions.values.notices import NoticeId


class BusyPolicy(enum.StrEnum):
    """What happens to a message that comes while a turn runs."""

    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT = "interrupt"
    COLLECT = "collect"


class PendingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message on its way to a turn."""

    id: str  # of its inbox row
    address: str
    person: str
    message: Message
    mode: BusyPolicy = BusyPolicy.QUEUE
    reply_to: str = ""  # the message that its answer should be a reply to; empty: none
    origin: str = ""  # made of what was received, for the ids of all that answers it
    prior_messages: tuple[
        Message, ...
    ] = ()  # what a session that it opens begins with; or `after`: more
    request_options: bytes = b""  # how it is to be answered; for whoever runs the turn
    single_turn: bool = False  # its session is for it alone, and ends with its turn
    continued_session: str = ""  # the session that it goes on in, also when that was closed


class RunningTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn under way; `leaving` once it was told to end and is not gone yet."""

    id: str
    session: str
    address: str
    person: str
    request: str
    started_at: int
    cancelling: bool = False
    reply_to: str = ""  # as in `PendingMessage`
    origin: str = (
        ""  # as in `PendingMessage`; of what began it: a message, or a command to run one again
    )
    request_options: bytes = b""  # as in `PendingMessage`
    single_turn: bool = False  # as in `PendingMessage`


class ResumableSession(msgspec.Struct, frozen=True):
    """The suspended session that `/resume` would bring back."""

    session: str
    reason: SessionReason
    request: str = ""  # what it was working on
    held: int = 0


class LastTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The newest exchange of a session, for `/retry` and `/undo`."""

    id: str
    session: str
    address: str
    inbox: tuple[str, ...]
    messages: tuple[Message, ...]
    person: str = ""
    reply_to: str = ""  # as in `PendingMessage`; of the last message
    request_options: bytes = b""  # likewise
    single_turn: bool = False  # likewise


class QueueNotice(msgspec.Struct, frozen=True):
    """The one line that says how much waits; it changes with the queue and goes with it."""

    id: str
    address: str


class ConversationState(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation as its owner knows it."""

    key: str
    session: str | None = None
    session_used_at: int = 0
    resumable: ResumableSession | None = None
    turn: RunningTurn | None = None
    waiting: tuple[PendingMessage, ...] = ()
    person: str = ""  # who asked last; may retry and undo
    draining: bool = False
    draining_announced: bool = False
    queue_notice: QueueNotice | None = None
    # The next message opens a conversation in place of an interrupted one, and must say so.
    replaced_reason: SessionReason | None = None
    # Nobody could be told of an interruption: the next message goes on in the same session.
    auto_resume: bool = False


# --- events ----------------------------------------------------------------------------------


class MessageArrived(msgspec.Struct, frozen=True):
    """A message is stored and waits for its turn; `expired` when the session is over age."""

    pending: PendingMessage
    expired: SessionReason | None = None


class MessageRedelivered(msgspec.Struct, frozen=True):
    """A message came again: if it waits in the store and nobody took it, it arrives now."""

    inbox: str
    source: str
    event: str


class TurnEnded(msgspec.Struct, frozen=True):
    """The turn's task is gone; `changes` is what it leaves behind."""

    turn: str
    state: TurnState
    cause: str | None = None
    changes: tuple[Change, ...] = ()


class TurnCrashed(msgspec.Struct, frozen=True, kw_only=True):
    """The journal shows a turn as running that nobody runs: the process died in it."""

    turn: RunningTurn
    changes: tuple[Change, ...]  # the partial answer and the results of its open calls
    fields: dict[str, str | int]  # of the notice
    resume: bool  # it is to be taken up again by itself
    stuck: bool = False  # it was taken up too often


class StartWaiting(msgspec.Struct, frozen=True):
    """After loading: start what waits."""


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and where the answer goes."""

    address: str
    person: str
    admin: bool = False
    inbox: str = ""  # the row that is done once the command is carried out
    origin: str = ""  # as in `PendingMessage`


class StopTurn(msgspec.Struct, frozen=True):
    """`/stop`, or the button below an answer that is being written."""

    context: CommandContext
    turn: str = ""  # a button's: it ends this one and no other
    quiet: bool = False  # where nothing runs, nobody is told so


class NewSession(msgspec.Struct, frozen=True):
    """`/new`."""

    context: CommandContext


class ResumeSession(msgspec.Struct, frozen=True, kw_only=True):
    """`/resume`, with the session it means, as the store shows it; None when there is none."""

    context: CommandContext
    session: str | None
    held: tuple[PendingMessage, ...] = ()
    resume_turn: bool = False  # also take up what was interrupted
    turn: str = ""  # a button's: holds only while this is still the session's last turn
    last: LastTurn | None = None
    title: str = ""


class RetryTurn(msgspec.Struct, frozen=True):
    """`/retry`; `held` belongs to the suspended session when it is the one to be retried."""

    context: CommandContext
    last: LastTurn | None
    held: tuple[PendingMessage, ...] = ()
    turn: str = ""  # a button's, as in `ResumeSession`


class UndoTurn(msgspec.Struct, frozen=True):
    """`/undo`."""

    context: CommandContext
    last: LastTurn | None


class MessageDeleted(msgspec.Struct, frozen=True):
    """A message was deleted by its sender."""

    inbox: str


class RequestAbandoned(msgspec.Struct, frozen=True):
    """Nobody waits for the answer to a message any more: it need not be given."""

    inbox: str
    origin: str  # as in `PendingMessage`


class MessageEdited(msgspec.Struct, frozen=True):
    """A message was edited by its sender."""

    inbox: str
    message: Message


class SteersRequested(msgspec.Struct, frozen=True):
    """The running turn can take in messages that were sent to steer it."""

    turn: str


class RequestTranscribed(msgspec.Struct, frozen=True):
    """The running turn found out what was asked for: it had come as speech."""

    turn: str
    request: str


class Drain(msgspec.Struct, frozen=True):
    """No new turn may begin."""


class InterruptTurn(msgspec.Struct, frozen=True):
    """The grace is over: the running turn ends now and the session is suspended.

    With `take_up` it is not suspended: the journal keeps the turn as running and the next start
    takes it up again.
    """

    reason: SessionReason
    fields: dict[str, str | int] = {}
    resume_after_restart: bool = False


class DeleteSession(msgspec.Struct, frozen=True):
    """A session is closed for good by its owner.

    `if_idle`: unless it is the one in use, or is about to be.
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
    | RequestAbandoned
    | MessageEdited
    | SteersRequested
    | RequestTranscribed
    | Drain
    | InterruptTurn
    | DeleteSession
)


# --- what follows ----------------------------------------------------------------------------


class StartTask(msgspec.Struct, frozen=True):
    """Run a turn; it was made durable just before."""

    turn: RunningTurn
    replaced_reason: SessionReason | None = (
        None  # tell the model that an earlier conversation is not in view
    )
    interrupted_request: str = ""
    resumed: bool = False  # tell the model that it was interrupted


class CancelTask(msgspec.Struct, frozen=True):
    """End a turn's task at once; what it has so far is kept under `cause`.

    With `take_up` the turn goes on after a restart: then only a checkpoint is kept.
    """

    turn: RunningTurn
    cause: str
    resume_after_restart: bool = False


class SendNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the people of a chat: an id of the notice catalogue and its fields."""

    notice: NoticeId
    address: str
    fields: dict[str, str | int] = {}
    urgent: bool = False
    item_id: str = ""  # what it is called, where a later one is to replace it
    turn: str | None = None
    origin: str = ""  # of what it answers, as in `PendingMessage`


class DeliverSteers(msgspec.Struct, frozen=True):
    """Hand messages to the running turn."""

    turn: str
    messages: tuple[Message, ...]
    reply_to: str = ""  # as in `PendingMessage`; of the last of them


Effect = StartTask | CancelTask | SendNotice | DeliverSteers
