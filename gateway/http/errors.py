"""Sans-IO: errors in the JSON shape that OpenAI's clients read, used by all routes of the port."""

import msgspec

INVALID_REQUEST_ERROR = "invalid_request_error"
SERVER_ERROR = "server_error"
PERMISSION_ERROR = "permission_error"
RATE_LIMIT_ERROR = "rate_limit_error"

_FIRST_SERVER_ERROR = 500


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a request failed."""

    message: str
    type: str
    param: str | None = None
    """The part of the request that caused the error."""
    code: str | None = None
    partial: bool | str | msgspec.UnsetType = msgspec.UNSET
    """The beginning of the answer; true if the stream has already sent it."""


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: Error


class HttpFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error with its HTTP status and retry advice."""

    status: int
    message: str
    type: str = INVALID_REQUEST_ERROR
    code: str | None = None
    param: str | None = None
    retry_after: int | None = None  # seconds
    retryable: bool = False  # an automatic retry by the client is safe
    retry_advised: bool = False  # nothing ran, and clients should retry on their own
    partial: str = ""  # beginning of the answer, if it was not sent

    def to_error(self, *, partial: bool = False) -> Error:
        """Return the value of `error`; `partial` marks an answer that was sent in part."""
        mark = self.partial or partial or msgspec.UNSET
        return Error(
            message=self.message, type=self.type, param=self.param, code=self.code, partial=mark
        )

    def encode_body(self) -> bytes:
        """Encode the response body."""
        return msgspec.json.encode(ErrorBody(self.to_error()))

    def response_headers(self) -> dict[str, str]:
        """Return the response headers.

        OpenAI's clients retry most failed requests twice on their own. Unless the failure is
        `retryable` a header forbids that, because the tools of the failed turn may have run.
        `retry_advised` tells them to retry.
        """
        headers = {"content-type": "application/json"}
        if self.retry_advised or not self.retryable:
            headers["x-should-retry"] = "true" if self.retry_advised else "false"
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.status == 401:  # noqa: PLR2004 - the status that asks for a key
            headers["www-authenticate"] = "Bearer"
        return headers


WRONG_HOST = HttpFailure(
    status=403,
    message="This server does not answer to that host name. Open the address printed at start, or "
    "add the name to http.allowed_hosts.",
    type=PERMISSION_ERROR,
    code="wrong_host",
)
FOREIGN_ORIGIN = HttpFailure(
    status=403,
    message="Requests from other websites are refused.",
    type=PERMISSION_ERROR,
    code="foreign_origin",
)
REQUEST_TOO_LARGE = HttpFailure(
    status=413, message="This request is too large.", code="request_too_large"
)
REQUEST_TIMEOUT = HttpFailure(
    status=408,
    message="The request did not arrive in time.",
    code="request_timeout",
    retryable=True,
)
INTERNAL_ERROR = HttpFailure(
    status=500,
    message="Internal error; see the log of the server.",
    type=SERVER_ERROR,
    code="internal_error",
)

_MISSING_FEATURES = {
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/responses/input_tokens"),
}
COMPLETIONS_NOT_STORED = HttpFailure(
    status=404,
    message="Chat completions are not stored for clients, so there is no list of them.",
    code="unknown_url",
)
_BY_STATUS = {
    each.status: each
    for each in (
        HttpFailure(status=404, message="There is nothing at this address.", code="unknown_url"),
        HttpFailure(
            status=405,
            message="This address does not support that method.",
            code="method_not_supported",
        ),
        HttpFailure(
            status=431,
            message="The headers of this request are too large.",
            code="headers_too_large",
        ),
    )
}


def missing_feature(method: str, path: str) -> bool:
    """Return True for a call of OpenAI's API that shares the path of another call, and is missing.

    Clients of such a call expect the status 404, not 405.
    """
    return (method, path) in _MISSING_FEATURES


def failure_for_status(status: int, detail: str) -> HttpFailure:
    """Return the failure for an HTTP status; `detail` is the message of an unlisted status."""
    kind = SERVER_ERROR if status >= _FIRST_SERVER_ERROR else INVALID_REQUEST_ERROR
    return _BY_STATUS.get(status) or HttpFailure(status=status, message=f"{detail}.", type=kind)


def unreadable_request(status: int) -> HttpFailure:
    """Return the failure for bytes that are not HTTP; `status` is the parser's hint."""
    hidden = status >= _FIRST_SERVER_ERROR  # h11 hints at 501 for unknown transfer codings
    return failure_for_status(400 if hidden else status, "This is not a valid HTTP request")
