"""Ids of API requests: in a header of each response, and in the log of failures."""

import logging
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

_FIRST_SERVER_ERROR = 500
_HEADERS = (b"x-request-id", b"request-id")  # of OpenAI's and of Anthropic's API


class RequestIdMiddleware:
    """ASGI middleware that gives each request below `prefix` an id."""

    def __init__(self, app: ASGIApp, prefix: str = "/v1/") -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the id to its response."""
        if scope["type"] != "http" or not scope["path"].startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(12)}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                ids = [(name, request_id.encode()) for name in _HEADERS]
                headers = [*message.get("headers", ()), *ids]
                message = {**message, "headers": headers}
                if (status := message["status"]) >= _FIRST_SERVER_ERROR:
                    log.info("%s %s: %d, %s", scope["method"], scope["path"], status, request_id)
            await send(message)

        await self._app(scope, receive, send_with_id)
