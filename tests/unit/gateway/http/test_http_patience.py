"""Clients that take too long, over real connections."""

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
MUCH = b"x" * 16_000_000  # more than the kernel keeps on the way
SHORT = ClientTimeouts(headers_seconds=0.15, body_seconds=0.15, write_seconds=0.15)
LONG = ClientTimeouts(headers_seconds=60, body_seconds=60, write_seconds=60)


class Place:
    """A server, and what it has cut off."""

    def __init__(self, patience: ClientTimeouts) -> None:
        self.cut: asyncio.Queue[str] = asyncio.Queue()
        self.server = HttpServer("127.0.0.1", 0, patience, self.cut.put_nowait)
        self.left = asyncio.Event()
        self.go = asyncio.Event()
        self.received = 0

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/much":
                await _all(send, MUCH)
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
        """Leave a little of the answer in our own buffer, less than makes a sender wait."""
        await send(START)
        while not send.__self__.transport.get_write_buffer_size():
            await send({"type": "http.response.body", "body": b"x" * 8192, "more_body": True})
        await send({"type": "http.response.body", "body": b"x"})

    async def _stream(self, receive: Receive, send: Send) -> None:
        """Send without end, as an answer would that nobody reads."""

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
async def served(patience: ClientTimeouts) -> AsyncIterator[Place]:
    place = Place(patience)
    place.server.bind()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        serving = group.create_task(place.server.serve(place.app))
        yield place
        serving.cancel()


class Client:
    """Sends and reads what it is told to, no more."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def ask(self, path: str, *headers: str, method: str = "GET") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]
        self.writer.write("\r\n".join(lines).encode())

    async def ended_within(self, seconds: float) -> bool:
        """Whether the server leaves in that time."""
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
async def client(place: Place) -> AsyncIterator[Client]:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(0)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", place.server.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_a_connection_that_asks_for_nothing_is_cut() -> None:
    async with served(SHORT) as place, client(place) as silent:
        assert await silent.ended_within(5)
        assert await place.cut.get() == "slow_headers"


async def test_a_header_now_and_then_wins_no_time() -> None:
    async with served(SHORT) as place, client(place) as dripping:
        dripping.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
        pieces = 0
        while not await dripping.ended_within(0.03):
            dripping.writer.write(b"X-More: y\r\n")
            pieces += 1
        assert 1 <= pieces < 50
        assert place.cut.get_nowait() == "slow_headers"


async def test_a_second_request_on_a_connection_has_its_own_time() -> None:
    async with served(SHORT) as place, client(place) as twice:
        twice.ask("/", "Content-Length: 0")
        assert (await twice.reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        twice.writer.write(b"GET / HTTP/1.1\r\n")
        assert await twice.ended_within(5)
        assert await place.cut.get() == "slow_headers"


async def test_a_body_that_does_not_go_on_is_cut_and_its_route_told() -> None:
    async with served(SHORT) as place, client(place) as stuck:
        stuck.ask("/", "Content-Length: 100", method="POST")
        stuck.writer.write(b"half")
        assert await stuck.ended_within(5)
        assert await place.cut.get() == "slow_body"
        await place.left.wait()
        assert place.received == 4


async def test_a_body_that_goes_on_may_take_its_time() -> None:
    patience = ClientTimeouts(headers_seconds=0.3, body_seconds=0.3, write_seconds=0.3)
    async with served(patience) as place, client(place) as slow:
        slow.ask("/", "Content-Length: 20", "Connection: close", method="POST")
        for _ in range(20):  # all together twice as long as one piece may take
            assert not await slow.ended_within(0.03)
            slow.writer.write(b"x")
        assert b"20" in await slow.reader.read()
        assert place.cut.empty()


async def test_a_route_that_does_not_read_is_not_blamed_on_the_client() -> None:
    async with served(SHORT) as place, client(place) as sender:
        sender.ask("/late", "Content-Length: 3000000", "Connection: close", method="POST")
        sender.writer.write(b"x" * 3_000_000)
        assert not await sender.ended_within(0.5)
        place.go.set()
        assert b"3000000" in await sender.reader.read()
        assert place.cut.empty()


async def test_who_waits_to_be_told_to_send_is_not_cut() -> None:
    async with served(SHORT) as place, client(place) as polite:
        headers = ("Content-Length: 2", "Expect: 100-continue", "Connection: close")
        polite.ask("/late", *headers, method="POST")
        assert not await polite.ended_within(0.5)
        place.go.set()
        assert b"100 Continue" in await polite.reader.readuntil(b"\r\n\r\n")
        polite.writer.write(b"ok")
        assert b"200" in await polite.reader.read()
        assert place.cut.empty()


async def test_a_reader_that_stops_is_cut_and_its_stream_ends() -> None:
    async with served(SHORT) as place, client(place) as deaf:
        deaf.ask("/stream")
        assert await place.cut.get() == "slow_reader"
        await place.left.wait()


async def test_a_reader_that_goes_on_is_not_cut() -> None:
    async with served(ClientTimeouts(write_seconds=1.0)) as place, client(place) as slow:
        slow.ask("/stream")
        read = 0
        while read < 6_000_000:
            read += len(await slow.reader.read(65536))
        assert place.cut.empty()


@pytest.mark.parametrize("path", ["/much", "/rest"])
async def test_the_end_of_an_answer_that_nobody_takes_keeps_no_connection(path: str) -> None:
    async with served(SHORT) as place, client(place) as deaf:
        deaf.ask(path)
        assert await place.cut.get() == "slow_reader"


async def test_a_quick_client_is_never_cut() -> None:
    async with served(ClientTimeouts(headers_seconds=0.4)) as place, client(place) as quick:
        for _ in range(3):
            quick.ask("/", "Content-Length: 0")
            assert (await quick.reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert not await quick.ended_within(0.6)  # nor while it asks for nothing more
        assert place.cut.empty()


async def test_requests_sent_one_behind_the_other_are_all_answered() -> None:
    async with served(LONG) as place, client(place) as hasty:
        for _ in range(3):
            hasty.ask("/", "Content-Length: 0")
        hasty.ask("/", "Connection: close")
        answers = await hasty.reader.read(-1)
        assert answers.count(b"HTTP/1.1 200") == 4
        assert place.cut.empty()


# --- what is no HTTP -----------------------------------------------------------------------------


async def test_what_is_no_http_is_refused_in_our_shape() -> None:
    async with served(ClientTimeouts()) as place, client(place) as odd:
        odd.writer.write(b"\x16\x03\x01 what is this?\r\n\r\n")
        head, _, body = (await odd.reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/json" in head
        error = json.loads(body)["error"]
        assert error["message"] == "This is not a valid HTTP request."
        assert error["type"] == "invalid_request_error"


async def test_a_body_that_breaks_while_it_is_answered_ends_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(ClientTimeouts()) as place, client(place) as odd:
        odd.ask("/stream", "Transfer-Encoding: chunked", method="POST")
        assert (await odd.reader.readline()).startswith(b"HTTP/1.1 200")
        odd.writer.write(b"no size\r\n")
        assert await odd.ended_within(5)
        await place.left.wait()
    assert {record.levelname for record in caplog.records} <= {"WARNING"}
