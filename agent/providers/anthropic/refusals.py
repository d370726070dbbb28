"""Sans-IO: classification of the protocol's errors."""

import re
from collections.abc import Mapping

import msgspec

from agent import errors
from agent.errors import ProviderError
from agent.providers.classify import (
    HTTP_ERRORS,
    ServiceErrorInfo,
    classify_stream_error,
    http_failure,
    parse_service_error,
)
from agent.providers.error_table import ErrorRule, ErrorTable, translate

_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP status of each error type, for errors inside a stream."""

_ERRORS: ErrorTable = (
    ErrorRule(errors.OutOfCredit, kind=re.compile("spend_limit_reached")),
    ErrorRule(errors.Declined, own_words=re.compile("content filtering policy")),
    *HTTP_ERRORS,
)


def classify_response(status: int, body: object, headers: Mapping[str, str]) -> ProviderError:
    """Map an HTTP error response to a `ProviderError`."""
    return translate(_ERRORS, http_failure(status, _read_error_info(body), headers))


def classify_error_event(error: object) -> ProviderError:
    """Map an error inside a stream to a `ProviderError`."""
    info = _read_error_info(error)
    status = _STATUS.get(info.type)
    if status is None:
        return classify_stream_error(info)
    return translate(_ERRORS, http_failure(status, info, {}))


def _read_error_info(body: object) -> ServiceErrorInfo:
    """Read an error; prefer the code in the details, which is more specific."""
    info = parse_service_error(body)
    inner = body.get("error", body) if isinstance(body, dict) else None
    details = inner.get("details") if isinstance(inner, dict) else None
    code = details.get("error_code") if isinstance(details, dict) else None
    return msgspec.structs.replace(info, code=str(code)) if code else info
