"""Errors of the agent, sorted by what the caller does about them.

ProviderError          the model service did not answer as asked
├── RateLimited        wait `retry_after`, or go to the next target
├── Overloaded         a short wait, then the next target
├── Stalled            our clock ran out: the connection was dead or silent
├── Cut                the connection ended in the middle of an answer
├── ContextTooLong     shorten the conversation, then try again
├── BadRequest         deterministic: the same request would fail again
├── Unauthorized       the operator must act: key refused
└── OutOfCredit        the operator must act: account empty
ToolError              text for the model, as the call's result
├── ToolTimeout        took too long; whether it had an effect is not known
├── ToolDenied         not allowed, or nobody allowed it
└── ToolUnknownOutcome started and never finished: may have had its effect
"""


class ProviderError(Exception):
    """The model service did not answer as asked."""

    def __str__(self) -> str:
        return super().__str__() or (type(self).__doc__ or "").partition("\n")[0]


class RateLimited(ProviderError):
    """The model service asks us to slow down."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after


class Overloaded(ProviderError):
    """The model service is overloaded or down."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after


class Stalled(ProviderError):
    """The model service stopped sending."""


class Cut(ProviderError):
    """The connection to the model service broke."""


class ContextTooLong(ProviderError):
    """The conversation is longer than the model can take."""


class BadRequest(ProviderError):
    """The model service refused the request."""


class Unauthorized(ProviderError):
    """The model service does not accept our key."""


class OutOfCredit(ProviderError):
    """The account at the model service is empty."""


class ToolError(Exception):
    """A tool could not do what was asked; the text goes to the model."""


class ToolTimeout(ToolError):
    """The tool took too long; its effect is unknown."""


class ToolDenied(ToolError):
    """The tool was not allowed to run."""


class ToolUnknownOutcome(ToolError):
    """The tool was started and may have had its effect; look before you repeat it."""
