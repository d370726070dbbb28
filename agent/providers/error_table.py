"""Sans-IO: translation of failed requests into errors of the agent, by ordered tables.

A rule holds the error, the message and the conditions for a failure; the first rule that applies
counts, so special cases come first. A function is a rule as well, for errors that contain more.
"""

import re
from collections.abc import Callable, Container, Sequence

import msgspec

from agent.errors import Overloaded, ProviderError, RateLimited
from sessions.values.exceptions import error_text


class FailedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A failed request: the exception of a library, or the error that the service reported."""

    error: Exception | None = None
    url: str = ""
    status: int = 0  # of the HTTP response; 0: an error inside a stream
    summary: str = ""  # a line for people
    kind: str = ""  # code and type, in lower case
    own_words: str = ""  # everything that the service reported about itself, in lower case
    words: str = ""  # the same, with the error of another service that it passed on
    is_plain_text: bool = False  # text instead of a JSON record
    is_upstream: bool = False  # passed on from another service
    retry_after: float | None = None  # from the headers
    wait_in_words: float | None = None


class ErrorRule(msgspec.Struct, frozen=True):
    """A rule of a table; an absent condition holds for every failure.

    The message may contain `{summary}`, `{url}` and `{error}`, the exception's message.
    """

    ours: type[ProviderError]
    message: str = "{summary}"
    raised: type[Exception] | tuple[type[Exception], ...] = ()
    status: Container[int] | None = None
    kind: re.Pattern[str] | None = None
    own_words: re.Pattern[str] | None = None
    words: re.Pattern[str] | None = None
    when: Callable[[FailedRequest], bool] | None = None

    def __call__(self, failure: FailedRequest) -> ProviderError | None:
        """Return the error for a failure, or None if the rule does not apply."""
        if not self._applies_to(failure):
            return None
        reason = error_text(failure.error) if failure.error else ""
        message = self.message.format(summary=failure.summary, url=failure.url, error=reason)
        if issubclass(self.ours, RateLimited):
            wait = failure.wait_in_words if failure.retry_after is None else failure.retry_after
            return self.ours(message, wait, behind=failure.is_upstream)
        if issubclass(self.ours, Overloaded):
            return self.ours(message, failure.retry_after)
        return self.ours(message)

    def _applies_to(self, failure: FailedRequest) -> bool:
        return (
            (not self.raised or isinstance(failure.error, self.raised))
            and (self.status is None or failure.status in self.status)
            and (self.kind is None or self.kind.search(failure.kind) is not None)
            and (self.own_words is None or self.own_words.search(failure.own_words) is not None)
            and (self.words is None or self.words.search(failure.words) is not None)
            and (self.when is None or self.when(failure))
        )


ErrorTable = Sequence[Callable[[FailedRequest], ProviderError | None]]


def translate(table: ErrorTable, failure: FailedRequest) -> ProviderError:
    """Return the error of the first rule that applies; the last rule of a table has no condition."""
    errors = (rule(failure) for rule in table)
    return next(error for error in errors if error is not None)
