"""Carries the bytes of an HTTP connection in as few steps as asyncio needs.

The HTTP client's own way listens anew for each read, which is most of what a token costs: here the
socket is listened to all the time, and a read takes what is there. Of HTTP it knows only where the
head of an answer ends, so that the body behind it can be read past the client.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

import httpcore2

from agent.providers.transport.chunked import ChunkedDecoder
from agent.providers.transport.reach import connect_to_host

MAX_UNREAD_BYTES = 256 * 1024
"""Bytes after which nothing more is taken from a socket until somebody reads."""

_HTTP_PREFIX = b"HTTP/"
_BLANK_LINE = re.compile(rb"\n\r?\n")
_READ_BYTES = 64 * 1024  # that are taken from a socket
_CLOSE_SECONDS = 1.0  # for what is still to be written, and for the farewell of TLS

SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)
Opened = TypeVar("Opened")


class SocketBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections; see `httpcore2.AsyncNetworkBackend`."""

    def __init__(self) -> None:
        # One for all connections, as a read is over before the next begins. asyncio would set aside
        # 256 KB for each read, which takes longer than the reading.
        self._buffer = memoryview(bytearray(_READ_BYTES))

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface is theirs
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Reach a host; of several addresses the first that answers."""
        opened = connect_to_host(host, port, lambda: _SocketProtocol(self._buffer), local_address)
        return _apply_options(*await _connect_within(timeout, opened), socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait before it is tried again."""
        await asyncio.sleep(seconds)


async def _connect_within(seconds: float | None, opened: Awaitable[Opened]) -> Opened:
    try:
        async with asyncio.timeout(seconds):
            return await opened
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout(str(error)) from error
    except OSError as error:  # that of TLS is one, too
        raise httpcore2.ConnectError(_error_text(error)) from error


def _apply_options(
    transport: asyncio.Transport,
    protocol: "_SocketProtocol",
    options: Iterable[SocketOption] | None,
) -> "SocketStream":
    for option in options or ():
        transport.get_extra_info("socket").setsockopt(*option)
    return SocketStream(transport, protocol)


def _error_text(error: Exception | None) -> str:
    """The system's own sentence, without its number."""
    said = error.strerror if isinstance(error, OSError) else ""
    return said or str(error or "the connection is closed")


