"""Limit on concurrent requests: above the limit, clients get 429 and a Retry-After.

A request counts from its arrival to the end of its response, streamed or not. The event stream of
an open page (a GET answered with `text/event-stream`) counts only until the stream begins, because
such a stream is idle most of the time. Monitoring paths are never limited.
"""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.errors import RATE_LIMIT_ERROR, HttpFailure
from gateway.http.messages_errors import failure_for_path
from gateway.http.responses import failure_response

_MAX_REQUESTS = 512
RETRY_AFTER_SECONDS = 1
"""Seconds until a retry is worthwhile: most requests end sooner."""

_UNLIMITED_PATHS = frozenset({"/livez", "/readyz", "/metrics"})

TOO_MANY_REQUESTS = HttpFailure(
    status=429,
    message="This server is handling too many requests right now. Please try again.",
    type=RATE_LIMIT_ERROR,
    code="too_many_requests",
    retry_after=RETRY_AFTER_SECONDS,
    retryable=True,
)


class ConcurrencyLimit:
    """The number of requests in progress, and the maximum."""

    def __init__(
        self, max_requests: int = _MAX_REQUESTS, on_rejected: Callable[[], None] = lambda: None
    ) -> None:
        self.max_requests = max_requests
        self.active_requests = 0
        self.on_rejected = on_rejected


class ConcurrencyLimitMiddleware:
    """ASGI middleware that rejects requests above the limit."""

    def __init__(self, app: ASGIApp, limit: ConcurrencyLimit) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it with 429."""
        limit = self._limit
        if scope["type"] != "http" or scope["path"] in _UNLIMITED_PATHS:
            await self._app(scope, receive, send)
            return
        if limit.active_requests >= limit.max_requests:
            limit.on_rejected()
            failure = failure_for_path(scope["path"], TOO_MANY_REQUESTS)
            await failure_response(failure)(scope, receive, send)
            return
        limit.active_requests += 1
        counted = True

        def leave() -> None:
            nonlocal counted
            limit.active_requests -= counted
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
