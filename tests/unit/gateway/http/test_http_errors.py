"""Errors of the port have OpenAI's shape, and OpenAI's library maps each to its error class."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway.http import HttpServer, build_app
from gateway.http.auth import INVALID_API_KEY, has_valid_key
from gateway.http.client_timeouts import ClientTimeouts
from gateway.http.concurrency import ConcurrencyLimit
from gateway.http.responses import failure_response
from sessions.values.secret import Secret
from tests.fakes.http_client import local_client

KEY = Secret("right")
UNFIT, FORBIDDEN = "invalid_request_error", "permission_error"


class Healthy:
    async def problems(self) -> tuple[str, ...]:
        return ()

    def mode(self) -> str:
        return "running"


class Server:
    """A server with routes of different behaviour."""

    def __init__(self, timeouts: ClientTimeouts | None, max_requests: int) -> None:
        self.begun = asyncio.Event()
        self.left = asyncio.Event()
        self.limit = ConcurrencyLimit(max_requests)
        self.server = HttpServer("127.0.0.1", 0, timeouts)
        self.routes = [
            Route("/v1/models", self._models),
            Route("/v1/failing", self._failing),
            Route("/v1/taking", self._taking, methods=["POST"]),
            Route("/v1/talking", self._talking, methods=["POST"]),
        ]

    async def _models(self, request: Request) -> Response:
        right = has_valid_key(request, KEY)
        return PlainTextResponse("[]") if right else failure_response(INVALID_API_KEY)

    async def _failing(self, _: Request) -> Response:
        msg = "broke"
        raise RuntimeError(msg)

    async def _taking(self, request: Request) -> Response:
        self.begun.set()
        try:
            return PlainTextResponse(str(len(await request.body())))
        finally:
            self.left.set()

    async def _talking(self, request: Request) -> Any:
        async def talk(_: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"hello", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            await send({"type": "http.response.body", "body": b" there", "more_body": False})
            self.left.set()

        return talk


@asynccontextmanager
async def served(
    timeouts: ClientTimeouts | None = None, max_requests: int = 9
) -> AsyncIterator[Server]:
    server = Server(timeouts, max_requests)
    server.server.bind()
    app = build_app(
        server.routes,
        health=Healthy(),
        max_body_bytes=1_000,
        concurrency_limit=server.limit,
    )
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        serving = group.create_task(server.server.serve(app))
        yield server
        serving.cancel()


def library(server: Server, key: str = "right") -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{server.server.url}v1", api_key=key, max_retries=0, http_client=local_client()
    )


Case = tuple[str, str, dict[str, Any], type[openai.APIStatusError], int, str, str]

REFUSED: dict[str, Case] = {
    "host": (
        "GET", "/models", {"headers": {"Host": "evil.example"}},
        openai.PermissionDeniedError, 403, FORBIDDEN, "wrong_host",
    ),
    "origin": (
        "GET", "/models", {"headers": {"Origin": "http://evil.example"}},
        openai.PermissionDeniedError, 403, FORBIDDEN, "foreign_origin",
    ),
    "size": (
        "POST", "/taking", {"json_data": "x" * 2_000},
        openai.APIStatusError, 413, UNFIT, "request_too_large",
    ),
    "nothing there": (
        "GET", "/nothing", {}, openai.NotFoundError, 404, UNFIT, "unknown_url",
    ),
    "method": (
        "POST", "/models", {}, openai.APIStatusError, 405, UNFIT, "method_not_supported",
    ),
    "broke": (
        "GET", "/failing", {}, openai.InternalServerError, 500, "server_error", "internal_error",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "more", "raised", "status", "kind", "code"), REFUSED.values(), ids=REFUSED
)
async def test_openai_library_raises_the_matching_error_class(
    method: str,
    path: str,
    more: dict[str, Any],
    raised: type[openai.APIStatusError],
    status: int,
    kind: str,
    code: str,
) -> None:
    made = openai._models.FinalRequestOptions.construct(method=method, url=path, **more)
    async with served() as server, library(server) as client:
        with pytest.raises(raised) as error:
            await client.request(object, made)
        assert type(error.value) is raised
        found = (error.value.status_code, error.value.type, error.value.code, error.value.param)
        assert found == (status, kind, code, None)
        assert error.value.response.headers["x-should-retry"] == "false"
        assert set(error.value.response.json()["error"]) == {"message", "type", "param", "code"}


async def test_openai_library_raises_authentication_error_for_a_wrong_key() -> None:
    async with served() as server, library(server, "wrong") as client:
        with pytest.raises(openai.AuthenticationError) as error:
            await client.models.list()
        assert (error.value.type, error.value.code) == (UNFIT, "invalid_api_key")


async def test_openai_library_raises_rate_limit_error_above_the_limit() -> None:
    async with served(max_requests=0) as server, library(server) as client:
        with pytest.raises(openai.RateLimitError) as error:
            await client.models.list()
        assert (error.value.type, error.value.code) == ("rate_limit_error", "too_many_requests")
        headers = error.value.response.headers
        assert (headers["retry-after"], headers.get("x-should-retry")) == ("1", None)


# --- errors found by the HTTP server ---------------------------------------------------------

BAD_CHUNK = b"POST /v1/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
WIRE: dict[str, tuple[bytes, int, str | None]] = {
    "not HTTP": (b"\x16\x03\x01 hello\r\n\r\n", 400, None),
    "header": (b"GET /v1/models HTTP/1.1\r\nbad header\r\n\r\n", 400, None),
    "chunk": (BAD_CHUNK % b"taking", 400, None),
    "after HEAD": (b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\nhello\r\n\r\n", 400, None),
    "too long": (
        b"GET /v1/models HTTP/1.1\r\nX: " + b"x" * 70_000, 431, "headers_too_large",
    ),
    "more than 16 KiB": (
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 17_000 + b"\r\n\r\n",
        431, "headers_too_large",
    ),
    "many headers": (
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"X: yyyyyyyyyyyy\r\n" * 1_200 + b"\r\n",
        431, "headers_too_large",
    ),
    "two lengths": (
        b"POST /v1/taking HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0",
        400, None,
    ),
}  # fmt: skip


async def raw_response(server: Server, sent: bytes) -> bytes:
    """Send bytes and return the whole response of the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    writer.write(sent)
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()


