"""Sans-IO: what the API refuses, and why; the shape of it is the port's (`gateway.http.errors`)."""

from gateway.http.errors import (
    INVALID_REQUEST_ERROR,
    PERMISSION_ERROR,
    RATE_LIMIT_ERROR,
    SERVER_ERROR,
    HttpFailure,
)

__all__ = [
    "IDEMPOTENCY_KEY_REUSED",
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
    """A request that is not carried out."""

    def __init__(self, failure: HttpFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def invalid_request(
    message: str, param: str | None = None, code: str | None = None
) -> RequestRefused:
    """Refuse a request that cannot be carried out as it is."""
    return RequestRefused(HttpFailure(status=400, message=message, param=param, code=code))


NOT_READY = HttpFailure(
    status=503,
    message="The gateway is starting or stopping. Please send this again in a moment.",
    type=SERVER_ERROR,
    code="not_ready",
    retry_after=2,
    retryable=True,
)
NOT_STORED = HttpFailure(
    status=503,
    message="The request could not be stored. Please send it again in a moment.",
    type=SERVER_ERROR,
    code="not_stored",
    retry_after=2,
    retryable=True,
)
NOT_ALLOWED = HttpFailure(
    status=403, message="This key is not let in.", type=PERMISSION_ERROR, code="not_allowed"
)
IDEMPOTENCY_KEY_REUSED = HttpFailure(
    status=422,
    message="This Idempotency-Key came with another request before. Use a new one for this.",
    code="idempotency_key_reused",
)


def too_many_messages(limit: int) -> HttpFailure:
    """Refuse what goes over the messages that are taken in a minute."""
    return HttpFailure(
        status=429,
        message=f"That was more than {limit} messages in a minute. Please send it again later.",
        type=RATE_LIMIT_ERROR,
        code="rate_limit_exceeded",
        retry_after=60,
    )


def over_budget(cause: str, retry_after: int | None) -> HttpFailure:
    """Refuse what costs more than may be spent; OpenAI's clients know the code."""
    return HttpFailure(
        status=429,
        message=f"{cause[:1].upper()}{cause[1:]}.",
        type=INSUFFICIENT_QUOTA,
        code=INSUFFICIENT_QUOTA,
        retry_after=retry_after,
    )


def model_not_found(name: str, hint: str = "") -> HttpFailure:
    """Refuse a model that nobody knows."""
    message = f"There is no model “{name[:80]}” here.{hint} `GET /v1/models` lists them."
    return HttpFailure(status=404, message=message, param="model", code="model_not_found")
