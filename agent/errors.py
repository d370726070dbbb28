"""Errors of the agent, by the caller's reaction.

ProviderError          the model service failed to answer
├── RateLimited        wait `retry_after`, or switch to the next target
├── Overloaded         wait briefly, then switch to the next target
├── Stalled            a watchdog timeout: the connection was dead or silent
├── ConnectionLost     the connection broke in the middle of an answer
│   └── EndedEarly     the service ended its response there
├── Looping            the model repeated itself endlessly
├── ContextTooLong     shorten the conversation, then retry
├── OutputTooLong      lower the output limit, then retry
├── BadRequest         the same request would fail again
│   └── CannotStream   request the answer without streaming
├── Declined           the service's filter refused to answer
├── ApiKeyRejected     the administrator must fix the API key
└── OutOfCredit        the administrator must top up the account
BudgetExceeded         a spending limit leaves no room for the request, which was not sent
ToolError              text for the model, as the call's result
├── ToolTimeout        took too long; the effect is unknown
└── ToolUnknownOutcome started but never finished; it may have taken effect
"""

from agent.events import FailureKind
from sessions.values.exceptions import docstring_summary
from sessions.values.notices import FailureNotice, NoticeId


class ProviderError(Exception):
    """The model service failed to answer."""

    def __str__(self) -> str:
        return super().__str__() or docstring_summary(self)


class RateLimited(ProviderError):
    """The model service limits the rate of requests."""

    def __init__(
        self, message: str = "", retry_after: float | None = None, *, behind: bool = False
    ) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after
        self.behind = behind  # True if an upstream provider of an aggregator set the limit


class Overloaded(ProviderError):
    """The model service is overloaded or down."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after


class Stalled(ProviderError):
    """The model service stopped sending."""


class ConnectionLost(ProviderError):
    """The connection to the model service broke."""


class EndedEarly(ConnectionLost):
    """The model service ended its response in the middle."""


class Looping(ProviderError):
    """The model repeats itself endlessly."""

    def __init__(self, message: str = "", *, thinking: bool = False) -> None:
        super().__init__(*([message] if message else []))
        self.thinking = thinking  # True if the repetition is in the reasoning


class ContextTooLong(ProviderError):
    """The conversation is longer than the model's context window."""

    def __init__(self, message: str = "", limit: int | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.limit = limit  # context window in tokens, if the message contains it


class OutputTooLong(ProviderError):
    """The output limit is higher than the model supports."""

    def __init__(self, message: str = "", limit: int | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.limit = limit  # highest output limit in tokens, if the message contains it


class BadRequest(ProviderError):
    """The model service refused the request."""


class CannotStream(BadRequest):
    """The model service cannot stream its answers."""


class Declined(ProviderError):
    """The model service declined to answer."""


class ApiKeyRejected(ProviderError):
    """The model service rejected the API key."""


class OutOfCredit(ProviderError):
    """The account at the model service has no credit left."""


def failure_kind(error: ProviderError | None) -> FailureKind:
    """Return the class of the error that ended an answer; None is a connection that ended."""
    match error:
        case RateLimited():
            return FailureKind.RATE_LIMITED
        case ContextTooLong():
            return FailureKind.CONTEXT_TOO_LONG
        case OutOfCredit():
            return FailureKind.OUT_OF_CREDIT
        case BadRequest() | OutputTooLong():
            return FailureKind.REQUEST_REFUSED
        case None | ConnectionLost() | Stalled() | Overloaded():
            return FailureKind.UNREACHABLE
        case _:
            return FailureKind.OTHER


class BudgetExceeded(Exception):
    """A spending limit leaves no room for the request, which was not sent."""

    def __init__(
        self,
        cause: str,
        *,
        notice: FailureNotice = NoticeId.BUDGET_USED_UP,
        retry_in_seconds: int | None = None,
    ) -> None:
        super().__init__(cause)
        self.notice = notice  # notice to show if the turn has not sent any request yet
        self.retry_in_seconds = retry_in_seconds
        """Seconds until the limit allows such a request again; None: never."""


class ToolError(Exception):
    """A tool failed; the text goes to the model."""


class ToolTimeout(ToolError):
    """The tool took too long; its effect is unknown."""


class ToolUnknownOutcome(ToolError):
    """The tool was started and may have taken effect; check before you repeat it."""
