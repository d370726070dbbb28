"""The network backend over real sockets, in TLS and through a proxy."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpcore2
import httpx2
import pytest

from agent.providers.anthropic import clients as anthropic_clients
from agent.providers.openai import clients as openai_clients
from agent.providers.transport import sockets
from agent.providers.transport.http_client import make_http_client
from agent.settings import TargetSettings
from tests.fakes.certificates import certified

Answers = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HELLO = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


@contextlib.asynccontextmanager
async def listening(answers: Answers, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on loopback; abort all connections at the end."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
            await answers(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[httpcore2.AsyncNetworkStream]:
    stream = await sockets.SocketBackend().connect_tcp("127.0.0.1", port, timeout=5)
    try:
        yield stream
    finally:
        await stream.aclose()


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the same response to each request."""
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HELLO)


async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect to loopback at the port of the CONNECT request, ignoring the host name."""
    asked = (await reader.readuntil(b"\r\n\r\n")).split()
    assert asked[0] == b"CONNECT"
    port = int(asked[1].rpartition(b":")[2])
    there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while chunk := await source.read(1000):
            target.write(chunk)
        target.close()

    async with asyncio.TaskGroup() as both:
        both.create_task(pass_on(reader, there_writer))
        both.create_task(pass_on(there_reader, writer))


async def writes(stream: httpcore2.AsyncNetworkStream, data: bytes, *, timeout: float) -> None:  # noqa: ASYNC109 - passed on
    """Write until the connection accepts no more."""
    for _ in range(1_000):
        await stream.write(data, timeout=timeout)
        await asyncio.sleep(0)


async def carrier_and_text(client: httpx2.AsyncClient, url: str) -> tuple[type, str]:
    """Return what carries the connection of a request, and the body of its response."""
    async with client.stream("GET", url) as response:
        await response.aread()
        return type(response.extensions["network_stream"]), response.text


async def test_bytes_are_read_in_order_in_any_sizes_until_the_end() -> None:
    sent = bytes(range(256)) * 2_000

    async def answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        writer.close()

    async with listening(answers) as port, connected(port) as stream:
        came = bytearray()
        sizes = iter([1, 7, 1000] * 100_000)
        while piece := await stream.read(next(sizes), timeout=5):
            came += piece
        assert came == sent
        assert await stream.read(10, timeout=5) == b""


async def test_reading_pauses_when_too_many_bytes_are_unread() -> None:
    written = asyncio.Event()

    async def answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)
        for _piece in range(200):
            writer.write(b"x" * 100_000)
            await writer.drain()
        written.set()
        writer.close()

    async with listening(answers) as port, connected(port) as stream:
        line = stream._protocol  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            while line.unread_bytes <= sockets.MAX_UNREAD_BYTES:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        before = line.unread_bytes
        await asyncio.sleep(0.1)
        assert line.unread_bytes == before < 2 * sockets.MAX_UNREAD_BYTES
        assert not written.is_set()
        size = 0
        while piece := await stream.read(65_536, timeout=5):
            size += len(piece)
        assert size == 20_000_000


async def test_silence_is_a_timeout_and_later_bytes_can_be_read() -> None:
    speak = asyncio.Event()

    async def answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await speak.wait()
        writer.write(b"at last")
        await asyncio.Event().wait()

    async with listening(answers) as port, connected(port) as stream:
        for patience in (60, 0.05, 0.05):
            with pytest.raises((httpcore2.ReadTimeout, TimeoutError)):
                async with asyncio.timeout(0.2):
                    await stream.read(10, timeout=patience)
        with pytest.raises(httpcore2.ReadTimeout):  # although an earlier read had a longer timeout
            async with asyncio.timeout(5):
                await stream.read(10, timeout=0.05)
        reading = asyncio.create_task(stream.read(10, timeout=5))  # noqa: TID251 - ended below
        await asyncio.sleep(0)
        reading.cancel()  # without losing bytes
        await asyncio.wait({reading})
        speak.set()
        assert await stream.read(10, timeout=5) == b"at last"


async def test_a_peer_that_reads_nothing_is_a_write_timeout() -> None:
    async def answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can
        await asyncio.Event().wait()

    async with listening(answers) as port, connected(port) as stream:
        with pytest.raises(httpcore2.WriteTimeout):
            await writes(stream, b"x" * 1_000_000, timeout=0.05)


async def test_unsent_bytes_do_not_keep_a_closed_connection_open() -> None:
    async def answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can
        await asyncio.Event().wait()

    async with listening(answers) as port:
        for hurries in (False, True):
            stream = await sockets.SocketBackend().connect_tcp("127.0.0.1", port, timeout=5)
            with pytest.raises(httpcore2.WriteTimeout):
                await writes(stream, b"x" * 1_000_000, timeout=0.05)
            closing = asyncio.create_task(stream.aclose())  # noqa: TID251 - ended below
            if hurries:
                await asyncio.sleep(0)
                closing.cancel()
            async with asyncio.timeout(5):
                await asyncio.wait({closing})
                await stream._protocol.closed.wait()  # type: ignore[attr-defined]


async def test_both_sdks_send_through_our_sockets() -> None:
    async with listening(hello) as port:
        settings = TargetSettings(base_url=f"http://127.0.0.1:{port}/v1")
        for make_client in (openai_clients._make_client, anthropic_clients._make_client):
            client = make_client(settings)
            response = await client.get("/", cast_to=httpx2.Response)
            assert isinstance(response.extensions["network_stream"], sockets.SocketStream)
            await client.close()


async def test_a_broken_connection_is_described_by_the_system_message() -> None:
    async def answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with listening(answers) as port, connected(port) as stream:
        with contextlib.suppress(httpcore2.ReadError):  # either a reset or an end of file
            assert await stream.read(10, timeout=5) == b""
        with pytest.raises(httpcore2.WriteError, match=r"closed|reset by peer|Broken pipe"):
            await writes(stream, b"x", timeout=5)
    with pytest.raises(httpcore2.ConnectError, match="Connect call failed"):
        await sockets.SocketBackend().connect_tcp("127.0.0.1", port, timeout=5)


async def test_certificates_are_verified_and_a_hanging_handshake_times_out(tmp_path: Path) -> None:
    served, believing = certified(tmp_path, "model.test")
    async with listening(hello, served) as port:
        url = f"https://model.test:{port}/"
        backend = sockets.SocketBackend()
        stream = await backend.connect_tcp("127.0.0.1", port, timeout=5)
        with pytest.raises(httpcore2.ConnectError, match="certificate verify failed"):
            await stream.start_tls(ssl.create_default_context(), "model.test", timeout=5)
        stream = await backend.connect_tcp("127.0.0.1", port, timeout=5)
        inside = await stream.start_tls(believing, "model.test", timeout=5)
        await inside.write(f"GET {url} HTTP/1.1\r\n\r\n".encode(), timeout=5)
        assert await inside.read(1000, timeout=5) == HELLO.removesuffix(b"hello")
        assert await inside.read(1000, timeout=5) == b"hello"
        assert inside.get_extra_info("ssl_object").version() == "TLSv1.3"
        await inside.aclose()
    async with listening(silent) as port:
        stream = await sockets.SocketBackend().connect_tcp("127.0.0.1", port, timeout=5)
        with pytest.raises(httpcore2.ConnectTimeout):
            await stream.start_tls(believing, "model.test", timeout=0.05)


async def test_a_connection_closed_while_idle_is_replaced() -> None:
    connections = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HELLO)
        writer.close()

    async with listening(once) as port, make_http_client(httpx2.Timeout(5)) as client:
        for expected in (1, 1, 2):
            carried = await carrier_and_text(client, f"http://127.0.0.1:{port}/")
            assert carried == (sockets.SocketStream, "hello")
            assert connections == expected
            await asyncio.sleep(0.05)  # until the close arrives


@pytest.mark.parametrize("own_sockets", [True, False])
async def test_a_proxy_of_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_sockets: bool
) -> None:
    served, believing = certified(tmp_path, "model.test")
    async with listening(hello, served) as port, listening(proxy) as between:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{between}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with make_http_client(
            httpx2.Timeout(5), tls=believing, own_sockets=own_sockets
        ) as client:
            for _ in range(2):
                carrier, text = await carrier_and_text(client, f"https://model.test:{port}/")
                assert text == "hello"
                assert (carrier is sockets.SocketStream) == own_sockets


async def test_a_host_in_no_proxy_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(hello) as port:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # answers no connection
        monkeypatch.setenv("NO_PROXY", "example.com,127.0.0.0/8")
        async with make_http_client(httpx2.Timeout(5)) as client:
            carried = await carrier_and_text(client, f"http://127.0.0.1:{port}/")
            assert carried == (sockets.SocketStream, "hello")


async def test_httpx2_carries_the_connections_when_the_switch_is_off() -> None:
    async with (
        listening(hello) as port,
        make_http_client(httpx2.Timeout(5), own_sockets=False) as client,
    ):
        carrier, text = await carrier_and_text(client, f"http://127.0.0.1:{port}/")
        assert text == "hello"
        assert carrier is not sockets.SocketStream


async def test_a_connection_is_kept_alive_before_the_response_begins() -> None:
    async with (
        listening(hello) as port,
        make_http_client(httpx2.Timeout(5)) as client,
        client.stream("GET", f"http://127.0.0.1:{port}/") as response,
    ):
        carried = response.extensions["network_stream"].get_extra_info("socket")
        assert carried.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert carried.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def test_all_connections_are_closed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    all_closing = asyncio.Barrier(3)
    closing: set[sockets.SocketStream] = set()
    close = sockets.SocketStream.aclose

    async def close_together(stream: sockets.SocketStream) -> None:
        if stream not in closing:
            closing.add(stream)
            await all_closing.wait()
        await close(stream)

    async with listening(hello) as port:
        client = make_http_client(httpx2.Timeout(5))
        async with asyncio.TaskGroup() as group:
            for _ in range(all_closing.parties):
                group.create_task(client.get(f"http://127.0.0.1:{port}/"))
        monkeypatch.setattr(sockets.SocketStream, "aclose", close_together)
        async with asyncio.timeout(5):
            await client.aclose()
