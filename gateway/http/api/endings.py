"""Sans-IO: how a turn ended, in the words of OpenAI's API."""

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from agent.events import TurnDone
from agent.model.usage import Usage
from gateway.http.api.failures import BROKEN, TOO_MANY, Failure, over_budget
from gateway.turns.news import End, Over

FinishReason = Literal["stop", "length", "content_filter", "error"]

_DECLINED, _THOUGHT_TOO_LONG = "N9", "N8"
QUEUE_FULL = Failure(
    status=429,
    message="Too many requests wait in this session already. Please send this one again later.",
    type=TOO_MANY,
    code="queue_full",
    retry_after=5,
    again=True,
)
STOPPED = Failure(
    status=409,
    message="This was stopped before the answer was whole.",
    type="stopped",
    code="stopped",
)
INTERRUPTED = Failure(
    status=503,
    message="The gateway was restarted before the answer was whole. What was begun is kept: in a "
    "session, the next request goes on from there.",
    type=BROKEN,
    code="interrupted",
    retry_after=2,
)
NOT_BEGUN = Failure(
    status=503,
    message="The gateway is restarting; this was not begun. Please send it again in a moment.",
    type=BROKEN,
    code="restarting",
    retry_after=2,
    again=True,
)


class Outcome(msgspec.Struct, frozen=True):
    """The end of an answer."""

    finish: FinishReason
    failure: Failure | None = None  # with `error` alone
    declined: str = ""  # in whose words the model declined
    usage: Usage = Usage()


def outcome_of(end: End) -> Outcome:
    """Say honestly how it ended."""
    usage = end.done.usage if end.done else Usage()
    match end.over:
        case Over.ANSWERED:
            capped = end.done is not None and end.done.last == "capped"
            return Outcome("length" if capped else "stop", usage=usage)
        case Over.FAILED:
            return _failed(end.done, end.cause, usage)
        case Over.STOPPED:
            return Outcome("error", STOPPED, usage=usage)
        case Over.INTERRUPTED:
            return Outcome("error", INTERRUPTED, usage=usage)
        case Over.REFUSED:
            return Outcome("error", QUEUE_FULL)
        case Over.NOT_BEGUN:
            return Outcome("error", NOT_BEGUN)


def cleaned(outcome: Outcome, clean: Callable[[str], str]) -> Outcome:
    """Hide secrets: what a service says of an error may hold a key."""
    failure = outcome.failure
    if failure:
        failure = replace(failure, message=clean(failure.message))
    return replace(outcome, failure=failure, declined=clean(outcome.declined))


def _failed(done: TurnDone | None, cause: str, usage: Usage) -> Outcome:
    if done is None:
        return Outcome("error", turn_failed(cause, 500), usage=usage)
    if done.over_budget:
        return Outcome("error", over_budget(cause, done.free_in), usage=usage)
    if done.notice == _DECLINED or done.last == "refused":
        return Outcome("content_filter", declined=cause, usage=usage)
    if done.notice == _THOUGHT_TOO_LONG or done.last == "capped":
        return Outcome("length", usage=usage)
    status = 503 if done.tell_operator else 502
    return Outcome("error", turn_failed(cause, status), usage=usage)


def turn_failed(cause: str, status: int) -> Failure:
    """Say that the model, or the way to it, failed."""
    why = cause.rstrip(". ") or "the log says why"
    message = f"The answer could not be finished: {why}."
    return Failure(status=status, message=message, type=BROKEN, code="turn_failed")
