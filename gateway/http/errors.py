"""Sans-IO: refusals and errors in the shape that OpenAI's clients read; all errors of the port have it."""

import msgspec

INVALID_REQUEST_ERROR = "invalid_request_error"
SERVER_ERROR = "server_error"
PERMISSION_ERROR = "permission_error"
RATE_LIMIT_ERROR = "rate_limit_error"

_FIRST_SERVER_ERROR = 500  # from here on it is not the request's fault


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """Why something was not done."""

    message: str
    type: str
    param: str | None = None
    """The part of the request that is meant."""
    code: str | None = None
    partial: bool | msgspec.UnsetType = msgspec.UNSET
    """There and true where the beginning of the answer was given: it is not whole."""


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every response that is a refusal or an error."""

    error: Error


class HttpFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer, or no whole one."""

    status: int
    message: str
    type: str = INVALID_REQUEST_ERROR
    code: str | None = None
    param: str | None = None
    retry_after: int | None = None  # seconds
    retryable: bool = False  # a client that repeats it by itself does no harm

    def to_error(self, *, partial: bool = False) -> Error:
        """Give what stands under `error`; `partial` where a part of the answer was given."""
        mark = partial or msgspec.UNSET
        return Error(
            message=self.message, type=self.type, param=self.param, code=self.code, partial=mark
        )

    def encode_body(self) -> bytes:
        """Write the body of a response."""
        return msgspec.json.encode(ErrorBody(self.to_error()))

    def response_headers(self) -> dict[str, str]:
        """Give what goes in front of it.

        OpenAI's clients repeat most failed requests by themselves, twice; here a turn lies behind
        each, whose tools may have run.
        """
        found = {"content-type": "application/json"}
        if not self.retryable:
            found["x-should-retry"] = "false"
        if self.retry_after is not None:
            found["retry-after"] = str(self.retry_after)
        if self.status == 401:  # noqa: PLR2004 - the status that asks for a key
            found["www-authenticate"] = "Bearer"
        return found


WRONG_HOST = HttpFailure(
    status=403,
    message="This server is not called that. Please open it under the address it prints at start, or "
    "list this name in http.allowed_hosts.",
    type=PERMISSION_ERROR,
    code="wrong_host",
)
FOREIGN_ORIGIN = HttpFailure(
    status=403,
    message="Requests from other web sites are not taken.",
    type=PERMISSION_ERROR,
    code="foreign_origin",
)
REQUEST_TOO_LARGE = HttpFailure(
    status=413, message="This request is too large.", code="request_too_large"
)
REQUEST_TIMEOUT = HttpFailure(
    status=408,
    message="This request did not come to its end in time.",
    code="request_timeout",
    retryable=True,
)
INTERNAL_ERROR = HttpFailure(
    status=500,
    message="Something went wrong here; the log says what.",
    type=SERVER_ERROR,
    code="internal_error",
)

_BY_STATUS = {
    each.status: each
    for each in (
        HttpFailure(status=404, message="There is nothing at this address.", code="unknown_url"),
        HttpFailure(
            status=405,
            message="This address does not take that method.",
            code="method_not_supported",
        ),
        HttpFailure(
            status=431,
            message="The headers of this request are too large.",
            code="headers_too_large",
        ),
    )
}


def failure_for_status(status: int, detail: str) -> HttpFailure:
    """Say what is known by its status alone; `detail` is said of any other."""
    kind = SERVER_ERROR if status >= _FIRST_SERVER_ERROR else INVALID_REQUEST_ERROR
    return _BY_STATUS.get(status) or HttpFailure(status=status, message=f"{detail}.", type=kind)


def unreadable_request(status: int) -> HttpFailure:
    """Say that what came is no HTTP; the status is what its reader thinks of it."""
    ours = status >= _FIRST_SERVER_ERROR  # it means what nobody need know, as odd codings
    return failure_for_status(400 if ours else status, "This is no request that can be read")
