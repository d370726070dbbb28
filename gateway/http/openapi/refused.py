"""Every refusal and error of the API, with the words that are really sent."""

from collections.abc import Iterable

from gateway.http.api import endings, failures
from gateway.http.api.failures import Failure
from gateway.http.auth import WRONG_KEY
from gateway.http.concurrency import FULL, RETRY_AFTER
from gateway.http.errors import (
    BROKE,
    FOREIGN,
    TOO_LARGE,
    TOO_SLOW,
    WRONG_HOST,
    ErrorBody,
    unreadable,
)
from gateway.http.openapi.terms import JSON, Content, Field, Reply

SESSION_STATE = Field(
    "X-Session-State",
    "What became of the session that was named: it is `new`, goes on (`continued`), or goes on "
    "after a restart has interrupted it (`resumed`).",
    {"type": "string", "enum": ["new", "continued", "resumed"]},
    "continued",
)
_RETRY_AFTER = Field(
    "Retry-After",
    "Seconds after which it is worth another try.",
    {"type": "integer", "minimum": 1},
    RETRY_AFTER,
)
_SHOULD_RETRY = Field(
    "X-Should-Retry",
    "`false` where a client should not repeat it by itself: a turn may lie behind it, whose tools "
    "have run.",
    {"type": "string", "enum": ["false"]},
    "false",
)
_KIND_OF_KEY = Field(
    "WWW-Authenticate", "What is to be shown.", {"type": "string"}, "Bearer", always=True
)

_UNFIT = failures.unfit(
    "The last message must be one of role `user`: that is the one that is answered.", "messages"
).failure
_BROKEN = endings.turn_failed("the model's service cannot be reached", 502)
_DESCRIBED = {
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


def guarded() -> list[Reply]:
    """Give what any address may refuse."""
    return [
        _reply(400, [unreadable(400)], _SHOULD_RETRY),
        _reply(403, [WRONG_HOST, FOREIGN], _SHOULD_RETRY),
        _reply(408, [TOO_SLOW]),
        _reply(413, [TOO_LARGE], _SHOULD_RETRY),
        _reply(431, [unreadable(431)], _SHOULD_RETRY),
        _reply(500, [BROKE], _SHOULD_RETRY),
    ]


def counted() -> list[Reply]:
    """Give what any address but those for watching may refuse."""
    return [*guarded(), _reply(429, [FULL], _RETRY_AFTER)]


def without_key() -> Reply:
    """Refuse who has no key."""
    return _reply(401, [WRONG_KEY], _KIND_OF_KEY, _SHOULD_RETRY)


def keyed() -> list[Reply]:
    """Give what any address behind the key may refuse."""
    return _joined(
        counted(),
        [without_key()],
        [_reply(503, [failures.NOT_NOW, failures.NOT_STORED], _RETRY_AFTER)],
    )


def missing(failure: Failure) -> Reply:
    """Refuse what is not there."""
    return _reply(404, [failure], _SHOULD_RETRY)


def asking(failure: Failure) -> list[Reply]:
    """Give what may become of a request about something that may not be there."""
    return _joined(keyed(), [_reply(400, [_UNFIT], _SHOULD_RETRY), missing(failure)])


def answering() -> list[Reply]:
    """Give what may become of a request for an answer."""
    state = (SESSION_STATE, _SHOULD_RETRY)
    broken = endings.turn_failed("the log says why", 500)
    waits = [endings.INTERRUPTED, endings.NOT_BEGUN]
    spent = failures.over_budget("the limit of $20.00 a day for everybody here is used up", 3600)
    busy = [failures.too_many(20), endings.QUEUE_FULL, spent]
    return _joined(
        keyed(),
        [
            _reply(400, [_UNFIT], _SHOULD_RETRY),
            _reply(403, [failures.NOT_ALLOWED], _SHOULD_RETRY),
            missing(failures.no_model("gpt-unknown")),
            _reply(409, [endings.STOPPED], *state),
            _reply(422, [failures.OTHER_REQUEST], _SHOULD_RETRY),
            _reply(429, busy, _RETRY_AFTER, *state),
            _reply(500, [broken], *state),
            _reply(502, [_BROKEN], *state),
            _reply(503, waits, _RETRY_AFTER, *state),
        ],
    )


def _reply(status: int, failures_: Iterable[Failure], *headers: Field) -> Reply:
    found = [each.error() for each in failures_]
    examples = {each.code or each.type: ErrorBody(each) for each in found}
    content = Content(JSON, ErrorBody, examples)
    return Reply(status, _DESCRIBED[status], [content], headers)


def _joined(*lists: list[Reply]) -> list[Reply]:
    """Make one reply of those with the same status."""
    found: dict[int, Reply] = {}
    for reply in (each for replies in lists for each in replies):
        known = found.get(reply.status)
        found[reply.status] = _both(known, reply) if known else reply
    return [found[status] for status in sorted(found)]


def _both(one: Reply, other: Reply) -> Reply:
    (here,), (there,) = one.content, other.content
    content = Content(JSON, ErrorBody, {**here.examples, **there.examples})
    headers = {field.name: field for field in (*one.headers, *other.headers)}
    return Reply(one.status, one.description, [content], list(headers.values()))
