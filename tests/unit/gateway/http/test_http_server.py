"""The HTTP server: binding, releasing the port, and a quick shutdown."""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import CannotStart
from gateway.http import HttpServer, PortTaken
from gateway.http import server as server_module
from tests.fakes.http_client import local_client

START = {"type": "http.response.start", "status": 200, "headers": []}


async def hello(_: Scope, __: Receive, send: Send) -> None:
    await send(START)
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[tuple[HttpServer, asyncio.Task[None]]]:
    server = HttpServer("127.0.0.1", 0)
    server.bind()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(server.serve(app))
        yield server, task
        task.cancel()


async def test_real_port_is_known_after_bind() -> None:
    server = HttpServer("127.0.0.1", 0)
    server.bind()
    assert server.port > 0
    assert server.url == f"http://127.0.0.1:{server.port}/"
    server.close()
    server.close()


async def test_connections_have_tcp_nodelay() -> None:
    server = HttpServer("127.0.0.1", 0)
    server.bind()
    assert server._socket
    with socket.create_connection(("127.0.0.1", server.port)):
        accepted, _ = server._socket.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    server.close()


async def test_connection_made_before_serving_is_answered() -> None:
    server = HttpServer("127.0.0.1", 0)
    server.bind()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(server.serve(hello))
        assert (await reader.read()).endswith(b"hello\r\n0\r\n\r\n")
        writer.close()
        task.cancel()


async def test_serve_binds_the_port_if_necessary() -> None:
    server = HttpServer("127.0.0.1", 0)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(server.serve(hello))
        await asyncio.sleep(0)
        assert server.port > 0
        task.cancel()


async def test_occupied_port_raises_a_clear_error() -> None:
    first = HttpServer("127.0.0.1", 0)
    first.bind()
    second = HttpServer("127.0.0.1", first.port)
    with pytest.raises(PortTaken, match=rf"Port {first.port} on 127\.0\.0\.1 is already in use"):
        second.bind()
    assert issubclass(PortTaken, CannotStart)
    first.close()
    second.bind()
    second.close()


async def test_foreign_address_raises_a_clear_error() -> None:
    with pytest.raises(PortTaken, match=r"Cannot listen on 203.* port 0: .*Check http\.host"):
        HttpServer("203.0.113.7", 0).bind()


async def test_privileged_port_raises_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object, **__: object) -> socket.socket:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refused)
    with pytest.raises(PortTaken, match="one above 1023"):
        HttpServer("127.0.0.1", 80).bind()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8420/"),
        ("::1", "http://[::1]:8420/"),
        ("[::1]", "http://[::1]:8420/"),
        ("::ffff:127.0.0.1", "http://127.0.0.1:8420/"),
        ("::", "http://[::1]:8420/"),
        ("0.0.0.0", "http://127.0.0.1:8420/"),  # noqa: S104 - only the name, nothing is bound
        ("localhost", "http://localhost:8420/"),
    ],
)
def test_url_can_be_opened_on_this_machine(host: str, url: str) -> None:
    assert HttpServer(host, 8420).url == url


@pytest.mark.parametrize(
    ("host", "address", "private"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("[::1]", "::1", True),
        ("0.0.0.0", "0.0.0.0", False),  # noqa: S104 - nothing is served
        ("::", "::", False),
    ],
)
def test_bound_address_is_known_after_bind(host: str, address: str, *, private: bool) -> None:
    server = HttpServer(host, 0)
    assert (server.bound_host, server.is_local_only) == ("", False)
    server.bind()
    try:
        assert (server.bound_host, server.is_local_only) == (address, private)
    finally:
        server.close()


async def test_port_is_free_after_serving() -> None:
    async with serving(hello) as (server, task):
        async with local_client() as client:
            assert (await client.get(server.url)).text == "hello"
        task.cancel()
        await asyncio.wait([task])
    again = HttpServer("127.0.0.1", server.port)
    again.bind()
    again.close()


async def test_server_leaves_the_signal_handlers_alone() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    async with serving(hello) as (server, _), local_client() as client:
        await client.get(server.url)
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


async def test_shutdown_disconnects_open_streams() -> None:
    order = []

    async def stream(_: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        order.append((await receive())["type"])
        order.append((await receive())["type"])
        order.append((await receive())["type"])
        await send({"type": "http.response.body", "body": b" ended"})

    async with (
        serving(stream) as (server, task),
        local_client() as client,
        client.stream("GET", server.url) as response,
    ):
        pieces = response.aiter_bytes()
        assert await anext(pieces) == b"begun"
        task.cancel()
        async with asyncio.timeout(1):  # well before the end of the grace period
            assert await anext(pieces) == b" ended"
    assert order == ["http.request", "http.disconnect", "http.disconnect"]


async def test_hanging_response_is_cancelled_after_the_grace_period(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "_SHUTDOWN_GRACE_SECONDS", 0.05)
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def hanging(_: Scope, __: Receive, ___: Send) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with caplog.at_level(logging.WARNING):
        async with serving(hanging) as (server, task):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await entered.wait()
            task.cancel()
            assert await reader.read() == b""
            writer.close()
        await cancelled.wait()
    assert "cancelled HTTP responses that did not end within" in caplog.text


async def test_short_response_in_progress_is_finished_at_shutdown() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await go.wait()
        await hello(scope, receive, send)

    async with serving(slow) as (server, task), local_client() as client:
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(client.get(server.url))
            await entered.wait()
            task.cancel()
            await asyncio.sleep(0)
            go.set()
        assert answer.result().text == "hello"
