"""OpenAPI descriptions of all error responses, with the messages that the server really sends."""

from collections.abc import Iterable

from gateway.http.api import endings, failures
from gateway.http.api.failures import HttpFailure
from gateway.http.auth import INVALID_API_KEY
from gateway.http.concurrency import RETRY_AFTER_SECONDS, TOO_MANY_REQUESTS
from gateway.http.errors import (
    FOREIGN_ORIGIN,
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    REQUEST_TOO_LARGE,
    WRONG_HOST,
    ErrorBody,
    unreadable_request,
)
from gateway.http.openapi.terms import JSON, ContentSpec, ParameterSpec, ResponseSpec

SESSION_STATE = ParameterSpec(
    name="X-Session-State",
    description="State of the named session: `new`, `continued`, or `resumed` if a restart had "
    "interrupted it.",
    schema={"type": "string", "enum": ["new", "continued", "resumed"]},
    example="continued",
)
_RETRY_AFTER = ParameterSpec(
    name="Retry-After",
    description="Seconds until a retry is worthwhile.",
    schema={"type": "integer", "minimum": 1},
    example=RETRY_AFTER_SECONDS,
)
_SHOULD_RETRY = ParameterSpec(
    name="X-Should-Retry",
    description="`false` if clients should not retry on their own, because the tools of a turn may "
    "have run; `true` if nothing ran.",
    schema={"type": "string", "enum": ["true", "false"]},
    example="false",
)
_AUTHENTICATE = ParameterSpec(
    name="WWW-Authenticate",
    description="The authentication scheme.",
    schema={"type": "string"},
    example="Bearer",
    required=True,
)

_INVALID_REQUEST = failures.invalid_request(
    "The last message must have the role `user`: it is the message to answer.", "messages"
).failure
_TURN_FAILED = endings.turn_failed("the model service cannot be reached", 502)
_DESCRIPTIONS = {
    400: "The request is invalid or not supported; `error.param` names the part. Or the model service "
    "refused it.",
    401: "The key is missing or wrong.",
    403: "The Host or Origin header is not accepted, or the key has no access.",
    404: "The model or the object does not exist.",
    409: "The answer was stopped before it was complete.",
    408: "The headers or the body took too long to arrive.",
    413: "The body is too large.",
    422: "The `Idempotency-Key` was used for a different request.",
    429: "Too many concurrent requests, messages per minute or queued requests in the session; the "
    "model service limits requests; or a budget or the account at the service is exhausted "
    "(`insufficient_quota`).",
    431: "The headers are too large.",
    500: "An unexpected error; see the log of the gateway.",
    502: "The answer could not be finished; `error.partial` is its beginning.",
    503: "The gateway is starting or stopping, could not store the request, or cannot reach the model "
    "service.",
}


def common_responses() -> list[ResponseSpec]:
    """Return the errors that every path can answer."""
    return [
        _response(400, [unreadable_request(400)], _SHOULD_RETRY),
        _response(403, [WRONG_HOST, FOREIGN_ORIGIN], _SHOULD_RETRY),
        _response(408, [REQUEST_TIMEOUT]),
        _response(413, [REQUEST_TOO_LARGE], _SHOULD_RETRY),
        _response(431, [unreadable_request(431)], _SHOULD_RETRY),
        _response(500, [INTERNAL_ERROR], _SHOULD_RETRY),
    ]


def limited_responses() -> list[ResponseSpec]:
    """Return the errors of every path with a concurrency limit: all except monitoring paths."""
    return [*common_responses(), _response(429, [TOO_MANY_REQUESTS], _RETRY_AFTER)]


def unauthorized_response() -> ResponseSpec:
    """Return the error for a missing or wrong key."""
    return _response(401, [INVALID_API_KEY], _AUTHENTICATE, _SHOULD_RETRY)


def authorized_responses() -> list[ResponseSpec]:
    """Return the errors of every path that requires the key."""
    return _merge_responses(
        limited_responses(),
        [unauthorized_response()],
        [_response(503, [failures.NOT_READY, failures.NOT_STORED], _RETRY_AFTER)],
    )


def not_found_response(failure: HttpFailure) -> ResponseSpec:
    """Return the error for a missing object."""
    return _response(404, [failure], _SHOULD_RETRY)


def lookup_responses(failure: HttpFailure) -> list[ResponseSpec]:
    """Return the errors of a request for an object by id."""
    return _merge_responses(
        authorized_responses(),
        [_response(400, [_INVALID_REQUEST], _SHOULD_RETRY), not_found_response(failure)],
    )


def counting_responses() -> list[ResponseSpec]:
    """Return the errors of a request that names a model but begins no turn."""
    return _merge_responses(
        authorized_responses(),
        [
            _response(400, [_INVALID_REQUEST], _SHOULD_RETRY),
            not_found_response(failures.model_not_found("gpt-unknown")),
        ],
    )


def answer_responses() -> list[ResponseSpec]:
    """Return the errors of a request that begins a turn."""
    state = (SESSION_STATE, _SHOULD_RETRY)
    broken = endings.turn_failed("the log says why", 500)
    waits = [endings.INTERRUPTED, endings.NOT_STARTED]
    spent = failures.over_budget("the limit of $20.00 a day for everyone is used up", 3600)
    busy = [failures.too_many_messages(20), endings.QUEUE_FULL, spent]
    return _merge_responses(
        authorized_responses(),
        [
            _response(400, [_INVALID_REQUEST], _SHOULD_RETRY),
            _response(403, [failures.NOT_ALLOWED], _SHOULD_RETRY),
            not_found_response(failures.model_not_found("gpt-unknown")),
            _response(409, [endings.STOPPED], *state),
            _response(422, [failures.IDEMPOTENCY_KEY_REUSED], _SHOULD_RETRY),
            _response(429, busy, _RETRY_AFTER, *state),
            _response(500, [broken], *state),
            _response(502, [_TURN_FAILED], *state),
            _response(503, waits, _RETRY_AFTER, *state),
        ],
    )


def _response(
    status: int, failures_: Iterable[HttpFailure], *headers: ParameterSpec
) -> ResponseSpec:
    found = [each.to_error() for each in failures_]
    examples = {each.code or each.type: ErrorBody(each) for each in found}
    content = ContentSpec(JSON, ErrorBody, examples)
    return ResponseSpec(status, _DESCRIPTIONS[status], [content], headers)


def _merge_responses(*lists: list[ResponseSpec]) -> list[ResponseSpec]:
    """Merge responses with the same status into one."""
    found: dict[int, ResponseSpec] = {}
    for reply in (each for replies in lists for each in replies):
        known = found.get(reply.status)
        found[reply.status] = _merge_two(known, reply) if known else reply
    return [found[status] for status in sorted(found)]


def _merge_two(one: ResponseSpec, other: ResponseSpec) -> ResponseSpec:
    (here,), (there,) = one.content, other.content
    content = ContentSpec(JSON, ErrorBody, {**here.examples, **there.examples})
    headers = {field.name: field for field in (*one.headers, *other.headers)}
    return ResponseSpec(one.status, one.description, [content], list(headers.values()))