class _SocketProtocol(asyncio.BufferedProtocol):
    """What came and was not read, and whether more may be written."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self.transport: asyncio.Transport | None = None
        self.unread: list[bytes] = []
        self.unread_bytes = 0
        self.at_eof = False  # nothing more will come
        self.error: Exception | None = None
        self.closed = asyncio.Event()
        self.at_body = False  # what was read last ended with the head of an answer
        self._partial_head: bytes | None = None  # the last of a head that was read in part
        self.read_deadline = float("inf")
        self._waiting_reader: asyncio.Future[None] | None = None
        self._waiting_writers: list[asyncio.Future[None]] = []
        self._writing_paused = self._reading_paused = False
        self._read_timer: asyncio.TimerHandle | None = None

    # --- what asyncio tells ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Opened, or opened again inside of TLS."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - streams are all it is for
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - it is always the same
        """Say where to put what comes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Keep it for the reader."""
        self.unread.append(bytes(self._buffer[:nbytes]))
        self.unread_bytes += nbytes
        if self.unread_bytes > MAX_UNREAD_BYTES and self.transport and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> None:
        """The other side writes no more."""
        self.at_eof = True
        self._wake_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whichever side."""
        self.at_eof, self.error = True, self.error or exc
        self._writing_paused = False
        if self._read_timer:
            self._read_timer.cancel()
        self._wake_reader()
        for writer in self._waiting_writers:
            if not writer.done():
                writer.set_result(None)
        self.closed.set()

    def pause_writing(self) -> None:
        """The other side takes nothing."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._writing_paused = False
        for writer in self._waiting_writers:
            if not writer.done():
                writer.set_result(None)

    # --- reading --------------------------------------------------------------------------------

    def read_available(self, max_bytes: int) -> bytes:
        """Give what is there, but no more than `most`, and not beyond the head of an answer."""
        data = self.unread[0] if len(self.unread) == 1 else b"".join(self.unread)
        max_bytes = min(max_bytes, self._find_head_end(data))
        if len(data) > max_bytes:
            data, rest = data[:max_bytes], data[max_bytes:]
            self.unread, self.unread_bytes = [rest], len(rest)
        else:
            self.unread, self.unread_bytes = [], 0
        if self._reading_paused and self.transport and self.unread_bytes <= MAX_UNREAD_BYTES:
            self._reading_paused = False
            self.transport.resume_reading()
        return data

    def _find_head_end(self, data: bytes) -> int:
        """Say where a head ends, so that whoever reads it can read the body in another way."""
        self.at_body = False
        before = self._partial_head
        if before is None:
            if not data.startswith(_HTTP_PREFIX):
                return len(data)
            before = b""
        found = _BLANK_LINE.search(before + data)
        self.at_body = found is not None
        self._partial_head = None if found else (before + data)[-2:]
        return found.end() - len(before) if found else len(data)

    def put_back(self, data: bytes) -> None:
        """Have it read again."""
        self.unread.insert(0, data)
        self.unread_bytes += len(data)

    async def wait_readable(self, seconds: float | None) -> None:
        """Wait until there is something to read, or never will be."""
        loop = asyncio.get_running_loop()
        self.read_deadline = float("inf") if seconds is None else loop.time() + seconds
        # One clock for a connection, not one for each read: it looks again when it has run out.
        if self._read_timer and self._read_timer.when() > self.read_deadline:
            self._read_timer.cancel()
            self._read_timer = None
        if seconds is not None and self._read_timer is None:
            self._read_timer = loop.call_at(self.read_deadline, self._check_read_timeout, loop)
        self._waiting_reader = loop.create_future()
        try:
            await self._waiting_reader
        finally:
            self._waiting_reader = None

    def _wake_reader(self) -> None:
        if self._waiting_reader and not self._waiting_reader.done():
            self._waiting_reader.set_result(None)

    def _check_read_timeout(self, loop: asyncio.AbstractEventLoop) -> None:
        self._read_timer = None
        if self._waiting_reader is None or self.read_deadline == float("inf"):
            return  # the next read sets it again
        if loop.time() < self.read_deadline:
            self._read_timer = loop.call_at(self.read_deadline, self._check_read_timeout, loop)
        elif not self._waiting_reader.done():
            self._waiting_reader.set_exception(httpcore2.ReadTimeout())

    # --- writing --------------------------------------------------------------------------------

    async def wait_writable(self) -> None:
        """Wait until more may be written."""
        if not self._writing_paused:
            return
        writer = asyncio.get_running_loop().create_future()
        self._waiting_writers.append(writer)
        try:
            await writer
        finally:
            self._waiting_writers.remove(writer)


class SocketStream(httpcore2.AsyncNetworkStream):
    """One connection; see `httpcore2.AsyncNetworkStream`."""

    def __init__(self, transport: asyncio.Transport, protocol: _SocketProtocol) -> None:
        self._transport = transport
        self._protocol = protocol

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the interface is theirs
        """Give what has come, at least a byte; none when it is over."""
        line = self._protocol
        while not line.unread:
            if line.error:
                raise httpcore2.ReadError(_error_text(line.error)) from line.error
            if line.at_eof:
                return b""
            await line.wait_readable(timeout)
        return line.read_available(max_bytes)

    @property
    def at_body(self) -> bool:
        """Tell whether the HTTP client has read the head of an answer, and nothing behind it."""
        return self._protocol.at_body

    async def read_chunks(self, chunks: ChunkedDecoder, timeout: float | None) -> bytes:  # noqa: ASYNC109 - as above
        """Give some of a body; none when the rest of it, or its failure, is for the HTTP client."""
        line = self._protocol
        while chunks.rest is None:
            if not line.unread:
                if line.at_eof:
                    return b""
                await line.wait_readable(timeout)
            elif data := chunks.feed(line.read_available(MAX_UNREAD_BYTES)):
                return data
        line.put_back(chunks.rest)
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the interface is theirs
        """Hand over all of it."""
        line = self._protocol
        if line.closed.is_set() or self._transport.is_closing():
            raise httpcore2.WriteError(_error_text(line.error)) from line.error
        self._transport.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                await line.wait_writable()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout(str(error)) from error
        if line.error:
            raise httpcore2.WriteError(_error_text(line.error)) from line.error

    async def aclose(self) -> None:
        """Close it; one that does not let itself be closed is broken off, also when we must hurry."""
        self._transport.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._protocol.closed.wait()
        finally:
            if (
                not self._protocol.closed.is_set()
            ):  # what is to be written would keep it open for ever
                self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface is theirs
    ) -> httpcore2.AsyncNetworkStream:
        """Go on in TLS."""
        encrypted = asyncio.get_running_loop().start_tls(
            self._transport,
            self._protocol,
            ssl_context,
            server_hostname=server_hostname,
            ssl_shutdown_timeout=_CLOSE_SECONDS,
        )
        with contextlib.ExitStack() as otherwise:
            otherwise.callback(self._transport.abort)
            transport = await _connect_within(timeout, encrypted)
            if transport is None:
                msg = "the connection was closed while TLS began"
                raise httpcore2.ConnectError(msg)
            otherwise.pop_all()
        self._protocol.transport = transport
        return SocketStream(transport, self._protocol)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - the interface is theirs
        """What is known of the connection, by their names."""
        if info == "is_readable":  # an idle connection that says something can only say good-bye
            return bool(self._protocol.unread) or self._protocol.at_eof
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(names.get(info, info))
