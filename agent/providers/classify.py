"""Sans-IO: what a refusal of a model service means for us, whatever protocol it speaks."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from agent import errors
from agent.errors import ProviderError
from agent.providers.too_long import classify_too_long

_MAX_SUMMARY_LENGTH = 300
_MAX_MESSAGE_LENGTH = 4000

_NO_CREDIT_WORDS = (
    "insufficient_quota",
    "billing",
    "insufficient credit",
    "insufficient balance",
    "insufficient funds",
    "credit balance",
    "used all available credits",
    "quota_exceeded",
)
_KEY_WORDS = (
    "authentication",
    "invalid_api_key",
    "permission_denied",
    "permission_error",
    "api key not valid",
    "invalid api key",
    "incorrect api key",
)
_RATE_LIMIT_WORDS = ("rate_limit", "rate limit", "too many requests", "ratelimit", "rate-limited")
_OVERLOAD_WORDS = (
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
_BAD_REQUEST_WORDS = ("invalid_request", "invalid request", "not_found", "unsupported")
# What a filter is called in a code or type, and what it says of itself.
_FILTER_CODES = re.compile(
    r"content_?filter|content_?policy|policy_violation|bio_policy|cyber_policy|safety|moderation"
    r"|refusal|inspection_?failed"
)
_FILTER_WORDS = (
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
_TRY_AGAIN_IN = re.compile(r"try again in (?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(ms|s))?")


class ServiceErrorInfo(msgspec.Struct, frozen=True):
    """An error as the service worded it."""

    message: str = ""
    type: str = ""
    code: str = ""
    is_plain_text: bool = False  # just text, where a protocol has a record
    upstream: str = ""  # what another service said, of which this one only tells

    @property
    def search_text(self) -> str:
        """All of it in lower case, to look for words in."""
        return f"{self.own_search_text} {self.upstream.lower()}"

    @property
    def own_search_text(self) -> str:
        """What this service says of itself."""
        return f"{self.code} {self.type} {self.message}".lower()

    @property
    def summary(self) -> str:
        """One line for people."""
        upstream = f" ({self.upstream})" if self.upstream else ""
        return _shorten(self.message + upstream, _MAX_SUMMARY_LENGTH)


def parse_service_error(error: object) -> ServiceErrorInfo:
    """Read the `error` of a body, or the whole body, whatever form it has."""
    if isinstance(error, bytes):
        error = error.decode("utf-8", "replace")
    if isinstance(error, str):
        record = _find_record(error)
        return parse_service_error(record) if record else _plain_text_info(error)
    if isinstance(error, list) and error:
        return parse_service_error(error[0])
    if not isinstance(error, dict):
        return _plain_text_info(str(error))
    inner = error.get("error")
    if isinstance(inner, str | list) and inner:
        return msgspec.structs.replace(parse_service_error(inner), is_plain_text=False)
    return _read_record(inner if isinstance(inner, dict) else error)


def classify_http_error(
    status: int, error_info: ServiceErrorInfo, headers: Mapping[str, str]
) -> ProviderError:
    """Sort an HTTP error."""
    said, words = error_info.summary or f"HTTP status {status}", error_info.search_text
    wait = read_retry_after(headers)
    if status in _RETRYABLE_STATUSES:
        return errors.Overloaded(said, wait)
    if status == 402 or (  # noqa: PLR2004
        status < 500  # noqa: PLR2004
        and _contains_any(error_info.own_search_text, _NO_CREDIT_WORDS)
    ):
        return errors.OutOfCredit(said)
    if _is_filtered(error_info):
        return errors.Declined(said)
    if status in _AUTH_STATUSES or (status == 400 and _contains_any(words, _KEY_WORDS)):  # noqa: PLR2004
        return errors.ApiKeyRejected(said)
    too_long = classify_too_long(words, said)
    # "Too many tokens" with this status are too many in a minute.
    if too_long is not None and (status != 429 or "too large" in words):  # noqa: PLR2004
        return too_long
    match status:
        case 413:
            return errors.ContextTooLong(said)
        case 429:
            wait = _read_wait(error_info) if wait is None else wait
            return errors.RateLimited(said, wait, behind=bool(error_info.upstream))
        case _ if _NO_STREAM.search(words):
            return errors.CannotStream(said)
        case _ if status >= 500:  # noqa: PLR2004 - the server's own faults
            return errors.Overloaded(said, wait)
        case _:
            return errors.BadRequest(said)


_RETRYABLE_STATUSES = frozenset({408, 409, 425})
_AUTH_STATUSES = frozenset({401, 403})


def classify_stream_error(error_info: ServiceErrorInfo) -> ProviderError:
    """Sort an error that came in the middle of a stream, where no status tells its kind.

    A record of unknown wording is the service's considered answer: the same request would meet it
    again. Bare text, and talk of the network, mean that the answer broke off on its way.
    """
    said, words = error_info.summary, error_info.search_text
    if error_info.code.isdigit() and 400 <= int(error_info.code) < 600:  # noqa: PLR2004 - HTTP's
        return classify_http_error(int(error_info.code), error_info, {})
    if _is_filtered(error_info):
        return errors.Declined(said)
    if _contains_any(error_info.own_search_text, _NO_CREDIT_WORDS):
        return errors.OutOfCredit(said)
    too_long = classify_too_long(words, said)
    if too_long is not None:
        return too_long
    if _contains_any(words, _RATE_LIMIT_WORDS):
        return errors.RateLimited(said, _read_wait(error_info), behind=bool(error_info.upstream))
    if _contains_any(words, _KEY_WORDS):
        return errors.ApiKeyRejected(said)
    if _contains_any(words, _OVERLOAD_WORDS):
        return errors.Overloaded(said)
    if _NO_STREAM.search(words):
        return errors.CannotStream(said)
    if _contains_any(words, _BAD_REQUEST_WORDS):
        return errors.BadRequest(said)
    broken = error_info.is_plain_text or _NETWORK.search(words)
    return errors.ConnectionLost(said) if broken else errors.BadRequest(said)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the service asks us to wait; a date counts from the `Date` of the same response."""
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _parse_number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        until = parsedate_to_datetime(value)
        since = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - since).total_seconds())
    except (ValueError, TypeError):
        return None


