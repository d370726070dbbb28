"""The one Starlette application behind the daemon's port: routes, health checks, metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.http.auth import INVALID_API_KEY, has_valid_key, is_local
from gateway.http.concurrency import ConcurrencyLimit, ConcurrencyLimitMiddleware
from gateway.http.cors import CorsPolicy
from gateway.http.errors import failure_for_status, missing_feature
from gateway.http.guard import MAX_BODY_BYTES, GuardMiddleware, InternalErrorMiddleware
from gateway.http.messages_errors import failure_for_path
from gateway.http.request_id import RequestIdMiddleware
from gateway.http.responses import failure_response
from sessions.values.secret import Secret

_HEALTH_TIMEOUT = 5.0
_NOT_FOUND, _METHOD_NOT_ALLOWED = 404, 405


class Health(Protocol):
    """Source of the daemon's state, and of the reasons why the daemon is not ready."""

    async def problems(self) -> Sequence[str]:
        """Return each problem in a few words, such as "web: connecting"; none means ready."""
        ...

    def mode(self) -> str:
        """Return the present state in a few words, such as "running" or the safe mode's reason."""
        ...


RenderMetrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""Returns the body of `/metrics` and its content type."""

OpenApiDocument = Callable[[], Awaitable[bytes]]
"""Returns the body of `/openapi.json`."""


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of `/readyz`: whether the daemon can do its work."""

    ready: bool
    not_ready: list[str]
    status: str = ""
    """Current state in a few words, such as "running" or "safe mode"."""
    degraded: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Models and MCP servers that do not work; the causes are in `holdfast status`, because this
    answer needs no key."""


def build_app(
    routes: Sequence[BaseRoute],
    *,
    health: Health,
    allowed_hosts: Sequence[str] = (),
    hosts_by_path: Mapping[str, Sequence[str]] | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    concurrency_limit: ConcurrencyLimit | None = None,
    degraded_parts: Callable[[], Collection[str]] = tuple,
    cors_origins: Sequence[str] = (),
) -> Starlette:
    """Build the application from the routes, the health checks and the middleware.

    `allowed_hosts` lists Host headers that are accepted besides the loopback names, with or without
    a port; "*" accepts all. `hosts_by_path` accepts more for single paths. `concurrency_limit`
    counts the requests in progress. `degraded_parts` names what does not work, but leaves the
    daemon ready. `cors_origins` lists other web origins whose pages may call the API.
    """
    return Starlette(
        routes=[Route("/livez", _live), Route("/readyz", _ready(health, degraded_parts)), *routes],
        exception_handlers={HTTPException: _http_exception},
        middleware=[
            Middleware(RequestIdMiddleware),
            Middleware(
                GuardMiddleware,
                allowed_hosts=allowed_hosts,
                hosts_by_path=hosts_by_path or {},
                max_body_bytes=max_body_bytes,
                cors=CorsPolicy(cors_origins),
            ),
            Middleware(ConcurrencyLimitMiddleware, limit=concurrency_limit or ConcurrencyLimit()),
            Middleware(InternalErrorMiddleware),
        ],
    )


def metrics_route(
    render: RenderMetrics, key: Secret | None, *, open_to_local: bool = False
) -> Route:
    """Return the route `/metrics`, which needs the key.

    With `open_to_local`, programs on this machine need no key. A tool is such a program, too.
    """

    async def metrics(request: Request) -> Response:
        is_open = open_to_local and is_local(request)
        if not is_open and not has_valid_key(request, key):
            return failure_response(INVALID_API_KEY)
        page, kind = await render()
        return Response(page, headers={"content-type": kind, "cache-control": "no-store"})

    return Route("/metrics", metrics)


def openapi_route(read_document: OpenApiDocument) -> Route:
    """Return the route `/openapi.json`, which needs no key."""

    async def openapi(_: Request) -> Response:
        headers = {"cache-control": "no-cache"}
        return Response(await read_document(), headers=headers, media_type="application/json")

    return Route("/openapi.json", openapi)


async def _live(_: Request) -> Response:
    """Answer from the event loop: no answer means that the loop is stuck."""
    return Response("ok\n", media_type="text/plain")


def _ready(
    health: Health, degraded_parts: Callable[[], Collection[str]]
) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_: Request) -> Response:
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT):
                problems = list(await health.problems())
        except TimeoutError:
            problems = [f"health: no answer within {_HEALTH_TIMEOUT:g} s"]
        degraded = list(degraded_parts()) or msgspec.UNSET
        readiness = Readiness(not problems, problems, health.mode(), degraded)
        body = msgspec.json.encode(readiness)
        return Response(body, 503 if problems else 200, media_type="application/json")

    return ready


async def _http_exception(request: Request, error: Exception) -> Response:
    """Give Starlette's own errors, such as an unknown path, the JSON shape of all errors."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    path = request.url.path
    if error.status_code == _METHOD_NOT_ALLOWED and missing_feature(request.method, path):
        return failure_response(failure_for_status(_NOT_FOUND, ""))
    failure = failure_for_status(error.status_code, error.detail)
    return failure_response(failure_for_path(path, failure), error.headers)
