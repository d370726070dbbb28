"""Sans-IO: what a refusal of the service means for us."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from agent import errors
from agent.errors import ProviderError

_LONGEST_MESSAGE = 300

_TOO_LONG = (
    "context_length_exceeded",
    "context length",
    "context window",
    "maximum context",
    "too many tokens",
    "prompt is too long",
    "exceeds the available context",
)
_NO_CREDIT = ("insufficient_quota", "billing", "insufficient credit", "insufficient balance")
_BUSY = ("overloaded", "server_error", "internal_error", "unavailable", "internal server error")
_RATE = ("rate_limit", "rate limit", "too many requests")
_WRONG = ("invalid_request", "invalid request", "not_found", "unsupported")
_KEY = ("authentication", "invalid_api_key", "permission_denied")


class Complaint(msgspec.Struct, frozen=True):
    """An error as the service worded it."""

    message: str = ""
    type: str = ""
    code: str = ""

    @property
    def words(self) -> str:
        """All of it in lower case, to look for words in."""
        return f"{self.code} {self.type} {self.message}".lower()


def complaint_in(error: object) -> Complaint:
    """Read the `error` of a body, whatever form it has."""
    if not isinstance(error, dict):
        return Complaint(_short(str(error)))
    inner = error.get("error")
    if isinstance(inner, dict | str):
        return complaint_in(inner)
    message = error.get("message") or error.get("detail") or ""
    return Complaint(
        _short(str(message)), str(error.get("type") or ""), str(error.get("code") or "")
    )


def refused(status: int, complaint: Complaint, headers: Mapping[str, str]) -> ProviderError:
    """Sort an HTTP error."""
    said = complaint.message or f"HTTP status {status}"
    words = complaint.words
    match status:
        case 402:
            return errors.OutOfCredit(said)
        case 429 if _has(words, _NO_CREDIT):
            return errors.OutOfCredit(said)
        case 401 | 403:
            return errors.Unauthorized(said)
        case 429:
            return errors.RateLimited(said, retry_after(headers))
        case 408 | 409 | 425:
            return errors.Overloaded(said, retry_after(headers))
        case _ if _has(words, _TOO_LONG):
            return errors.ContextTooLong(said)
        case _ if status >= 500:  # noqa: PLR2004 - the server's own faults
            return errors.Overloaded(said, retry_after(headers))
        case _:
            return errors.BadRequest(said)


def failed_inside(complaint: Complaint) -> ProviderError:
    """Sort an error that came in the middle of a stream, where no status tells its kind."""
    said, words = complaint.message, complaint.words
    if complaint.code.isdigit() and 400 <= int(complaint.code) < 600:  # noqa: PLR2004 - HTTP's
        return refused(int(complaint.code), complaint, {})
    if _has(words, _NO_CREDIT):
        return errors.OutOfCredit(said)
    if _has(words, _TOO_LONG):
        return errors.ContextTooLong(said)
    if _has(words, _RATE):
        return errors.RateLimited(said)
    if _has(words, _KEY):
        return errors.Unauthorized(said)
    if _has(words, _BUSY):
        return errors.Overloaded(said)
    if _has(words, _WRONG):
        return errors.BadRequest(said)
    return errors.Cut(said)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the service asks us to wait; a date counts from the `Date` of the same response."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        until = parsedate_to_datetime(value)
        since = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - since).total_seconds())
    except (ValueError, TypeError):
        return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _has(words: str, any_of: tuple[str, ...]) -> bool:
    return any(each in words for each in any_of)


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + "…"
