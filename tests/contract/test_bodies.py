"""Bodies that are read past the HTTP client, with the same results as through the client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import httpx2
import pytest

from agent.model.contract import Chunk
from agent.providers.transport import connections
from agent.providers.transport.http_client import make_http_client
from tests.contract.test_sockets import Answers, listening, proxy
from tests.fakes.certificates import certified

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
THREE = b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n"
LAST = b"0\r\n\r\n"


class Pieces:
    """A reader that records its input."""

    def __init__(self) -> None:
        self.done = False
        self.fed: list[bytes] = []

    def feed(self, received: bytes) -> Iterator[Chunk]:
        self.fed.append(received)
        yield from ()

    def close(self) -> Iterator[Chunk]:
        yield from ()


class Service:
    """A server that writes the same bytes, piece by piece, for every request."""

    def __init__(self, pieces: Sequence[bytes], *, closes: bool = False) -> None:
        self.connections = 0
        self.pieces = pieces
        self._closes = closes

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            await reader.readuntil(b"\r\n\r\n")
            for piece in self.pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if self._closes:
                writer.close()
                return


@contextlib.asynccontextmanager
async def asking(
    answers: Answers, *, ours: bool = True, patience: float = 5
) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    http = make_http_client(httpx2.Timeout(patience), own_sockets=ours)
    async with listening(answers) as port, http as client:
        yield client, f"http://127.0.0.1:{port}/"


async def fed(client: httpx2.AsyncClient, url: str) -> list[bytes]:
    reader = Pieces()
    async with client.stream("GET", url) as response:
        async for _ in connections.read_chunks(response, reader):
            pass
    return reader.fed


async def outcome(client: httpx2.AsyncClient, url: str) -> tuple[bytes, str]:
    """Return the body and the error that ended it."""
    reader = Pieces()
    try:
        async with client.stream("GET", url) as response:
            async for _ in connections.read_chunks(response, reader):
                pass
    except httpx2.HTTPError as error:
        return b"".join(reader.fed), f"{type(error).__name__}: {error}"
    return b"".join(reader.fed), ""


async def test_chunks_in_one_read_are_joined_and_the_connection_is_reused() -> None:
    service = Service([])
    async with asking(service) as (client, url):
        for place in range(len(b"HTTP/"), len(CHUNKED)):  # the head in two pieces
            service.pieces = [CHUNKED[:place], CHUNKED[place:] + THREE + LAST]
            assert await fed(client, url) == [
                b"onetwothree"
            ]  # the client itself yields three pieces
    assert service.connections == 1


@pytest.mark.parametrize(
    "wire",
    [
        CHUNKED + THREE + LAST,
        b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + THREE + b"0\r\nsum: 1\r\n\r\n",
        CHUNKED + b"3;a=b\r\none\r\n" + THREE + LAST,
        b"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n" + THREE + LAST,
        CHUNKED + b"e\r\nHTTP/1.1\r\n\r\nab\r\n" + LAST,
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na\r\n\r\nb\n\nc",
    ],
)
async def test_a_split_at_any_byte_gives_the_same_body(wire: bytes) -> None:
    """Send the response in two pieces, split at every byte in turn."""
    service = Service([wire])
    async with asking(service, ours=False) as (client, url):
        expected = await outcome(client, url)
    assert not expected[1]
    service.connections = 0
    async with asking(service) as (client, url):
        for place in range(1, len(wire)):
            service.pieces = [wire[:place], wire[place:]]
            assert await outcome(client, url) == expected, place
    assert service.connections == 1


@pytest.mark.parametrize(
    "rest", [b"", b"3", b"3\r\n", b"3\r\non", b"3\r\none", b"3\r\none\r", b"3\r\none\r\n", b"x\r\n"]
)
async def test_a_truncated_body_fails_as_with_the_client(rest: bytes) -> None:
    wire = CHUNKED + THREE + rest
    found = []
    for ours in (False, True):
        async with asking(Service([wire], closes=True), ours=ours) as (client, url):
            found.append(await outcome(client, url))
    (body, said), (by_us, by_us_said) = found
    assert by_us == body
    assert said.startswith("RemoteProtocolError: ")
    assert by_us_said.startswith("RemoteProtocolError: ")


async def test_silence_in_a_body_is_a_read_timeout() -> None:
    async with asking(Service([CHUNKED + THREE]), patience=0.1) as (client, url):
        assert await outcome(client, url) == (b"onetwothree", "ReadTimeout: ")


async def test_a_finished_reader_leaves_a_reusable_connection() -> None:
    """The end marker arrives in the middle of a chunk, and the rest of the chunk a little later."""

    class Impatient(Pieces):
        def feed(self, received: bytes) -> Iterator[Chunk]:
            self.done = True
            return super().feed(received)

    service = Service([CHUNKED + b"5\r\nth", b"ree\r\n", LAST])
    async with asking(service) as (client, url):
        for _ in range(3):
            reader = Impatient()
            async with client.stream("GET", url) as response:
                async for _chunk in connections.read_chunks(response, reader):
                    pass
            assert len(reader.fed) == 1
    assert service.connections == 1


async def test_a_compressed_body_is_decoded_by_the_client() -> None:
    packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcbH\xcd\xc9\xc9\x07\x00\x86\xa6\x106\x05\x00\x00\x00"
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n"
    async with asking(Service([head + b"%x\r\n%b\r\n" % (len(packed), packed) + LAST])) as (
        client,
        url,
    ):
        assert await fed(client, url) == [b"hello"]


async def test_bodies_are_read_directly_in_tls_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, believing = certified(tmp_path, "model.test")
    service = Service([CHUNKED + THREE + LAST])
    async with listening(service, served) as port, listening(proxy) as between:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{between}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with make_http_client(httpx2.Timeout(5), tls=believing) as client:
            for _ in range(2):
                assert await fed(client, f"https://model.test:{port}/") == [b"onetwothree"]
    assert service.connections == 1
