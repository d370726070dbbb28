"""Sans-IO: errors in the shape of Anthropic's API, for `/v1/messages` and the paths below."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.http.errors import HttpFailure

MESSAGES_PATH = "/v1/messages"

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "timeout_error",
    "api_error",
    "overloaded_error",
]

_INSUFFICIENT_QUOTA = "insufficient_quota"
_TOO_LONG = "context_length_exceeded"
_TOO_LONG_PREFIX = "prompt is too long: "
"""Beginning of the message by which clients recognize a conversation that has to be shortened."""

_PAYMENT_REQUIRED, _OVERLOADED = 402, 529
_STATUSES = {503: _OVERLOADED}
_TYPES: dict[int, ErrorType] = {
    401: "authentication_error",
    _PAYMENT_REQUIRED: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    _OVERLOADED: "overloaded_error",
}
_FIRST_SERVER_ERROR = 500


class MessagesError(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a request failed."""

    type: ErrorType
    message: str
    param: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    partial: Annotated[
        bool | str | UnsetType,
        Meta(description="The beginning of the answer; true if the stream has already sent it."),
    ] = UNSET


class MessagesErrorBody(msgspec.Struct, frozen=True):
    """The body of an error response of `/v1/messages`, and the data of the event `error`."""

    error: MessagesError
    type: Literal["error"] = "error"


class MessagesFailure(HttpFailure, frozen=True, kw_only=True):
    """A failure whose body has the shape of Anthropic's API."""

    def encode_body(self) -> bytes:
        """Encode the response body."""
        return msgspec.json.encode(self.to_body())

    def to_body(self, *, partial: bool = False) -> MessagesErrorBody:
        """Return the body; `partial` marks an answer that was sent in part."""
        server_error = self.status >= _FIRST_SERVER_ERROR
        other: ErrorType = "api_error" if server_error else "invalid_request_error"
        message = self.message
        if self.code == _TOO_LONG:
            message = f"{_TOO_LONG_PREFIX}{message}"
        return MessagesErrorBody(
            MessagesError(
                type=_TYPES.get(self.status, other),
                message=message,
                param=self.param or UNSET,
                code=self.code or UNSET,
                partial=self.partial or partial or UNSET,
            )
        )


def as_messages_failure(failure: HttpFailure) -> MessagesFailure:
    """Return the failure with the statuses and the shape of Anthropic's API."""
    fields = msgspec.structs.asdict(failure)
    status = _STATUSES.get(failure.status, failure.status)
    if failure.code == _INSUFFICIENT_QUOTA:
        status = _PAYMENT_REQUIRED
    return MessagesFailure(**fields | {"status": status})


def failure_for_path(path: str, failure: HttpFailure) -> HttpFailure:
    """Return the failure in the shape that the clients of a path read."""
    if path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/"):
        return as_messages_failure(failure)
    return failure