def read(answer: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"content-length: %d" % len(body) in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(("sent", "status", "code"), WIRE.values(), ids=WIRE)
async def test_invalid_http_gets_an_error_in_the_common_shape(
    sent: bytes, status: int, code: str | None
) -> None:
    async with served() as server:
        answer = await raw_response(server, sent)
        if sent.startswith(b"HEAD"):
            _, _, answer = answer.partition(b"\r\n\r\n")
        found, error = read(answer)
        assert found == status
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["code"]) == (UNFIT, code)
        assert error["message"].endswith(".")


async def test_broken_body_after_the_response_began_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
        begun, broken = BAD_CHUNK.split(b"zz")
        writer.write(begun % b"talking")
        assert b"hello" in await reader.readuntil(b"hello")
        writer.write(b"zz" + broken)
        assert await reader.read() == b"\r\n"
        await server.left.wait()
        writer.close()
    assert "failed" not in caplog.text
    assert "exception" not in caplog.text.lower()


SLOW: dict[str, bytes] = {
    "headers": b"GET /v1/models HTTP/1.1\r\nHost: ",
    "body": b"POST /v1/taking HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nabc",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
async def test_slow_request_gets_408(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with served(ClientTimeouts(headers_seconds=0.1, body_seconds=0.1)) as server:
        status, error = read(await raw_response(server, sent))
        assert (status, error["code"]) == (408, "request_timeout")
        if b"POST" in sent:
            await server.left.wait()
    assert "failed" not in caplog.text


async def test_idle_connection_is_closed_without_a_response() -> None:
    async with served(ClientTimeouts(headers_seconds=0.05)) as server:
        assert await raw_response(server, b"") == b""
