"""How many requests may be at work at once; beyond that a client is asked to come back.

What counts is work: a request from its arrival to the end of its answer, streamed or not. A page
that keeps a stream open to hear of news (a GET that is answered with events) counts only until the
stream has begun, since it does nothing most of the time. Whoever watches over the daemon is always
let in.
"""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.errors import RATE_LIMIT_ERROR, HttpFailure
from gateway.http.responses import failure_response

MAX_REQUESTS = 512
RETRY_AFTER_SECONDS = 1
"""Seconds after which it is worth another try: most requests are over by then."""

UNLIMITED_PATHS = frozenset({"/livez", "/readyz", "/metrics"})

TOO_MANY_REQUESTS = HttpFailure(
    status=429,
    message="This server is busy with as many requests as it takes at once. Please try again.",
    type=RATE_LIMIT_ERROR,
    code="too_many_requests",
    retry_after=RETRY_AFTER_SECONDS,
    retryable=True,
)


class ConcurrencyLimit:
    """The requests that are at work."""

    def __init__(
        self, max_requests: int = MAX_REQUESTS, on_rejected: Callable[[], None] = lambda: None
    ) -> None:
        self.max_requests = max_requests
        self.active_requests = 0
        self.on_rejected = on_rejected


class ConcurrencyLimitMiddleware:
    """Lets in no more than a crowd may be."""

    def __init__(self, app: ASGIApp, limit: ConcurrencyLimit) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        crowd = self._limit
        if scope["type"] != "http" or scope["path"] in UNLIMITED_PATHS:
            await self._app(scope, receive, send)
            return
        if crowd.active_requests >= crowd.max_requests:
            crowd.on_rejected()
            await failure_response(TOO_MANY_REQUESTS)(scope, receive, send)
            return
        crowd.active_requests += 1
        counted = True

        def leave() -> None:
            nonlocal counted
            crowd.active_requests -= counted
            counted = False

        async def sending(message: Message) -> None:
            if scope["method"] == "GET" and _starts_event_stream(message):
                leave()
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            leave()


def _starts_event_stream(message: Message) -> bool:
    if message["type"] != "http.response.start":
        return False
    kind = Headers(raw=list(message.get("headers", []))).get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "text/event-stream"
