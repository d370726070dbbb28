"""Sans-IO: what is told of a turn to those who wait for it, and how that ends."""

import enum

import msgspec

from agent.events import AnswerEvent, TurnDone


class Told(msgspec.Struct, frozen=True):
    """A notice, in words."""

    id: str  # of the catalogue
    text: str


class Over(enum.StrEnum):
    """What became of what was asked."""

    ANSWERED = "answered"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"  # too many wait already
    NOT_BEGUN = "not begun"  # the process ends first


class End(msgspec.Struct, frozen=True):
    """The last of a feed; it is durable."""

    over: Over
    done: TurnDone | None = None  # what the agent said of it
    cause: str = ""


News = AnswerEvent | Told
