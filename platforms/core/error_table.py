"""Translation of failed calls into errors of the contract, by ordered tables.

Each adapter writes its tables in `errors.py`. A row holds the error, the message and the conditions
for a failure; the first row whose conditions all hold counts, so special cases come first.
"""

import re
from collections.abc import Callable, Container, Sequence

import msgspec

from platforms.core.errors import PlatformError, Rejected, Unavailable
from sessions.values.exceptions import error_text


class FailedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A failed call: the exception of a library, or the error that the platform reported."""

    error: BaseException | None = None
    status: int = 0  # of the HTTP response
    code: int | str = ""  # the platform's own code
    text: str = ""  # the platform's own words
    retry_after: float | None = None


class ErrorRow(msgspec.Struct, frozen=True):
    """A row of a table; an absent condition holds for every failure.

    The message may contain `{status}`, `{code}`, `{code_or_status}`, `{text}`, `{retry_after}`,
    `{error}` (the exception's message), `{reason}` (the same, or the name of its class) and
    `{kind}` (the name of its class).
    """

    ours: type[PlatformError]
    message: str
    raised: type[BaseException] | tuple[type[BaseException], ...] = ()
    status: Container[int] | None = None
    code: Container[int | str] | None = None
    text: re.Pattern[str] | None = None  # found in the platform's words
    when: Callable[[FailedCall], bool] | None = None
    keeps_wait: bool = False  # the error contains the wait that the platform asks for

    def applies_to(self, failure: FailedCall) -> bool:
        """Return True if all conditions hold."""
        return (
            (not self.raised or isinstance(failure.error, self.raised))
            and (self.status is None or failure.status in self.status)
            and (self.code is None or failure.code in self.code)
            and (self.text is None or self.text.search(failure.text) is not None)
            and (self.when is None or self.when(failure))
        )

    def to_error(self, failure: FailedCall) -> PlatformError:
        """Return the error of this row for a failure."""
        error = failure.error
        message = self.message.format(
            status=failure.status,
            code=failure.code,
            code_or_status=failure.code or failure.status,
            text=failure.text,
            retry_after=failure.retry_after,
            error="" if error is None else error,
            reason="" if error is None else error_text(error),
            kind=type(error).__name__,
        )
        if issubclass(self.ours, Unavailable):
            return self.ours(message, failure.retry_after if self.keeps_wait else None)
        return (
            self.ours(message, failure.code)
            if issubclass(self.ours, Rejected)
            else self.ours(message)
        )


def translate(table: Sequence[ErrorRow], failure: FailedCall) -> PlatformError:
    """Return the error of the first row that applies; raise the exception if there is none."""
    for row in table:
        if row.applies_to(failure):
            return row.to_error(failure)
    raise failure.error or LookupError(failure)
