"""How many requests may be at work at once; beyond that a client is asked to come back.

What counts is work: a request from its arrival to the end of its answer, streamed or not. A page
that keeps a stream open to hear of news (a GET that is answered with events) counts only until the
stream has begun, since it does nothing most of the time. Whoever watches over the daemon is always
let in.
"""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.errors import TOO_MANY, Failure
from gateway.http.responses import refusal

MOST = 512
RETRY_AFTER = 1
"""Seconds after which it is worth another try: most requests are over by then."""

WATCHING = frozenset({"/livez", "/readyz", "/metrics"})

FULL = Failure(
    status=429,
    message="This server is busy with as many requests as it takes at once. Please try again.",
    type=TOO_MANY,
    code="too_many_requests",
    retry_after=RETRY_AFTER,
    again=True,
)


class Crowd:
    """The requests that are at work."""

    def __init__(self, most: int = MOST, turned_away: Callable[[], None] = lambda: None) -> None:
        self.most = most
        self.at_work = 0
        self.turned_away = turned_away


class Turnstile:
    """Lets in no more than a crowd may be."""

    def __init__(self, app: ASGIApp, crowd: Crowd) -> None:
        self._app = app
        self._crowd = crowd

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        crowd = self._crowd
        if scope["type"] != "http" or scope["path"] in WATCHING:
            await self._app(scope, receive, send)
            return
        if crowd.at_work >= crowd.most:
            crowd.turned_away()
            await refusal(FULL)(scope, receive, send)
            return
        crowd.at_work += 1
        counted = True

        def leave() -> None:
            nonlocal counted
            crowd.at_work -= counted
            counted = False

        async def sending(message: Message) -> None:
            if scope["method"] == "GET" and _begins_events(message):
                leave()
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            leave()


def _begins_events(message: Message) -> bool:
    if message["type"] != "http.response.start":
        return False
    kind = Headers(raw=list(message.get("headers", []))).get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "text/event-stream"
