"""Sans-IO: classification of the protocol's errors."""

from collections.abc import Mapping

import msgspec

from agent import errors
from agent.errors import ProviderError
from agent.providers.classify import (
    ServiceErrorInfo,
    classify_http_error,
    classify_stream_error,
    parse_service_error,
)

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

_SPEND_LIMIT_CODE = "spend_limit_reached"
_FILTER_MESSAGE = "content filtering policy"


def classify_response(status: int, body: object, headers: Mapping[str, str]) -> ProviderError:
    """Map an HTTP error response to a `ProviderError`."""
    return _classify(status, _read_error_info(body), headers)


def classify_error_event(error: object) -> ProviderError:
    """Map an error inside a stream to a `ProviderError`."""
    info = _read_error_info(error)
    status = _STATUS.get(info.type)
    return classify_stream_error(info) if status is None else _classify(status, info, {})


def _read_error_info(body: object) -> ServiceErrorInfo:
    """Read an error; prefer the code in the details, which is more specific."""
    info = parse_service_error(body)
    inner = body.get("error", body) if isinstance(body, dict) else None
    details = inner.get("details") if isinstance(inner, dict) else None
    code = details.get("error_code") if isinstance(details, dict) else None
    return msgspec.structs.replace(info, code=str(code)) if code else info


def _classify(
    status: int, error_info: ServiceErrorInfo, headers: Mapping[str, str]
) -> ProviderError:
    if _SPEND_LIMIT_CODE in error_info.code:
        return errors.OutOfCredit(error_info.summary)
    if _FILTER_MESSAGE in error_info.own_search_text:
        return errors.Declined(error_info.summary)
    return classify_http_error(status, error_info, headers)
