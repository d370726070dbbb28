"""Sans-IO: classification of error responses, the same for all protocols."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from agent import errors
from agent.errors import ProviderError
from agent.providers.error_table import ErrorRule, ErrorTable, FailedRequest, translate
from agent.providers.too_long import classify_too_long

_MAX_SUMMARY_LENGTH = 300
_MAX_MESSAGE_LENGTH = 4000


def _any_of(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, phrases)))


_NO_CREDIT = _any_of(
    "insufficient_quota",
    "billing",
    "insufficient credit",
    "insufficient balance",
    "insufficient funds",
    "credit balance",
    "used all available credits",
    "quota_exceeded",
)
_KEY = _any_of(
    "authentication",
    "invalid_api_key",
    "permission_denied",
    "permission_error",
    "api key not valid",
    "invalid api key",
    "incorrect api key",
)
_RATE_LIMIT = _any_of("rate_limit", "rate limit", "too many requests", "ratelimit", "rate-limited")
_OVERLOAD = _any_of(
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
_BAD_REQUEST = _any_of("invalid_request", "invalid request", "not_found", "unsupported")
# Content filters: names in a code or type, then phrases in a message.
_FILTER_KIND = re.compile(
    r"content_?filter|content_?policy|policy_violation|bio_policy|cyber_policy|safety|moderation"
    r"|refusal|inspection_?failed"
)
_FILTER = _any_of(
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
    """An error as reported by the service."""

    message: str = ""
    type: str = ""
    code: str = ""
    is_plain_text: bool = False  # text instead of a JSON record
    upstream: str = ""  # error of another service, passed on by an aggregator

    @property
    def search_text(self) -> str:
        """All fields in lower case, for matching."""
        return f"{self.own_search_text} {self.upstream.lower()}"

    @property
    def own_search_text(self) -> str:
        """The fields of this service alone, in lower case, for matching."""
        return f"{self.code} {self.type} {self.message}".lower()

    @property
    def summary(self) -> str:
        """A line for people."""
        upstream = f" ({self.upstream})" if self.upstream else ""
        return _shorten(self.message + upstream, _MAX_SUMMARY_LENGTH)


def parse_service_error(error: object) -> ServiceErrorInfo:
    """Read an error from a body, or from the `error` in a body, in any known form."""
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
    """Map an HTTP error response to a `ProviderError`."""
    return translate(HTTP_ERRORS, http_failure(status, error_info, headers))


def classify_stream_error(error_info: ServiceErrorInfo) -> ProviderError:
    """Map an error inside a stream, which has no HTTP status, to a `ProviderError`.

    A JSON record with an unknown message counts as `BadRequest`, because the same request would
    fail again. Plain text, or a mention of the network, counts as `ConnectionLost`.
    """
    if error_info.code.isdigit() and 400 <= int(error_info.code) < 600:  # noqa: PLR2004 - HTTP's
        return classify_http_error(int(error_info.code), error_info, {})
    return translate(_STREAM_ERRORS, _read_failure(error_info))


def http_failure(
    status: int, error_info: ServiceErrorInfo, headers: Mapping[str, str]
) -> FailedRequest:
    """Return an HTTP error response as the tables see it."""
    failure = _read_failure(error_info)
    return msgspec.structs.replace(
        failure,
        status=status,
        summary=failure.summary or f"HTTP status {status}",
        retry_after=read_retry_after(headers),
    )


def _read_failure(error_info: ServiceErrorInfo) -> FailedRequest:
    return FailedRequest(
        summary=error_info.summary,
        kind=f"{error_info.code} {error_info.type}".lower(),
        own_words=error_info.own_search_text,
        words=error_info.search_text,
        is_plain_text=error_info.is_plain_text,
        is_upstream=bool(error_info.upstream),
        wait_in_words=_read_wait(error_info),
    )


def _too_long(failure: FailedRequest) -> ProviderError | None:
    return classify_too_long(failure.words, failure.summary)


def _too_long_for_status(failure: FailedRequest) -> ProviderError | None:
    # With status 429, "too many tokens" means too many per minute.
    is_rate_limit = failure.status == 429 and "too large" not in failure.words  # noqa: PLR2004
    return None if is_rate_limit else _too_long(failure)


HTTP_ERRORS: ErrorTable = (
    ErrorRule(errors.Overloaded, status={408, 409, 425}),
    ErrorRule(errors.OutOfCredit, status={402}),
    ErrorRule(errors.OutOfCredit, status=range(500), own_words=_NO_CREDIT),
    ErrorRule(errors.Declined, kind=_FILTER_KIND),
    ErrorRule(errors.Declined, words=_FILTER),
    ErrorRule(errors.ApiKeyRejected, status={401, 403}),
    ErrorRule(errors.ApiKeyRejected, status={400}, words=_KEY),
    _too_long_for_status,
    ErrorRule(errors.ContextTooLong, status={413}),
    ErrorRule(errors.RateLimited, status={429}),
    ErrorRule(errors.CannotStream, words=_NO_STREAM),
    ErrorRule(errors.Overloaded, status=range(500, 1000)),
    ErrorRule(errors.BadRequest),
)
"""Errors for HTTP responses, the same for all services."""

_STREAM_ERRORS: ErrorTable = (
    ErrorRule(errors.Declined, kind=_FILTER_KIND),
    ErrorRule(errors.Declined, words=_FILTER),
    ErrorRule(errors.OutOfCredit, own_words=_NO_CREDIT),
    _too_long,
    ErrorRule(errors.RateLimited, words=_RATE_LIMIT),
    ErrorRule(errors.ApiKeyRejected, words=_KEY),
    ErrorRule(errors.Overloaded, words=_OVERLOAD),
    ErrorRule(errors.CannotStream, words=_NO_STREAM),
    ErrorRule(errors.BadRequest, words=_BAD_REQUEST),
    ErrorRule(errors.ConnectionLost, when=lambda failure: failure.is_plain_text),
    ErrorRule(errors.ConnectionLost, words=_NETWORK),
    ErrorRule(errors.BadRequest),
)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the requested wait in seconds; a date is compared with the response's own `Date`."""
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


