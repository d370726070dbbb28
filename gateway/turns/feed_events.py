"""Sans-IO: what the readers of a turn receive, and how it ends."""

import enum
from collections.abc import Iterable, Iterator

import msgspec

from agent.events import AnswerEvent, TextDelta, TurnDone


class FeedNotice(msgspec.Struct, frozen=True):
    """A notice, in words."""

    id: str  # of the catalogue
    text: str


class FeedOutcome(enum.StrEnum):
    """What became of what was asked."""

    ANSWERED = "answered"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"  # too many wait already
    NOT_STARTED = "not begun"  # the process ends first


class FeedEnd(msgspec.Struct, frozen=True):
    """The last of a feed; it is durable."""

    outcome: FeedOutcome
    done: TurnDone | None = None  # what the agent said of it
    cause: str = ""


FeedEvent = AnswerEvent | FeedNotice


def join_text(events: Iterable[FeedEvent | FeedEnd]) -> Iterator[FeedEvent | FeedEnd]:
    """Put pieces of text together that came one right after the other.

    Whoever is behind tells them as one, which costs little more than one.
    """
    texts: list[str] = []
    for each in events:
        if isinstance(each, TextDelta):
            texts.append(each.text)
            continue
        if texts:
            yield TextDelta("".join(texts))
            texts = []
        yield each
    if texts:
        yield TextDelta("".join(texts))