def _plain_text_info(said: str) -> ServiceErrorInfo:
    return ServiceErrorInfo(_shorten(said, _MAX_MESSAGE_LENGTH), is_plain_text=True)


def _read_record(fields: dict[str, Any]) -> ServiceErrorInfo:
    message = str(_first_field(fields, "message", "detail", "error_message", "msg"))
    if isinstance(fields.get("n_ctx"), int):  # where llama.cpp says how much it takes
        message += f" (n_ctx={fields['n_ctx']})"
    param = fields.get("param")
    if isinstance(param, str) and param not in message:
        message += f" ({param})"
    return ServiceErrorInfo(
        _shorten(message, _MAX_MESSAGE_LENGTH),
        str(_first_field(fields, "type", "error_type", "status")),
        str(_first_field(fields, "code", "status_code")),
        upstream=_read_upstream(fields.get("metadata")),
    )


def _read_upstream(metadata: object) -> str:
    """What an aggregator passes on from the service behind it."""
    if not isinstance(metadata, dict) or not metadata.get("raw"):
        return ""
    name = metadata.get("provider_name")
    said = parse_service_error(metadata["raw"])
    line = " ".join(each for each in (said.message, said.code) if each)
    return f"{name}: {line}" if isinstance(name, str) else line


def _find_record(said: str) -> dict[str, Any] | None:
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


def _is_filtered(error_info: ServiceErrorInfo) -> bool:
    kind = f"{error_info.code} {error_info.type}".lower()
    return bool(_FILTER_CODES.search(kind)) or _contains_any(error_info.search_text, _FILTER_WORDS)


def _read_wait(error_info: ServiceErrorInfo) -> float | None:
    found = _TRY_AGAIN_IN.search(error_info.search_text)
    if found is None or not (found[1] or found[2]):
        return None
    rest = float(found[2] or 0) / (1000 if found[3] == "ms" else 1)
    return float(found[1] or 0) * 60 + rest


def _first_field(fields: dict[str, Any], *names: str) -> object:
    return next((fields[name] for name in names if fields.get(name)), "")


def _parse_number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _contains_any(words: str, any_of: tuple[str, ...]) -> bool:
    return any(each in words for each in any_of)


def _shorten(message: str, longest: int) -> str:
    line = " ".join(message.split())
    return line if len(line) <= longest else line[:longest] + "…"
