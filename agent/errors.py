"""Errors of the agent, sorted by what the caller does about them.

from sessions.values.notices import NoticeId
ProviderError          the model service did not answer as asked
├── RateLimited        wait `retry_after`, or go to the next target
├── Overloaded         a short wait, then the next target
├── Stalled            our clock ran out: the connection was dead or silent
├── Cut                the connection ended in the middle of an answer
├── Looping            the model repeats itself without end; given up
├── ContextTooLong     shorten the conversation, then try again
├── OutputTooLong      ask for a smaller output limit, then try again
├── BadRequest         deterministic: the same request would fail again
│   └── CannotStream   ask for the answer in one piece
├── Declined           the service's filter refused to answer
├── Unauthorized       the operator must act: key refused
└── OutOfCredit        the operator must act: account empty
OverBudget             not sent: a limit of what may be spent leaves no room for the request
ToolError              text for the model, as the call's result
├── ToolTimeout        took too long; whether it had an effect is not known
└── ToolUnknownOutcome started and never finished: may have had its effect
"""

from sessions.values.notices import NoticeId


class ProviderError(Exception):
    """The model service did not answer as asked."""

    def __str__(self) -> str:
        return super().__str__() or (type(self).__doc__ or "").partition("\n")[0]


class RateLimited(ProviderError):
    """The model service asks us to slow down."""

    def __init__(
        self, message: str = "", retry_after: float | None = None, *, behind: bool = False
    ) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after
        self.behind = behind  # the limit is that of a service behind the one we asked


class Overloaded(ProviderError):
    """The model service is overloaded or down."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after


class Stalled(ProviderError):
    """The model service stopped sending."""


class ConnectionLost(ProviderError):
    """The connection to the model service broke."""


class Looping(ProviderError):
    """The model repeats itself without end."""

    def __init__(self, message: str = "", *, thinking: bool = False) -> None:
        super().__init__(*([message] if message else []))
        self.thinking = thinking  # it is the thoughts that go in circles


class ContextTooLong(ProviderError):
    """The conversation is longer than the model can take."""

    def __init__(self, message: str = "", limit: int | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.limit = limit  # tokens the model takes in, where the message tells


class OutputTooLong(ProviderError):
    """The output limit is more than the model can give."""

    def __init__(self, message: str = "", limit: int | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.limit = limit  # tokens, where the message tells


class BadRequest(ProviderError):
    """The model service refused the request."""


class CannotStream(BadRequest):
    """The model service cannot stream its answers."""


class Declined(ProviderError):
    """The model service declined to answer."""


class ApiKeyRejected(ProviderError):
    """The model service does not accept our key."""


class OutOfCredit(ProviderError):
    """The account at the model service is empty."""


class BudgetExceeded(Exception):
    """A limit of what may be spent leaves no room for the request, so it was not sent."""

    def __init__(
        self,
        cause: str,
        *,
        notice: NoticeId = NoticeId.BUDGET_USED_UP,
        retry_in_seconds: int | None = None,
    ) -> None:
        super().__init__(cause)
        self.notice = notice  # what people are told where nothing was begun
        self.retry_in_seconds = (
            retry_in_seconds  # until there is room again; None: never for one like this
        )


class ToolError(Exception):
    """A tool could not do what was asked; the text goes to the model."""


class ToolTimeout(ToolError):
    """The tool took too long; its effect is unknown."""


class ToolUnknownOutcome(ToolError):
    """The tool was started and may have had its effect; look before you repeat it."""
