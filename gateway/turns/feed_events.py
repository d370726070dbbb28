"""Sans-IO: events that readers of a feed receive."""

import enum
from collections.abc import Iterable, Iterator

import msgspec

from agent.events import AnswerEvent, TextDelta, TurnDone


class FeedNotice(msgspec.Struct, frozen=True):
    """Rendered notice."""

    id: str  # its key in the catalogue
    text: str


class FeedOutcome(enum.StrEnum):
    """The end of a request, for its client."""

    ANSWERED = "answered"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"  # the queue is full
    NOT_STARTED = "not begun"  # the process stopped before the turn started


class FeedEnd(msgspec.Struct, frozen=True):
    """Last event of a feed; published after the end of the turn is committed."""

    outcome: FeedOutcome
    done: TurnDone | None = None  # the agent's result, if the agent finished
    cause: str = ""
    at: int = 0  # as stored with the end, in milliseconds; 0 if it is not stored


FeedEvent = AnswerEvent | FeedNotice


def join_text(events: Iterable[FeedEvent | FeedEnd]) -> Iterator[FeedEvent | FeedEnd]:
    """Merge consecutive text deltas, so that a reader that is behind catches up with few writes."""
    texts: list[str] = []
    for event in events:
        if isinstance(event, TextDelta):
            texts.append(event.text)
            continue
        if texts:
            yield TextDelta("".join(texts))
            texts = []
        yield event
    if texts:
        yield TextDelta("".join(texts))
