"""Every refusal and error of the API, with the words that are really sent."""

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
    description="What became of the session that was named: it is `new`, goes on (`continued`), or goes on "
    "after a restart has interrupted it (`resumed`).",
    schema={"type": "string", "enum": ["new", "continued", "resumed"]},
    example="continued",
)
_RETRY_AFTER = ParameterSpec(
    name="Retry-After",
    description="Seconds after which it is worth another try.",
    schema={"type": "integer", "minimum": 1},
    example=RETRY_AFTER_SECONDS,
)
_SHOULD_RETRY = ParameterSpec(
    name="X-Should-Retry",
    description="`false` where a client should not repeat it by itself: a turn may lie behind it, whose tools "
    "have run.",
    schema={"type": "string", "enum": ["false"]},
    example="false",
)
_AUTHENTICATE = ParameterSpec(
    name="WWW-Authenticate",
    description="What is to be shown.",
    schema={"type": "string"},
    example="Bearer",
    required=True,
)

_INVALID_REQUEST = failures.invalid_request(
    "The last message must be one of role `user`: that is the one that is answered.", "messages"
).failure
_TURN_FAILED = endings.turn_failed("the model's service cannot be reached", 502)
_DESCRIPTIONS = {
    400: "The request cannot be carried out as it is; `error.param` names the part that is meant.",
    401: "The key is missing or wrong.",
    403: "The request comes under another name or from another site, or the key is not let in.",
    404: "There is no such model, or nothing of that name.",
    409: "Somebody stopped it before the answer was whole.",
    408: "The headers or the body took too long to arrive.",
    413: "The body is too large.",
    422: "The `Idempotency-Key` came with another request before.",
    429: "Too much at once: requests, or messages in a minute, or waiting ones in the session. Or more "
    "than may be spent on a day (`insufficient_quota`).",
    431: "The headers are too large.",
    500: "Something failed that nobody foresaw; the gateway's log says what.",
    502: "The model's service gave no answer.",
    503: "Not now: the gateway is starting or stopping, could not store the request, or the "
    "operator has to do something about the model's service.",
}


def common_responses() -> list[ResponseSpec]:
    """Give what any address may refuse."""
    return [
        _response(400, [unreadable_request(400)], _SHOULD_RETRY),
        _response(403, [WRONG_HOST, FOREIGN_ORIGIN], _SHOULD_RETRY),
        _response(408, [REQUEST_TIMEOUT]),
        _response(413, [REQUEST_TOO_LARGE], _SHOULD_RETRY),
        _response(431, [unreadable_request(431)], _SHOULD_RETRY),
        _response(500, [INTERNAL_ERROR], _SHOULD_RETRY),
    ]


def limited_responses() -> list[ResponseSpec]:
    """Give what any address but those for watching may refuse."""
    return [*common_responses(), _response(429, [TOO_MANY_REQUESTS], _RETRY_AFTER)]


def unauthorized_response() -> ResponseSpec:
    """Refuse who has no key."""
    return _response(401, [INVALID_API_KEY], _AUTHENTICATE, _SHOULD_RETRY)


def authorized_responses() -> list[ResponseSpec]:
    """Give what any address behind the key may refuse."""
    return _merge_responses(
        limited_responses(),
        [unauthorized_response()],
        [_response(503, [failures.NOT_READY, failures.NOT_STORED], _RETRY_AFTER)],
    )


def not_found_response(failure: HttpFailure) -> ResponseSpec:
    """Refuse what is not there."""
    return _response(404, [failure], _SHOULD_RETRY)


def lookup_responses(failure: HttpFailure) -> list[ResponseSpec]:
    """Give what may become of a request about something that may not be there."""
    return _merge_responses(
        authorized_responses(),
        [_response(400, [_INVALID_REQUEST], _SHOULD_RETRY), not_found_response(failure)],
    )


def answer_responses() -> list[ResponseSpec]:
    """Give what may become of a request for an answer."""
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
    """Make one reply of those with the same status."""
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
