"""Sans-IO: what the protocol's errors mean for us."""

from collections.abc import Mapping

import msgspec

from agent import errors
from agent.errors import ProviderError
from agent.providers.classify import Complaint, complaint_in, failed_inside
from agent.providers.classify import refused as refused_with

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
"""The status that a kind of error has, for those that come in the middle of a stream."""

_SPENT = "spend_limit_reached"
_FILTERED = "content filtering policy"


def refused(status: int, body: object, headers: Mapping[str, str]) -> ProviderError:
    """Sort an HTTP error."""
    return _sorted(status, _complaint(body), headers)


def failed_with(error: object) -> ProviderError:
    """Sort an error that came in the middle of a stream."""
    complaint = _complaint(error)
    status = _STATUS.get(complaint.type)
    return failed_inside(complaint) if status is None else _sorted(status, complaint, {})


def _complaint(body: object) -> Complaint:
    """Read an error; its details name the cause more closely than its type."""
    complaint = complaint_in(body)
    inner = body.get("error", body) if isinstance(body, dict) else None
    details = inner.get("details") if isinstance(inner, dict) else None
    code = details.get("error_code") if isinstance(details, dict) else None
    return msgspec.structs.replace(complaint, code=str(code)) if code else complaint


def _sorted(status: int, complaint: Complaint, headers: Mapping[str, str]) -> ProviderError:
    if _SPENT in complaint.code:
        return errors.OutOfCredit(complaint.said)
    if _FILTERED in complaint.own_words:
        return errors.Declined(complaint.said)
    return refused_with(status, complaint, headers)
