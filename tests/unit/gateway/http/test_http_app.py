"""Middleware, health checks and errors of the application, over a real server."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from typing import Any

import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gateway.http import app as app_module
from gateway.http import build_app
from tests.fakes.hosted import hosted
from tests.fakes.http_client import local_client


class Health:
    def __init__(self) -> None:
        self.found: list[str] = []
        self.hangs = False

    async def problems(self) -> Sequence[str]:
        if self.hangs:
            await asyncio.Event().wait()
        return self.found

    def mode(self) -> str:
        return "running"


async def echo(request: Request) -> Response:
    return Response(await request.body(), headers={"referrer-policy": "origin"})


async def failing(_: Request) -> Response:
    msg = "a secret of the inside"
    raise RuntimeError(msg)


async def refusing(_: Request) -> Response:
    raise HTTPException(418, "I am a teapot", headers={"x-tea": "green"})


async def breaking_off(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"begun"
        msg = "broke off"
        raise RuntimeError(msg)

    return StreamingResponse(pieces())


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def client(health: Health) -> AsyncIterator[httpx2.AsyncClient]:
    routes = [
        Route("/echo", echo, methods=["GET", "POST"]),
        Route("/failing", failing),
        Route("/refusing", refusing),
        Route("/breaking-off", breaking_off),
    ]
    app = build_app(
        routes,
        health=health,
        allowed_hosts=["chat.example", "tls.example:8443"],
        hosts_by_path={"/failing": ["Hook.example"], "/refusing": ["*"]},
        max_body_bytes=1_000,
    )
    async with hosted(app) as server, local_client(server.url) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9999", 200),
        ("localhost:8420", 200),
        ("LOCALHOST", 200),
        ("localhost.", 200),
        ("[::1]:8420", 200),
        ("chat.example", 200),
        ("chat.example:80", 200),
        ("tls.example:8443", 200),
        ("tls.example:80", 403),  # allowed on that port alone
        ("evil.example", 403),  # DNS rebinding
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("chat.example.evil.example", 403),
        ("127.0.0.1@evil.example", 403),
        ("evil.example#127.0.0.1", 403),
        ("127.0.0.1:80:80", 403),
        ("0.0.0.0", 403),  # noqa: S104 - a Host header, nothing is bound
        ("[::1", 403),
        ("", 403),
    ],
)
async def test_unknown_host_headers_are_refused(
    client: httpx2.AsyncClient, host: str, status: int
) -> None:
    answer = await client.get("/echo", headers={"Host": host})
    assert answer.status_code == status
    if status == 403:
        assert "address printed at start" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/failing", "hook.example", 500),
        ("/failing", "hook.example:443", 500),
        ("/failing", "chat.example", 500),
        ("/failing", "evil.example", 403),
        ("/failing", "", 403),
        ("/failing/", "hook.example", 403),
        ("/refusing", "any.example", 418),
        ("/refusing", "any example", 403),
        ("/echo", "hook.example", 403),
    ],
)
async def test_single_paths_can_accept_more_hosts(
    client: httpx2.AsyncClient, path: str, host: str, status: int
) -> None:
    assert (await client.get(path, headers={"Host": host})).status_code == status


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8420", 200),
        ("https://127.0.0.1:8420", 200),  # behind a TLS proxy
        ("https://tls.example:8443", 200),
        ("http://127.0.0.1:3000", 403),  # another program on this machine
        ("http://localhost:8420", 403),
        ("http://evil.example", 403),
        ("http://127.0.0.1:8420.evil.example", 403),
        ("ftp://127.0.0.1:8420", 403),
        ("null", 403),
        ("http://[::1", 403),  # malformed address
        ("http://127.0.0.1:8420/", 403),  # an origin has no path
        ("", 403),
    ],
)
async def test_requests_with_a_foreign_origin_are_refused(
    client: httpx2.AsyncClient, method: str, origin: str, status: int
) -> None:
    headers = {"Host": "127.0.0.1:8420", "Origin": origin}
    answer = await client.request(method, "/echo", headers=headers)
    assert answer.status_code == status


async def test_requests_without_an_origin_are_served(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/echo", content=b"hello")).content == b"hello"


@pytest.mark.parametrize("said", [True, False])
async def test_oversized_body_is_refused_with_or_without_content_length(
    client: httpx2.AsyncClient, *, said: bool
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 500

    content = b"x" * 1_500 if said else pieces()
    answer = await client.post("/echo", content=content)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert (await client.post("/echo", content=b"x" * 1_000)).status_code == 200


@pytest.mark.parametrize("said", [True, False])
async def test_client_that_sends_its_whole_oversized_body_still_reads_the_413(
    client: httpx2.AsyncClient, *, said: bool
) -> None:
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    length = b"Content-Length: 8000000" if said else b"Transfer-Encoding: chunked"
    writer.write(b"POST /echo HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n\r\n")
    async with asyncio.timeout(8):
        for _ in range(100):
            writer.write(b"x" * 80_000 if said else b"13880\r\n" + b"x" * 80_000 + b"\r\n")
            await writer.drain()
        if not said:
            writer.write(b"0\r\n\r\n")
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"This request is too large."' in answer


async def test_endless_oversized_body_is_discarded_for_a_limited_time(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.guard.DISCARD_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\nx")
    async with asyncio.timeout(5):
        assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
    writer.close()


async def test_expect_continue_with_an_oversized_body_is_refused_at_once(
    client: httpx2.AsyncClient,
) -> None:
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    asked = b"Content-Length: 9999\r\nExpect: 100-continue\r\n\r\n"
    writer.write(b"POST /echo HTTP/1.1\r\nHost: localhost\r\n" + asked)
    async with asyncio.timeout(2):
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()


async def test_every_response_has_the_security_headers(client: httpx2.AsyncClient) -> None:
    for path in ("/livez", "/echo", "/nothing", "/failing"):
        headers = (await client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["referrer-policy"] == ("origin" if path == "/echo" else "no-referrer")
        assert "server" not in headers
    refused = await client.get("/livez", headers={"Host": "evil.example"})
    assert refused.headers["x-frame-options"] == "DENY"


async def test_failing_route_answers_500_and_logs_the_traceback(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await client.get("/failing")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text
    assert "a secret of the inside" in caplog.text
    assert "GET /failing failed" in caplog.text
    assert (await client.get("/livez")).status_code == 200


async def test_failing_stream_closes_the_connection_without_its_end(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.get("/breaking-off")
    assert "broke off" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "sentence"),
    [
        ("GET", "/nothing", 404, "unknown_url", "There is nothing at this address."),
        ("PUT", "/echo", 405, "method_not_supported", "This address does not support that method."),
        ("GET", "/refusing", 418, None, "I am a teapot."),
    ],
)
async def test_errors_of_starlette_have_the_common_shape(
    client: httpx2.AsyncClient, method: str, path: str, status: int, code: str, sentence: str
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == status
    kind = "invalid_request_error"
    error = {"message": sentence, "type": kind, "param": None, "code": code}
    assert answer.json() == {"error": error}
    assert status != 418 or answer.headers["x-tea"] == "green"


async def test_readyz_lists_the_problems(client: httpx2.AsyncClient, health: Health) -> None:
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"ready": True, "not_ready": [], "status": "running"},
    )
    health.found = ["web: connecting"]
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "not_ready": ["web: connecting"], "status": "running"}
    assert (await client.get("/livez")).status_code == 200


async def test_hanging_health_check_means_not_ready(
    client: httpx2.AsyncClient, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "_HEALTH_TIMEOUT", 0.01)
    health.hangs = True
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["not_ready"] == ["health: no answer within 0.01 s"]


PAGE = "https://app.example.org"
ASKS = {"access-control-request-method": "POST"}


@pytest.fixture
async def open_api() -> AsyncIterator[httpx2.AsyncClient]:
    routes = [
        Route("/v1/echo", echo, methods=["POST"]),
        Route("/web/echo", echo, methods=["POST"]),
    ]
    origins = [PAGE, "chrome-extension://abc"]
    app = build_app(routes, health=Health(), cors_origins=origins, max_body_bytes=1_000)
    async with hosted(app) as server, local_client(server.url) as client:
        yield client


@pytest.mark.parametrize(
    ("origin", "path", "status"),
    [
        (PAGE, "/v1/echo", 200),
        ("chrome-extension://abc", "/v1/echo", 200),
        (PAGE, "/web/echo", 403),
        (f"{PAGE}:8443", "/v1/echo", 403),
        ("http://app.example.org", "/v1/echo", 403),
        ("https://evil.app.example.org", "/v1/echo", 403),
        ("null", "/v1/echo", 403),
        ("*", "/v1/echo", 403),
    ],
)
async def test_only_listed_origins_may_call_only_the_api(
    open_api: httpx2.AsyncClient, origin: str, path: str, status: int
) -> None:
    answer = await open_api.post(path, headers={"origin": origin}, content=b"x")
    assert answer.status_code == status
    allowed = answer.headers.get("access-control-allow-origin")
    assert allowed == (origin if status == 200 else None)
    assert "access-control-allow-credentials" not in answer.headers


async def test_preflights_name_methods_and_headers(open_api: httpx2.AsyncClient) -> None:
    headers = {
        **ASKS,
        "origin": PAGE,
        "access-control-request-headers": "authorization, content-type",
        "access-control-request-private-network": "true",
    }
    answer = await open_api.options("/v1/echo", headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE"
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert answer.headers["vary"] == "Origin"
    odd = headers | {"access-control-request-headers": "a b"}
    answer = await open_api.options("/v1/echo", headers=odd)
    assert "access-control-allow-headers" not in answer.headers


async def test_preflights_of_other_origins_and_hosts_are_refused(
    open_api: httpx2.AsyncClient,
) -> None:
    foreign = {**ASKS, "origin": "https://evil.example"}
    assert (await open_api.options("/v1/echo", headers=foreign)).status_code == 403
    rebound = {**ASKS, "origin": PAGE, "host": "evil.example"}
    assert (await open_api.options("/v1/echo", headers=rebound)).status_code == 403


async def test_a_page_can_read_errors(open_api: httpx2.AsyncClient) -> None:
    answer = await open_api.post("/v1/echo", headers={"origin": PAGE}, content=b"x" * 1_001)
    assert answer.status_code == 413
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


async def test_wildcard_host_does_not_allow_foreign_origins() -> None:
    app = build_app([Route("/echo", echo)], health=Health(), allowed_hosts=["*"])
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://any.example") as client:
        assert (await client.get("/echo")).status_code == 200
        foreign = {"Origin": "http://evil.example"}
        assert (await client.get("/echo", headers=foreign)).status_code == 403


async def test_lifespan_messages_pass_the_guard() -> None:
    heard = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    said = []

    async def receive() -> dict[str, str]:
        return next(heard)

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message["type"])

    await build_app([], health=Health())({"type": "lifespan"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
