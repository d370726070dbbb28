"""One Starlette application for everything the daemon serves."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from gateway.http.errors import failure_for_status
from gateway.http.guard import MAX_BODY_BYTES, GuardMiddleware, InternalErrorMiddleware
from gateway.http.responses import failure_response
from sessions.values.secret import Secret

_HEALTH_TIMEOUT = 5.0


class Health(Protocol):
    """Knows what keeps the daemon from doing its work."""

    async def problems(self) -> Sequence[str]:
        """Name each one in a few words, such as "web: connecting"; none means ready."""
        ...


RenderMetrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""Gives the page `/metrics` and its content type."""

OpenApiDocument = Callable[[], Awaitable[bytes]]
"""Gives `/openapi.json`."""


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the daemon can do its work."""

    ready: bool
    not_ready: list[str]
    status: str = ""
    """How it stands in a word or more, such as "running" or that it is in safe mode."""


def build_app(
    routes: Sequence[BaseRoute],
    *,
    health: Health,
    allowed_hosts: Sequence[str] = (),
    hosts_by_path: Mapping[str, Sequence[str]] | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    key: Secret | None = None,
    concurrency_limit: ConcurrencyLimit | None = None,
    render_metrics: RenderMetrics | None = None,
    openapi_document: OpenApiDocument | None = None,
    status: Callable[[], str] = str,
) -> Starlette:
    """Put routes, health checks and guards together.

    `allowed_hosts` names the hosts under which the daemon may be called besides the loopback ones,
    each as in a Host header, with or without a port; "*" allows all. `hosts_of` allows more for
    single paths. `key` is what `gateway.http.auth.has_valid_key` asks for; without one it lets nobody
    in. `crowd` counts what is at work. `status` says how the daemon stands.
    """
    own = [Route("/livez", _live), Route("/readyz", _ready(health, status))]
    if render_metrics:
        own.append(Route("/metrics", _metrics(render_metrics)))
    if openapi_document:
        own.append(Route("/openapi.json", _openapi(openapi_document)))
    app = Starlette(
        routes=[*own, *routes],
        exception_handlers={HTTPException: _http_exception},
        middleware=[
            Middleware(
                GuardMiddleware,
                allowed_hosts=allowed_hosts,
                hosts_by_path=hosts_by_path or {},
                max_body_bytes=max_body_bytes,
            ),
            Middleware(ConcurrencyLimitMiddleware, limit=concurrency_limit or ConcurrencyLimit()),
            Middleware(InternalErrorMiddleware),
        ],
    )
    app.state.key = key
    return app


async def _live(_: Request) -> Response:
    """Answer at all: that is the news. The loop answers, so silence means that it is stuck."""
    return Response("ok\n", media_type="text/plain")


def _ready(health: Health, status: Callable[[], str]) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_: Request) -> Response:
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT):
                problems = list(await health.problems())
        except TimeoutError:
            problems = [f"health: no answer within {_HEALTH_TIMEOUT:g} s"]
        body = msgspec.json.encode(Readiness(not problems, problems, status()))
        return Response(body, 503 if problems else 200, media_type="application/json")

    return ready


def _metrics(render_metrics: RenderMetrics) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(request: Request) -> Response:
        if not is_local(request) and not has_valid_key(request, request.app.state.key):
            return failure_response(INVALID_API_KEY)
        page, kind = await render_metrics()
        return Response(page, headers={"content-type": kind, "cache-control": "no-store"})

    return metrics


def _openapi(openapi_document: OpenApiDocument) -> Callable[[Request], Awaitable[Response]]:
    async def described(_: Request) -> Response:
        headers = {"cache-control": "no-cache"}
        return Response(await openapi_document(), headers=headers, media_type="application/json")

    return described


async def _http_exception(_: Request, error: Exception) -> Response:
    """Say what Starlette itself refuses, such as an unknown path, in the shape of all errors."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    return failure_response(failure_for_status(error.status_code, error.detail), error.headers)
