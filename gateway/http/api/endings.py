"""Sans-IO: the outcome of a turn in terms of OpenAI's API: finish reason, refusal or failure."""

import math
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from agent.events import FailureKind, TurnDone, VerdictName
from agent.model.usage import Usage
from gateway.access.policy import Role
from gateway.http.api.failures import (
    INSUFFICIENT_QUOTA,
    INVALID_REQUEST_ERROR,
    RATE_LIMIT_ERROR,
    SERVER_ERROR,
    HttpFailure,
    over_budget,
)
from gateway.turns.feed_events import FeedEnd, FeedOutcome
from sessions.records import ToolCall
from sessions.values.notices import NoticeId

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]

_DECLINED_NOTICE, _THOUGHT_TOO_LONG_NOTICE = NoticeId.DECLINED, NoticeId.REASONING_USED_UP
# Libraries that shorten a conversation search the message for one of the two clauses.
_TOO_LONG = (
    "the conversation exceeds the context window of the model. "
    "Input tokens exceed the configured limit"
)
_ADMIN = Role.ADMIN.name.lower()
_HIDDEN_CAUSE = "the model cannot be used right now"
_DEFAULT_WAIT_SECONDS = 10  # after a rate limit of a service that names no time
QUEUE_FULL = HttpFailure(
    status=429,
    message="Too many requests are queued in this session. Please try again later.",
    type=RATE_LIMIT_ERROR,
    code="queue_full",
    retry_after=5,
    retryable=True,
)
STOPPED = HttpFailure(
    status=409,
    message="The answer was stopped before it was complete.",
    type="stopped",
    code="stopped",
)
INTERRUPTED = HttpFailure(
    status=503,
    message="The gateway was restarted before the answer was complete. The partial answer is kept: "
    "in a session, the next request continues from there.",
    type=SERVER_ERROR,
    code="interrupted",
    retry_after=2,
)
NOT_STARTED = HttpFailure(
    status=503,
    message="The gateway is restarting and did not begin this request. Please try again in a moment.",
    type=SERVER_ERROR,
    code="restarting",
    retry_after=2,
    retryable=True,
)


class AnswerOutcome(msgspec.Struct, frozen=True):
    """The end of an answer."""

    finish_reason: FinishReason
    failure: HttpFailure | None = None  # only with finish reason "error"
    refusal: str = ""  # text with which the model declined
    usage: Usage = Usage()
    client_calls: tuple[ToolCall, ...] = ()  # calls that the client has to run
    reasoning: str = ""  # of a whole answer, if the client gets reasoning

    def refusal_beside(self, text: str) -> str:
        """Return the refusal, or nothing if the text of the answer already contains it."""
        return "" if self.refusal.strip() in text else self.refusal


def outcome_of(end: FeedEnd, role: str) -> AnswerOutcome:
    """Return the outcome for the end of a turn, with the causes that a person of this role may read.

    `role` is the decision of the inbox row.
    """
    usage = _shown_usage(end.done) if end.done else Usage()
    match end.outcome:
        case FeedOutcome.ANSWERED:
            if end.done and end.done.client_calls:
                calls = end.done.client_calls
                return AnswerOutcome("tool_calls", usage=usage, client_calls=calls)
            capped = end.done is not None and end.done.last_verdict is VerdictName.CAPPED
            return AnswerOutcome("length" if capped else "stop", usage=usage)
        case FeedOutcome.FAILED:
            hides_cause = role != _ADMIN and _names_settings(end.done)
            return _failed_outcome(end.done, _HIDDEN_CAUSE if hides_cause else end.cause, usage)
        case FeedOutcome.STOPPED:
            return AnswerOutcome("error", STOPPED, usage=usage)
        case FeedOutcome.INTERRUPTED:
            return AnswerOutcome("error", INTERRUPTED, usage=usage)
        case FeedOutcome.REFUSED:
            return AnswerOutcome("error", QUEUE_FULL)
        case FeedOutcome.NOT_STARTED:
            return AnswerOutcome("error", NOT_STARTED)


def _names_settings(done: TurnDone | None) -> bool:
    """Return True if the cause of a failed turn may name settings, which only help an admin."""
    if done is None or done.tell_operator:
        return True
    is_stored = done.failure is None and done.last_verdict is None  # the store keeps only the cause
    return is_stored and done.notice is NoticeId.TURN_FAILED and not done.over_budget


def _shown_usage(done: TurnDone) -> Usage:
    """Return the usage of a turn; tokens that the service did not report are estimated."""
    return done.usage + done.estimated_usage


def redact_outcome(outcome: AnswerOutcome, redact: Callable[[str], str]) -> AnswerOutcome:
    """Mask secrets: the error text of a model service may contain a key."""
    failure = outcome.failure
    if failure:
        failure = replace(failure, message=redact(failure.message))
    calls = tuple(replace(call, arguments=redact(call.arguments)) for call in outcome.client_calls)
    return replace(outcome, failure=failure, refusal=redact(outcome.refusal), client_calls=calls)


def _failed_outcome(done: TurnDone | None, cause: str, usage: Usage) -> AnswerOutcome:
    if done is None:
        return AnswerOutcome("error", turn_failed(cause, 500), usage=usage)
    if done.over_budget:
        return AnswerOutcome("error", over_budget(cause, done.budget_free_in_seconds), usage=usage)
    if done.notice == _DECLINED_NOTICE or done.last_verdict is VerdictName.REFUSED:
        return AnswerOutcome("content_filter", refusal=cause, usage=usage)
    if done.notice == _THOUGHT_TOO_LONG_NOTICE or done.last_verdict is VerdictName.CAPPED:
        return AnswerOutcome("length", usage=usage)
    return AnswerOutcome("error", _model_failure(done, cause), usage=usage)


def _model_failure(done: TurnDone, cause: str) -> HttpFailure:
    """Return the failure in the class of the model service's error."""
    nothing_ran = not (done.started_tools or done.text.strip())
    match done.failure:
        case FailureKind.RATE_LIMITED:
            wait = done.retry_after_seconds
            return replace(
                turn_failed(cause, 429),
                type=RATE_LIMIT_ERROR,
                code="rate_limit_exceeded",
                retry_after=_DEFAULT_WAIT_SECONDS if wait is None else max(1, math.ceil(wait)),
                retryable=nothing_ran,
            )
        case FailureKind.CONTEXT_TOO_LONG:
            return _invalid(_TOO_LONG, "context_length_exceeded")
        case FailureKind.OUT_OF_CREDIT:
            return replace(
                turn_failed(cause, 429), type=INSUFFICIENT_QUOTA, code=INSUFFICIENT_QUOTA
            )
        case FailureKind.REQUEST_REFUSED:
            return _invalid(cause, "turn_failed")
        case FailureKind.UNREACHABLE:
            return replace(
                turn_failed(cause, 503), retryable=nothing_ran, retry_advised=nothing_ran
            )
        case FailureKind.OTHER | None:
            return turn_failed(cause, 503 if done.tell_operator else 502)


def _invalid(cause: str, code: str) -> HttpFailure:
    return replace(turn_failed(cause, 400), type=INVALID_REQUEST_ERROR, code=code)


def turn_failed(cause: str, status: int) -> HttpFailure:
    """Return the failure for an error of the model or of the connection to the model."""
    why = cause.rstrip(". ") or "the log says why"
    message = f"The answer could not be finished: {why}."
    return HttpFailure(status=status, message=message, type=SERVER_ERROR, code="turn_failed")
