"""Middleware in front of every route: host, origin and size checks, security headers, 500s.

Plain ASGI middleware, so that streamed responses pass through unbuffered.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Collection, Mapping, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.cors import CorsPolicy, is_preflight, preflight_headers, response_headers
from gateway.http.errors import FOREIGN_ORIGIN, INTERNAL_ERROR, REQUEST_TOO_LARGE, WRONG_HOST
from gateway.http.messages_errors import failure_for_path
from gateway.http.responses import failure_response

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Room for a file of 15 MB in base64, with the rest of a conversation."""

DISCARD_SECONDS = 5.0
"""Seconds for which the rest of an oversized body is read and discarded. Many clients send the
whole body before they read; closing the connection midway would hide the error from them."""

_TOO_LARGE = 413
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_ORIGIN = re.compile(r"https?://(?P<place>[^/?#\s]+)")
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+?)\.?(?::[0-9]+)?")

_log = logging.getLogger(__name__)


class _BodyTooLarge(Exception):
    """The body exceeded the limit while it was read."""


class GuardMiddleware:
    """ASGI middleware that rejects cross-site requests and oversized bodies.

    A foreign Host header is the sign of DNS rebinding; a foreign Origin is a script of another
    site, unless `cors` allows the origin.
    """

    def __init__(
        self,
        app: ASGIApp,
        allowed_hosts: Sequence[str],
        max_body_bytes: int,
        hosts_by_path: Mapping[str, Sequence[str]],
        cors: CorsPolicy,
    ) -> None:
        self._cors = cors
        self._app = app
        self._allowed_hosts = {host.lower() for host in allowed_hosts}
        self._hosts_by_path = {
            path: {*map(str.lower, hosts)} for path, hosts in hosts_by_path.items()
        }
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = _with_security_headers(send)
        origin = headers.get("origin")
        is_allowed = self._cors.allows(origin, scope["path"])
        answer = self._reject(headers, scope["path"], is_origin_allowed=is_allowed)
        if origin is not None and is_allowed:
            send = _with_headers(send, response_headers(origin))
            if answer is None and is_preflight(scope["method"], headers):
                answer = Response(status_code=204, headers=preflight_headers(headers))
        if answer is not None:
            if answer.status_code == _TOO_LARGE and "expect" not in headers:
                await _discard_body(receive)
            await answer(scope, receive, send)
            return
        await self._app(scope, _limit_body(receive, self._max_body_bytes), send)

    def _reject(self, headers: Headers, path: str, *, is_origin_allowed: bool) -> Response | None:
        path_hosts = self._hosts_by_path.get(path, set())
        host = headers.get("host", "").lower()
        if not (
            _is_listed(self._allowed_hosts, host)
            or _is_listed(path_hosts, host)
            or _host_name(host) in _LOOPBACK
        ):
            return failure_response(failure_for_path(path, WRONG_HOST))
        origin = headers.get("origin")
        is_foreign = origin is not None and not self._is_own_origin(origin.lower(), host)
        if is_foreign and not is_origin_allowed:
            return failure_response(failure_for_path(path, FOREIGN_ORIGIN))
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._max_body_bytes:
            return _too_large_response(path)
        return None

    def _is_own_origin(self, origin: str, host: str) -> bool:
        """Accept only the page's own origin; another port of this machine is another program."""
        match = _ORIGIN.fullmatch(origin)
        place = match["place"] if match else ""
        return bool(place) and (place == host or place in self._allowed_hosts)


class InternalErrorMiddleware:
    """ASGI middleware that answers 500 for an unexpected exception of a route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and turn exceptions into error responses."""
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            _log.info("%s %s: the client disconnected", scope.get("method"), _loggable_path(scope))
        except Exception as error:  # noqa: BLE001 - the boundary of every web handler
            # A response that has begun cannot become an error: uvicorn closes the connection.
            if isinstance(error, _BodyTooLarge):
                answer = _too_large_response(scope["path"])
            else:
                _log.exception("%s %s failed", scope.get("method"), _loggable_path(scope))
                answer = failure_response(failure_for_path(scope["path"], INTERNAL_ERROR))
            if not started:
                await answer(scope, receive, send)


def _loggable_path(scope: Scope) -> str:
    """Return the path for the log, with a login token masked: the token may still be valid."""
    path = str(scope.get("path"))
    token = scope.get("path_params", {}).get("token")
    return path.replace(str(token), "***") if token else path


def _is_listed(allowed: Collection[str], host: str) -> bool:
    """Return True if a Host header is allowed, with or without its port."""
    name = _host_name(host)
    return bool(name) and ("*" in allowed or name in allowed or host in allowed)


def _host_name(host: str) -> str:
    """Return the name in a Host header without its port; "" if the header is malformed."""
    match = _HOST.fullmatch(host)
    return match["name"] if match else ""


def _too_large_response(path: str) -> Response:
    # The rest of the body may not have been read, so the connection cannot be used again.
    failure = failure_for_path(path, REQUEST_TOO_LARGE)
    return failure_response(failure, {"connection": "close"})


def _limit_body(receive: Receive, max_bytes: int) -> Receive:
    """Enforce the size limit on a body without Content-Length."""
    read = 0

    async def counting() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > max_bytes:
            if message.get("more_body"):
                await _discard_body(receive)
            raise _BodyTooLarge
        return message

    return counting


async def _discard_body(receive: Receive) -> None:
    """Read and drop the rest of a body for `DISCARD_SECONDS` at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while (await receive()).get("more_body"):
                pass


def _with_security_headers(send: Send) -> Send:
    """Add the security headers that the route did not set."""
    return _with_headers(send, _SECURITY_HEADERS)


def _with_headers(send: Send, added: Mapping[str, str]) -> Send:
    """Add headers that the response does not have."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in added.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        await send(message)

    return sending