def _plain_text_info(text: str) -> ServiceErrorInfo:
    return ServiceErrorInfo(_shorten(text, _MAX_MESSAGE_LENGTH), is_plain_text=True)


def _read_record(fields: dict[str, Any]) -> ServiceErrorInfo:
    message = str(_first_field(fields, "message", "detail", "error_message", "msg"))
    if isinstance(fields.get("n_ctx"), int):  # llama.cpp's context window
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
    """Return the error of the service behind an aggregator; empty if there is none."""
    if not isinstance(metadata, dict) or not metadata.get("raw"):
        return ""
    name = metadata.get("provider_name")
    inner = parse_service_error(metadata["raw"])
    line = " ".join(part for part in (inner.message, inner.code) if part)
    return f"{name}: {line}" if isinstance(name, str) else line


def _find_record(text: str) -> dict[str, Any] | None:
    """Find an error record in JSON inside a text, such as an event passed on as content."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        decoded = msgspec.json.decode(text[start : end + 1])
    except msgspec.DecodeError:
        return None
    is_error = isinstance(decoded, dict) and decoded.keys() & {"error", "message", "detail"}
    return decoded if is_error else None


def _read_wait(error_info: ServiceErrorInfo) -> float | None:
    match = _TRY_AGAIN_IN.search(error_info.search_text)
    if match is None or not (match[1] or match[2]):
        return None
    seconds = float(match[2] or 0) / (1000 if match[3] == "ms" else 1)
    return float(match[1] or 0) * 60 + seconds


def _first_field(fields: dict[str, Any], *names: str) -> object:
    return next((fields[name] for name in names if fields.get(name)), "")


def _parse_number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _shorten(message: str, max_length: int) -> str:
    line = " ".join(message.split())
    return line if len(line) <= max_length else line[:max_length] + "…"
