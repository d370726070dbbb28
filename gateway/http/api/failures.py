"""Sans-IO: refusals of the API; their JSON shape comes from `gateway.http.errors`."""

from gateway.http.errors import (
    INVALID_REQUEST_ERROR,
    PERMISSION_ERROR,
    RATE_LIMIT_ERROR,
    SERVER_ERROR,
    HttpFailure,
)

__all__ = [
    "IDEMPOTENCY_KEY_REUSED",
    "INSUFFICIENT_QUOTA",
    "INVALID_REQUEST_ERROR",
    "NOT_ALLOWED",
    "NOT_READY",
    "NOT_STORED",
    "RATE_LIMIT_ERROR",
    "SERVER_ERROR",
    "HttpFailure",
    "RequestRefused",
    "invalid_request",
    "over_budget",
    "too_many_messages",
]

INSUFFICIENT_QUOTA = "insufficient_quota"


class RequestRefused(Exception):
    """A request that is refused before a turn begins."""

    def __init__(self, failure: HttpFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def invalid_request(
    message: str, param: str | None = None, code: str | None = None
) -> RequestRefused:
    """Return the refusal (400) of a request that is malformed or not supported."""
    return RequestRefused(HttpFailure(status=400, message=message, param=param, code=code))


NOT_READY = HttpFailure(
    status=503,
    message="The gateway is starting or stopping. Please try again in a moment.",
    type=SERVER_ERROR,
    code="not_ready",
    retry_after=2,
    retryable=True,
)
NOT_STORED = HttpFailure(
    status=503,
    message="The request could not be stored. Please try again in a moment.",
    type=SERVER_ERROR,
    code="not_stored",
    retry_after=2,
    retryable=True,
)
NOT_ALLOWED = HttpFailure(
    status=403, message="This key has no access.", type=PERMISSION_ERROR, code="not_allowed"
)
IDEMPOTENCY_KEY_REUSED = HttpFailure(
    status=422,
    message="This Idempotency-Key was used for a different request. Use a new key.",
    code="idempotency_key_reused",
)


def too_many_messages(limit: int) -> HttpFailure:
    """Return the failure for a request above the limit of messages per minute."""
    return HttpFailure(
        status=429,
        message=f"The limit is {limit} messages per minute. Please try again in a minute.",
        type=RATE_LIMIT_ERROR,
        code="rate_limit_exceeded",
        retry_after=60,
    )


def over_budget(cause: str, retry_after: int | None) -> HttpFailure:
    """Return the failure for an exhausted budget; OpenAI's clients know the code."""
    return HttpFailure(
        status=429,
        message=f"{cause[:1].upper()}{cause[1:]}.",
        type=INSUFFICIENT_QUOTA,
        code=INSUFFICIENT_QUOTA,
        retry_after=retry_after,
    )


def model_not_found(name: str, hint: str = "") -> HttpFailure:
    """Return the failure for an unknown model."""
    message = f"There is no model “{name[:80]}”.{hint} `GET /v1/models` lists the models."
    return HttpFailure(status=404, message=message, param="model", code="model_not_found")
