"""Sans-IO: a conversation as its owner knows it, what happens to it, and what follows.

`State` and its parts, then the events that `sessions.conversation.machine` decides about, then the acts it asks
for.
"""

import enum

import msgspec

from sessions.changes import Change
from sessions.records import Message, Reason, TurnState


class Busy(enum.StrEnum):
    """What happens to a message that comes while a turn runs."""

    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT = "interrupt"
    COLLECT = "collect"


class Pending(msgspec.Struct, frozen=True):
    """A stored message on its way to a turn."""

    id: str  # of its inbox row
    address: str
    person: str
    message: Message
    mode: Busy = Busy.QUEUE
    reply_to: str = ""  # the message that its answer should be a reply to; empty: none
    origin: str = ""  # made of what was received, for the ids of all that answers it
    before: tuple[Message, ...] = ()  # what a session that it opens begins with; or `after`: more
    wishes: bytes = b""  # how it is to be answered; for whoever runs the turn
    once: bool = False  # its session is for it alone, and ends with its turn
    after: str = ""  # the session that it goes on in, also when that was closed


class RunningTurn(msgspec.Struct, frozen=True):
    """The turn under way; `leaving` once it was told to end and is not gone yet."""

    id: str
    session: str
    address: str
    person: str
    request: str
    started_at: int
    leaving: bool = False
    reply_to: str = ""  # as in `Pending`
    origin: str = ""  # as in `Pending`; of what began it: a message, or a command to run one again
    wishes: bytes = b""  # as in `Pending`
    once: bool = False  # as in `Pending`


class Earlier(msgspec.Struct, frozen=True):
    """The suspended session that `/resume` would bring back."""

    session: str
    reason: Reason
    request: str = ""  # what it was working on
    held: int = 0


class LastTurn(msgspec.Struct, frozen=True):
    """The newest exchange of a session, for `/retry` and `/undo`."""

    id: str
    session: str
    address: str
    inbox: tuple[str, ...]
    messages: tuple[Message, ...]
    person: str = ""
    reply_to: str = ""  # as in `Pending`; of the last message
    wishes: bytes = b""  # likewise
    once: bool = False  # likewise


class Line(msgspec.Struct, frozen=True):
    """The one line that says how much waits; it changes with the queue and goes with it."""

    id: str
    address: str


class State(msgspec.Struct, frozen=True):
    """One conversation as its owner knows it."""

    key: str
    session: str | None = None
    session_used_at: int = 0
    earlier: Earlier | None = None
    turn: RunningTurn | None = None
    waiting: tuple[Pending, ...] = ()
    person: str = ""  # who asked last; may retry and undo
    draining: bool = False
    told_draining: bool = False
    line: Line | None = None
    # The next message opens a conversation in place of an interrupted one, and must say so.
    fresh_after: Reason | None = None
    # Nobody could be told of an interruption: the next message goes on in the same session.
    goes_on: bool = False


# --- events ----------------------------------------------------------------------------------


class Arrived(msgspec.Struct, frozen=True):
    """A message is stored and waits for its turn; `expired` when the session is over age."""

    pending: Pending
    expired: Reason | None = None


class Missed(msgspec.Struct, frozen=True):
    """A message came again: if it waits in the store and nobody took it, it arrives now."""

    inbox: str
    source: str
    event: str


class Ended(msgspec.Struct, frozen=True):
    """The turn's task is gone; `changes` is what it leaves behind."""

    turn: str
    state: TurnState
    cause: str | None = None
    changes: tuple[Change, ...] = ()


class Wrecked(msgspec.Struct, frozen=True):
    """The journal shows a turn as running that nobody runs: the process died in it."""

    turn: RunningTurn
    changes: tuple[Change, ...]  # the partial answer and the results of its open calls
    fields: dict[str, str | int]  # of the notice
    take_up: bool  # it is to be taken up again by itself
    stuck: bool = False  # it was taken up too often


class Begin(msgspec.Struct, frozen=True):
    """After loading: start what waits."""


