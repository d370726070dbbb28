"""Sans-IO: what the API refuses, and why; the shape of it is the port's (`gateway.http.errors`)."""

from gateway.http.errors import BROKEN, FORBIDDEN, TOO_MANY, UNFIT, Failure

__all__ = [
    "BROKEN",
    "NOT_ALLOWED",
    "NOT_NOW",
    "NOT_STORED",
    "OTHER_REQUEST",
    "TOO_MANY",
    "UNFIT",
    "Failure",
    "Refused",
    "over_budget",
    "too_many",
    "unfit",
]

QUOTA = "insufficient_quota"


class Refused(Exception):
    """A request that is not carried out."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def unfit(message: str, param: str | None = None, code: str | None = None) -> Refused:
    """Refuse a request that cannot be carried out as it is."""
    return Refused(Failure(status=400, message=message, param=param, code=code))


NOT_NOW = Failure(
    status=503,
    message="The gateway is starting or stopping. Please send this again in a moment.",
    type=BROKEN,
    code="not_ready",
    retry_after=2,
    again=True,
)
NOT_STORED = Failure(
    status=503,
    message="The request could not be stored. Please send it again in a moment.",
    type=BROKEN,
    code="not_stored",
    retry_after=2,
    again=True,
)
NOT_ALLOWED = Failure(
    status=403, message="This key is not let in.", type=FORBIDDEN, code="not_allowed"
)
OTHER_REQUEST = Failure(
    status=422,
    message="This Idempotency-Key came with another request before. Use a new one for this.",
    code="idempotency_key_reused",
)


def too_many(limit: int) -> Failure:
    """Refuse what goes over the messages that are taken in a minute."""
    return Failure(
        status=429,
        message=f"That was more than {limit} messages in a minute. Please send it again later.",
        type=TOO_MANY,
        code="rate_limit_exceeded",
        retry_after=60,
    )


def over_budget(cause: str, free_in: int | None) -> Failure:
    """Refuse what costs more than may be spent; OpenAI's clients know the code."""
    return Failure(
        status=429,
        message=f"{cause[:1].upper()}{cause[1:]}.",
        type=QUOTA,
        code=QUOTA,
        retry_after=free_in,
    )


def no_model(name: str, hint: str = "") -> Failure:
    """Refuse a model that nobody knows."""
    message = f"There is no model “{name[:80]}” here.{hint} `GET /v1/models` lists them."
    return Failure(status=404, message=message, param="model", code="model_not_found")
