"""Sans-IO: what is told of a turn to those who wait for it, and how that ends."""

import enum
from collections.abc import Iterable, Iterator

import msgspec

from agent.events import AnswerEvent, TextDelta, TurnDone


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


def joined(news: Iterable[News | End]) -> Iterator[News | End]:
    """Put pieces of text together that came one right after the other.

    Whoever is behind tells them as one, which costs little more than one.
    """
    texts: list[str] = []
    for each in news:
        if isinstance(each, TextDelta):
            texts.append(each.text)
            continue
        if texts:
            yield TextDelta("".join(texts))
            texts = []
        yield each
    if texts:
        yield TextDelta("".join(texts))