class Command(msgspec.Struct, frozen=True):
    """Who asks, and where the answer goes."""

    address: str
    person: str
    admin: bool = False
    inbox: str = ""  # the row that is done once the command is carried out
    origin: str = ""  # as in `Pending`


class Stop(msgspec.Struct, frozen=True):
    """`/stop`, or the button below an answer that is being written."""

    by: Command
    turn: str = ""  # a button's: it ends this one and no other
    quiet: bool = False  # where nothing runs, nobody is told so


class New(msgspec.Struct, frozen=True):
    """`/new`."""

    by: Command


class Resume(msgspec.Struct, frozen=True):
    """`/resume`, with the session it means, as the store shows it; None when there is none."""

    by: Command
    session: str | None
    held: tuple[Pending, ...] = ()
    go_on: bool = False  # also take up what was interrupted
    turn: str = ""  # a button's: holds only while this is still the session's last turn
    last: LastTurn | None = None
    title: str = ""


class Retry(msgspec.Struct, frozen=True):
    """`/retry`; `held` belongs to the suspended session when it is the one to be retried."""

    by: Command
    last: LastTurn | None
    held: tuple[Pending, ...] = ()
    turn: str = ""  # a button's, as in `Resume`


class Undo(msgspec.Struct, frozen=True):
    """`/undo`."""

    by: Command
    last: LastTurn | None


class Withdrawn(msgspec.Struct, frozen=True):
    """A message was deleted by its sender."""

    inbox: str


class Left(msgspec.Struct, frozen=True):
    """Nobody waits for the answer to a message any more: it need not be given."""

    inbox: str
    origin: str  # as in `Pending`


class Rewritten(msgspec.Struct, frozen=True):
    """A message was edited by its sender."""

    inbox: str
    message: Message


class SteersWanted(msgspec.Struct, frozen=True):
    """The running turn can take in messages that were sent to steer it."""

    turn: str


class Heard(msgspec.Struct, frozen=True):
    """The running turn found out what was asked for: it had come as speech."""

    turn: str
    request: str


class Drain(msgspec.Struct, frozen=True):
    """No new turn may begin."""


class Interrupt(msgspec.Struct, frozen=True):
    """The grace is over: the running turn ends now and the session is suspended.

    With `take_up` it is not suspended: the journal keeps the turn as running and the next start
    takes it up again.
    """

    reason: Reason
    fields: dict[str, str | int] = {}
    take_up: bool = False


class Delete(msgspec.Struct, frozen=True):
    """A session is closed for good by its owner.

    `if_idle`: unless it is the one in use, or is about to be.
    """

    by: Command
    session: str
    if_idle: bool = False


Event = (
    Arrived
    | Missed
    | Ended
    | Wrecked
    | Begin
    | Stop
    | New
    | Resume
    | Retry
    | Undo
    | Withdrawn
    | Left
    | Rewritten
    | SteersWanted
    | Heard
    | Drain
    | Interrupt
    | Delete
)


# --- what follows ----------------------------------------------------------------------------


class StartTask(msgspec.Struct, frozen=True):
    """Run a turn; it was made durable just before."""

    turn: RunningTurn
    fresh_after: Reason | None = None  # tell the model that an earlier conversation is not in view
    interrupted_request: str = ""
    taken_up: bool = False  # tell the model that it was interrupted


class CancelTask(msgspec.Struct, frozen=True):
    """End a turn's task at once; what it has so far is kept under `cause`.

    With `take_up` the turn goes on after a restart: then only a checkpoint is kept.
    """

    turn: RunningTurn
    cause: str
    take_up: bool = False


class Say(msgspec.Struct, frozen=True):
    """Tell the people of a chat: an id of the notice catalogue and its fields."""

    notice: str
    address: str
    fields: dict[str, str | int] = {}
    urgent: bool = False
    item: str = ""  # what it is called, where a later one is to replace it
    turn: str | None = None
    origin: str = ""  # of what it answers, as in `Pending`


class GiveSteers(msgspec.Struct, frozen=True):
    """Hand messages to the running turn."""

    turn: str
    messages: tuple[Message, ...]
    reply_to: str = ""  # as in `Pending`; of the last of them


Act = StartTask | CancelTask | Say | GiveSteers
