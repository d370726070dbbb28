"""Sans-IO: what a refusal of a model service means for us, whatever protocol it speaks."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from agent import errors
from agent.errors import ProviderError
from agent.providers.too_long import too_long_in

_LONGEST_SHOWN = 300
_LONGEST_READ = 4000

_NO_CREDIT = (
    "insufficient_quota",
    "billing",
    "insufficient credit",
    "insufficient balance",
    "insufficient funds",
    "credit balance",
    "used all available credits",
    "quota_exceeded",
)
_KEY = (
    "authentication",
    "invalid_api_key",
    "permission_denied",
    "permission_error",
    "api key not valid",
    "invalid api key",
    "incorrect api key",
)
_RATE = ("rate_limit", "rate limit", "too many requests", "ratelimit", "rate-limited")
_BUSY = (
    "overloaded",
    "server_error",
    "internal_error",
    "api_error",
    "unavailable",
    "internal server error",
    "error occurred while processing",
    "at capacity",
    "no capacity",
)
_WRONG = ("invalid_request", "invalid request", "not_found", "unsupported")
# What a filter is called in a code or type, and what it says of itself.
_FILTER = re.compile(
    r"content_?filter|content_?policy|policy_violation|bio_policy|cyber_policy|safety|moderation"
    r"|refusal|inspection_?failed"
)
_FILTERED = (
    "content management policy",
    "content policy",
    "content exists risk",
    "flagged as potentially violating",
    "was flagged",
    "data_inspection_failed",
    "inappropriate content",
)
_NETWORK = re.compile(
    r"network|connection|connect error|reset by peer|time(?:d[ -]?)?[ _-]?out|upstream|\beof\b"
    r"|disconnected|broken pipe|hang ?up|stream (?:error|broke|ended)|incomplete|premature|aborted"
)
_NO_STREAM = re.compile(
    r"(?<!non-)(?<!non )\bstream(?:ing|ed)?\b.{0,40}"
    r"(?:\bnot (?:be )?(?:\w+ )?(?:support|available|enabled|implemented|allowed)"
    r"|unsupported|disabled|does not support|must be (?:set to )?false)"
    r"|(?:not|n't) (?:currently )?support (?:\w+ )?['\"`]?stream(?:ing)?\b(?! ?_)"
    r"|unsupported.{0,30}['\"`]stream['\"`]|must be verified to stream"
)
_AGAIN_IN = re.compile(r"try again in (?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(ms|s))?")


class Complaint(msgspec.Struct, frozen=True):
    """An error as the service worded it."""

    message: str = ""
    type: str = ""
    code: str = ""
    plain: bool = False  # just text, where a protocol has a record
    upstream: str = ""  # what another service said, of which this one only tells

    @property
    def words(self) -> str:
        """All of it in lower case, to look for words in."""
        return f"{self.own_words} {self.upstream.lower()}"

    @property
    def own_words(self) -> str:
        """What this service says of itself."""
        return f"{self.code} {self.type} {self.message}".lower()

    @property
    def said(self) -> str:
        """One line for people."""
        upstream = f" ({self.upstream})" if self.upstream else ""
        return _short(self.message + upstream, _LONGEST_SHOWN)


def complaint_in(error: object) -> Complaint:
    """Read the `error` of a body, or the whole body, whatever form it has."""
    if isinstance(error, bytes):
        error = error.decode("utf-8", "replace")
    if isinstance(error, str):
        record = _record_in(error)
        return complaint_in(record) if record else _plain(error)
    if isinstance(error, list) and error:
        return complaint_in(error[0])
    if not isinstance(error, dict):
        return _plain(str(error))
    inner = error.get("error")
    if isinstance(inner, str | list) and inner:
        return msgspec.structs.replace(complaint_in(inner), plain=False)
    return _complaint(inner if isinstance(inner, dict) else error)


def refused(status: int, complaint: Complaint, headers: Mapping[str, str]) -> ProviderError:
    """Sort an HTTP error."""
    said, words = complaint.said or f"HTTP status {status}", complaint.words
    wait = retry_after(headers)
    if status in _WAIT:
        return errors.Overloaded(said, wait)
    if status == 402 or (status < 500 and _has(complaint.own_words, _NO_CREDIT)):  # noqa: PLR2004
        return errors.OutOfCredit(said)
    if _filtered(complaint):
        return errors.Declined(said)
    if status in _KEY_REFUSED or (status == 400 and _has(words, _KEY)):  # noqa: PLR2004
        return errors.Unauthorized(said)
    too_long = too_long_in(words, said)
    # "Too many tokens" with this status are too many in a minute.
    if too_long is not None and (status != 429 or "too large" in words):  # noqa: PLR2004
        return too_long
    match status:
        case 413:
            return errors.ContextTooLong(said)
        case 429:
            wait = _wait(complaint) if wait is None else wait
            return errors.RateLimited(said, wait, behind=bool(complaint.upstream))
        case _ if _NO_STREAM.search(words):
            return errors.CannotStream(said)
        case _ if status >= 500:  # noqa: PLR2004 - the server's own faults
            return errors.Overloaded(said, wait)
        case _:
            return errors.BadRequest(said)


_WAIT = frozenset({408, 409, 425})
_KEY_REFUSED = frozenset({401, 403})


def failed_inside(complaint: Complaint) -> ProviderError:
    """Sort an error that came in the middle of a stream, where no status tells its kind.

    A record of unknown wording is the service's considered answer: the same request would meet it
    again. Bare text, and talk of the network, mean that the answer broke off on its way.
    """
    said, words = complaint.said, complaint.words
    if complaint.code.isdigit() and 400 <= int(complaint.code) < 600:  # noqa: PLR2004 - HTTP's
        return refused(int(complaint.code), complaint, {})
    if _filtered(complaint):
        return errors.Declined(said)
    if _has(complaint.own_words, _NO_CREDIT):
        return errors.OutOfCredit(said)
    too_long = too_long_in(words, said)
    if too_long is not None:
        return too_long
    if _has(words, _RATE):
        return errors.RateLimited(said, _wait(complaint), behind=bool(complaint.upstream))
    if _has(words, _KEY):
        return errors.Unauthorized(said)
    if _has(words, _BUSY):
        return errors.Overloaded(said)
    if _NO_STREAM.search(words):
        return errors.CannotStream(said)
    if _has(words, _WRONG):
        return errors.BadRequest(said)
    broken = complaint.plain or _NETWORK.search(words)
    return errors.Cut(said) if broken else errors.BadRequest(said)


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


def _plain(said: str) -> Complaint:
    return Complaint(_short(said, _LONGEST_READ), plain=True)


def _complaint(fields: dict[str, Any]) -> Complaint:
    message = str(_first(fields, "message", "detail", "error_message", "msg"))
    if isinstance(fields.get("n_ctx"), int):  # where llama.cpp says how much it takes
        message += f" (n_ctx={fields['n_ctx']})"
    param = fields.get("param")
    if isinstance(param, str) and param not in message:
        message += f" ({param})"
    return Complaint(
        _short(message, _LONGEST_READ),
        str(_first(fields, "type", "error_type", "status")),
        str(_first(fields, "code", "status_code")),
        upstream=_upstream(fields.get("metadata")),
    )


def _upstream(metadata: object) -> str:
    """What an aggregator passes on from the service behind it."""
    if not isinstance(metadata, dict) or not metadata.get("raw"):
        return ""
    name = metadata.get("provider_name")
    said = complaint_in(metadata["raw"])
    line = " ".join(each for each in (said.message, said.code) if each)
    return f"{name}: {line}" if isinstance(name, str) else line


def _record_in(said: str) -> dict[str, Any] | None:
    """Find the JSON in a text, such as an event that was passed on as content."""
    start, end = said.find("{"), said.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        found = msgspec.json.decode(said[start : end + 1])
    except msgspec.DecodeError:
        return None
    telling = isinstance(found, dict) and found.keys() & {"error", "message", "detail"}
    return found if telling else None


def _filtered(complaint: Complaint) -> bool:
    kind = f"{complaint.code} {complaint.type}".lower()
    return bool(_FILTER.search(kind)) or _has(complaint.words, _FILTERED)


def _wait(complaint: Complaint) -> float | None:
    found = _AGAIN_IN.search(complaint.words)
    if found is None or not (found[1] or found[2]):
        return None
    rest = float(found[2] or 0) / (1000 if found[3] == "ms" else 1)
    return float(found[1] or 0) * 60 + rest


def _first(fields: dict[str, Any], *names: str) -> object:
    return next((fields[name] for name in names if fields.get(name)), "")


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _has(words: str, any_of: tuple[str, ...]) -> bool:
    return any(each in words for each in any_of)


def _short(message: str, longest: int) -> str:
    line = " ".join(message.split())
    return line if len(line) <= longest else line[:longest] + "…"
