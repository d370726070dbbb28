"""Timeouts for slow clients, over real connections."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from gateway.http import HttpServer
from gateway.http.client_timeouts import ClientTimeouts

pytestmark = pytest.mark.quick

START = {"type": "http.response.start", "status": 200, "headers": []}
LARGE_BODY = b"x" * 16_000_000  # more than the kernel buffers
SHORT = ClientTimeouts(headers_seconds=0.15, body_seconds=0.15, write_seconds=0.15)
LONG = ClientTimeouts(headers_seconds=60, body_seconds=60, write_seconds=60)


class Server:
    """A server, and the reasons of its disconnects."""

    def __init__(self, timeouts: ClientTimeouts) -> None:
        self.cut: asyncio.Queue[str] = asyncio.Queue()
        self.server = HttpServer("127.0.0.1", 0, timeouts, self.cut.put_nowait)
        self.left = asyncio.Event()
        self.go = asyncio.Event()
        self.received = 0

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/much":
                await _all(send, LARGE_BODY)
            case "/rest":
                await self._rest(send)
            case "/stream":
                await self._stream(receive, send)
            case "/late":
                await self.go.wait()
                await self._take(receive)
                await _all(send, b"%d" % self.received)
            case _:
                await self._take(receive)
                await _all(send, b"%d" % self.received)

    async def _take(self, receive: Receive) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            self.received += len(message["body"])
            more = message["more_body"]

    async def _rest(self, send: Any) -> None:
        """Leave a small rest of the response in the write buffer, too small to pause the sender."""
        await send(START)
        while not send.__self__.transport.get_write_buffer_size():
            await send({"type": "http.response.body", "body": b"x" * 8192, "more_body": True})
        await send({"type": "http.response.body", "body": b"x"})

    async def _stream(self, receive: Receive, send: Send) -> None:
        """Send an endless stream."""

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left.set()

        await send(START)
        async with asyncio.TaskGroup() as group:
            group.create_task(listen())
            while not self.left.is_set():
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)


async def _all(send: Send, body: bytes) -> None:
    await send(START)
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(timeouts: ClientTimeouts) -> AsyncIterator[Server]:
    server = Server(timeouts)
    server.server.bind()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        serving = group.create_task(server.server.serve(server.app))
        yield server
        serving.cancel()


class Client:
    """A raw client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def ask(self, path: str, *headers: str, method: str = "GET") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]
        self.writer.write("\r\n".join(lines).encode())

    async def closed_within(self, seconds: float) -> bool:
        """Return True if the server closes the connection within the time."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(4096):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


@asynccontextmanager
async def client(server: Server) -> AsyncIterator[Client]:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(0)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", server.server.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_connection_without_a_request_is_closed() -> None:
    async with served(SHORT) as server, client(server) as silent:
        assert await silent.closed_within(5)
        assert await server.cut.get() == "slow_headers"


async def test_one_waiting_connection_too_many_closes_the_oldest() -> None:
    async with (
        served(ClientTimeouts(max_waiting=2)) as server,
        client(server) as busy,
        client(server) as oldest,
    ):
        busy.ask("/stream")
        await busy.reader.read(1)
        async with client(server) as second, client(server) as newest:
            assert await oldest.closed_within(5)
            assert server.cut.get_nowait() == "too_many_waiting"
            for other in (second, newest):
                assert not await other.closed_within(0.05)
                other.ask("/all")
                assert await other.reader.read(4096)
        assert await busy.reader.read(1)


async def test_slow_headers_do_not_extend_the_timeout() -> None:
    async with served(SHORT) as server, client(server) as dripping:
        dripping.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
        pieces = 0
        while not await dripping.closed_within(0.03):
            dripping.writer.write(b"X-More: y\r\n")
            pieces += 1
        assert 1 <= pieces < 50
        assert server.cut.get_nowait() == "slow_headers"


async def test_second_request_on_a_connection_has_its_own_timeout() -> None:
    async with served(SHORT) as server, client(server) as twice:
        twice.ask("/", "Content-Length: 0")
        assert (await twice.reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        twice.writer.write(b"GET / HTTP/1.1\r\n")
        assert await twice.closed_within(5)
        assert await server.cut.get() == "slow_headers"


async def test_stalled_body_disconnects_the_client_and_informs_the_route() -> None:
    async with served(SHORT) as server, client(server) as stuck:
        stuck.ask("/", "Content-Length: 100", method="POST")
        stuck.writer.write(b"half")
        assert await stuck.closed_within(5)
        assert await server.cut.get() == "slow_body"
        await server.left.wait()
        assert server.received == 4


async def test_slow_body_with_progress_is_not_cut_off() -> None:
    timeouts = ClientTimeouts(headers_seconds=0.3, body_seconds=0.3, write_seconds=0.3)
    async with served(timeouts) as server, client(server) as slow:
        slow.ask("/", "Content-Length: 20", "Connection: close", method="POST")
        for _ in range(20):  # in total twice the limit of one piece
            assert not await slow.closed_within(0.03)
            slow.writer.write(b"x")
        assert b"20" in await slow.reader.read()
        assert server.cut.empty()


async def test_client_is_not_cut_off_while_the_route_does_not_read() -> None:
    async with served(SHORT) as server, client(server) as sender:
        sender.ask("/late", "Content-Length: 3000000", "Connection: close", method="POST")
        sender.writer.write(b"x" * 3_000_000)
        assert not await sender.closed_within(0.5)
        server.go.set()
        assert b"3000000" in await sender.reader.read()
        assert server.cut.empty()


async def test_client_waiting_for_100_continue_is_not_cut_off() -> None:
    async with served(SHORT) as server, client(server) as polite:
        headers = ("Content-Length: 2", "Expect: 100-continue", "Connection: close")
        polite.ask("/late", *headers, method="POST")
        assert not await polite.closed_within(0.5)
        server.go.set()
        assert b"100 Continue" in await polite.reader.readuntil(b"\r\n\r\n")
        polite.writer.write(b"ok")
        assert b"200" in await polite.reader.read()
        assert server.cut.empty()


async def test_stalled_reader_is_disconnected_and_its_stream_ends() -> None:
    async with served(SHORT) as server, client(server) as deaf:
        deaf.ask("/stream")
        assert await server.cut.get() == "slow_reader"
        await server.left.wait()


async def test_slow_reader_with_progress_is_not_cut_off() -> None:
    async with served(ClientTimeouts(write_seconds=1.0)) as server, client(server) as slow:
        slow.ask("/stream")
        read = 0
        while read < 6_000_000:
            read += len(await slow.reader.read(65536))
        assert server.cut.empty()


@pytest.mark.parametrize("path", ["/much", "/rest"])
async def test_unread_end_of_a_response_does_not_keep_the_connection(path: str) -> None:
    async with served(SHORT) as server, client(server) as deaf:
        deaf.ask(path)
        assert await server.cut.get() == "slow_reader"


async def test_fast_client_is_never_cut_off() -> None:
    async with served(ClientTimeouts(headers_seconds=0.4)) as server, client(server) as quick:
        for _ in range(3):
            quick.ask("/", "Content-Length: 0")
            assert (await quick.reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert not await quick.closed_within(0.6)  # also while idle
        assert server.cut.empty()


async def test_pipelined_requests_are_all_answered() -> None:
    async with served(LONG) as server, client(server) as hasty:
        for _ in range(3):
            hasty.ask("/", "Content-Length: 0")
        hasty.ask("/", "Connection: close")
        answers = await hasty.reader.read(-1)
        assert answers.count(b"HTTP/1.1 200") == 4
        assert server.cut.empty()


# --- invalid HTTP --------------------------------------------------------------------------------


async def test_invalid_http_gets_a_json_error() -> None:
    async with served(ClientTimeouts()) as server, client(server) as odd:
        odd.writer.write(b"\x16\x03\x01 what is this?\r\n\r\n")
        head, _, body = (await odd.reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/json" in head
        error = json.loads(body)["error"]
        assert error["message"] == "This is not a valid HTTP request."
        assert error["type"] == "invalid_request_error"


async def test_broken_body_during_the_response_ends_the_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(ClientTimeouts()) as server, client(server) as odd:
        odd.ask("/stream", "Transfer-Encoding: chunked", method="POST")
        assert (await odd.reader.readline()).startswith(b"HTTP/1.1 200")
        odd.writer.write(b"no size\r\n")
        assert await odd.closed_within(5)
        await server.left.wait()
    assert {record.levelname for record in caplog.records} <= {"WARNING"}
