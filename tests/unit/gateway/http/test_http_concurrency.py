"""The limit on concurrent requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.http import build_app
from gateway.http.concurrency import ConcurrencyLimit
from tests.fakes.hosted import hosted
from tests.fakes.http_client import local_client

EVENTS = "text/event-stream; charset=utf-8"


class Healthy:
    async def problems(self) -> tuple[str, ...]:
        return ()

    def mode(self) -> str:
        return "running"


class Server:
    """A server whose responses wait for the event `go`."""

    def __init__(self, max_requests: int) -> None:
        self.rejected = 0
        self.limit = ConcurrencyLimit(max_requests, self._count)
        self.go = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    def _count(self) -> None:
        self.rejected += 1

    async def slow(self, _: Request) -> Response:
        self.begun.release()
        await self.go.wait()
        return PlainTextResponse("done")

    async def failing(self, _: Request) -> Response:
        msg = "broke"
        raise RuntimeError(msg)

    async def stream(self, request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            self.begun.release()
            await self.go.wait()

        return StreamingResponse(pieces(), media_type=request.query_params.get("as", EVENTS))


@asynccontextmanager
async def served(max_requests: int) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    place = Server(max_requests)
    routes = [
        Route("/slow", place.slow),
        Route("/failing", place.failing),
        Route("/stream", place.stream, methods=["GET", "POST"]),
    ]
    app = build_app(routes, health=Healthy(), concurrency_limit=place.limit)
    async with (
        asyncio.timeout(10),
        hosted(app) as server,
        local_client(server.url) as client,
    ):
        yield place, client


async def test_requests_above_the_limit_get_429_and_retry_after() -> None:
    async with served(2) as (place, client):
        async with asyncio.TaskGroup() as group:
            both = [group.create_task(client.get("/slow")) for _ in range(2)]
            for _ in both:
                await place.begun.acquire()
            answer = await client.get("/slow")
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "1"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.json()["error"]["code"] == "too_many_requests"
            assert (place.rejected, place.limit.active_requests) == (1, 2)
            assert (await client.get("/livez")).status_code == 200
            assert (await client.get("/readyz")).status_code == 200
            place.go.set()
        assert [each.result().text for each in both] == ["done", "done"]
        assert place.limit.active_requests == 0
        assert (await client.get("/slow")).status_code == 200


@pytest.mark.parametrize(
    ("method", "kind", "counted"),
    [
        ("GET", EVENTS, False),  # an idle page
        ("POST", EVENTS, True),  # a streamed answer
        ("GET", "text/plain", True),  # a file
    ],
)
async def test_idle_event_streams_of_pages_do_not_count(
    method: str, kind: str, *, counted: bool
) -> None:
    async with served(1) as (place, client):
        async with client.stream(method, "/stream", params={"as": kind}) as response:
            assert response.status_code == 200
            await place.begun.acquire()
            assert place.limit.active_requests == counted
            place.go.set()
            await response.aread()
        assert place.limit.active_requests == 0


async def test_failed_request_frees_its_slot() -> None:
    async with served(1) as (place, client):
        for path, status in (("/failing", 500), ("/nothing", 404), ("/failing", 500)):
            assert (await client.get(path)).status_code == status
        assert place.limit.active_requests == 0


async def test_disconnected_client_frees_its_slot_after_its_response_ends() -> None:
    async with served(1) as (place, client):
        with pytest.raises(httpx2.ReadTimeout):
            await client.get("/slow", timeout=0.05)
        assert place.limit.active_requests == 1
        place.go.set()
        await client.get("/livez")  # by then the abandoned response has ended
        assert place.limit.active_requests == 0
