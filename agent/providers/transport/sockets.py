"""A network backend for httpcore2 that reads sockets through one asyncio protocol.

httpcore2's own backend registers and unregisters the socket for each read, which is most of the
cost of a token. Here the socket stays registered, and a read takes the bytes that have arrived. The
backend recognises the end of response headers, so that the body can be read past the HTTP client.
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
"""Unread bytes per connection above which reading from the socket pauses."""

_HTTP_PREFIX = b"HTTP/"
_BLANK_LINE = re.compile(rb"\n\r?\n")
_READ_BYTES = 64 * 1024  # per read from a socket
_CLOSE_SECONDS = 1.0  # for unsent data and for the TLS shutdown

SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)
Opened = TypeVar("Opened")


class SocketBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections; see `httpcore2.AsyncNetworkBackend`."""

    def __init__(self) -> None:
        # Shared by all connections, because each read copies its bytes before the next one begins.
        # asyncio would allocate 256 KB for each read, which takes longer than the read itself.
        self._buffer = memoryview(bytearray(_READ_BYTES))

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's signature
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of the host that answers."""
        opened = connect_to_host(host, port, lambda: _SocketProtocol(self._buffer), local_address)
        return _apply_options(*await _connect_within(timeout, opened), socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait before a retry."""
        await asyncio.sleep(seconds)


async def _connect_within(seconds: float | None, opened: Awaitable[Opened]) -> Opened:
    try:
        async with asyncio.timeout(seconds):
            return await opened
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout(str(error)) from error
    except OSError as error:  # `ssl.SSLError` is one, too
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
    """Return the operating system's message without the error number."""
    message = error.strerror if isinstance(error, OSError) else ""
    return message or str(error or "the connection is closed")


class _SocketProtocol(asyncio.BufferedProtocol):
    """Received bytes, flow control and timeouts of one connection."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self.transport: asyncio.Transport | None = None
        self.unread: list[bytes] = []
        self.unread_bytes = 0
        self.at_eof = False
        self.error: Exception | None = None
        self.closed = asyncio.Event()
        self.at_body = False  # the last read ended exactly at the end of response headers
        self._partial_head: bytes | None = None  # last bytes of headers that were read in part
        self.read_deadline = float("inf")
        self._waiting_reader: asyncio.Future[None] | None = None
        self._waiting_writers: list[asyncio.Future[None]] = []
        self._writing_paused = self._reading_paused = False
        self._read_timer: asyncio.TimerHandle | None = None

    # --- callbacks of asyncio -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called a second time when TLS starts."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - this protocol needs a stream
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - one buffer for all sizes
        """Return the shared buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Copy the received bytes, and pause reading when too many are unread."""
        self.unread.append(bytes(self._buffer[:nbytes]))
        self.unread_bytes += nbytes
        if self.unread_bytes > MAX_UNREAD_BYTES and self.transport and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> None:
        """Mark the end of the stream."""
        self.at_eof = True
        self._wake_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake all waiting readers and writers."""
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
        """Make writers wait, because the send buffer is full."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Wake waiting writers."""
        self._writing_paused = False
        for writer in self._waiting_writers:
            if not writer.done():
                writer.set_result(None)

    # --- reading --------------------------------------------------------------------------------

    def read_available(self, max_bytes: int) -> bytes:
        """Return unread bytes: at most `max_bytes`, and none beyond the end of response headers."""
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
        """Return the offset of the first byte after response headers, or the length of the data."""
        self.at_body = False
        before = self._partial_head
        if before is None:
            if not data.startswith(_HTTP_PREFIX):
                return len(data)
            before = b""
        blank_line = _BLANK_LINE.search(before + data)
        self.at_body = blank_line is not None
        self._partial_head = None if blank_line else (before + data)[-2:]
        return blank_line.end() - len(before) if blank_line else len(data)

    def put_back(self, data: bytes) -> None:
        """Return bytes to the front of the unread data."""
        self.unread.insert(0, data)
        self.unread_bytes += len(data)

    async def wait_readable(self, seconds: float | None) -> None:
        """Wait until bytes, the end of the stream or an error arrive.

        Raises `httpcore2.ReadTimeout`.
        """
        loop = asyncio.get_running_loop()
        self.read_deadline = float("inf") if seconds is None else loop.time() + seconds
        # One timer per connection instead of one per read: a timer that fires early starts again.
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
            return  # the next read starts the timer again
        if loop.time() < self.read_deadline:
            self._read_timer = loop.call_at(self.read_deadline, self._check_read_timeout, loop)
        elif not self._waiting_reader.done():
            self._waiting_reader.set_exception(httpcore2.ReadTimeout())

    # --- writing --------------------------------------------------------------------------------

    async def wait_writable(self) -> None:
        """Wait until the send buffer has room."""
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

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore2's signature
        """Return at least one byte; empty at the end of the stream."""
        protocol = self._protocol
        while not protocol.unread:
            if protocol.error:
                raise httpcore2.ReadError(_error_text(protocol.error)) from protocol.error
            if protocol.at_eof:
                return b""
            await protocol.wait_readable(timeout)
        return protocol.read_available(max_bytes)

    @property
    def at_body(self) -> bool:
        """True if the HTTP client has read response headers and nothing after them."""
        return self._protocol.at_body

    async def read_chunks(self, chunks: ChunkedDecoder, timeout: float | None) -> bytes:  # noqa: ASYNC109 - as above
        """Return decoded bytes of a body; empty when the HTTP client has to read the rest."""
        protocol = self._protocol
        while chunks.rest is None:
            if not protocol.unread:
                if protocol.at_eof:
                    return b""
                await protocol.wait_readable(timeout)
            elif data := chunks.feed(protocol.read_available(MAX_UNREAD_BYTES)):
                return data
        protocol.put_back(chunks.rest)
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore2's signature
        """Send all bytes, waiting while the send buffer is full."""
        protocol = self._protocol
        if protocol.closed.is_set() or self._transport.is_closing():
            raise httpcore2.WriteError(_error_text(protocol.error)) from protocol.error
        self._transport.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                await protocol.wait_writable()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout(str(error)) from error
        if protocol.error:
            raise httpcore2.WriteError(_error_text(protocol.error)) from protocol.error

    async def aclose(self) -> None:
        """Close the connection; abort it when closing takes too long or is cancelled."""
        self._transport.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._protocol.closed.wait()
        finally:
            # Unsent data would keep the connection open indefinitely.
            if not self._protocol.closed.is_set():
                self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's signature
    ) -> httpcore2.AsyncNetworkStream:
        """Start TLS; return the encrypted stream over the same connection."""
        encrypted = asyncio.get_running_loop().start_tls(
            self._transport,
            self._protocol,
            ssl_context,
            server_hostname=server_hostname,
            ssl_shutdown_timeout=_CLOSE_SECONDS,
        )
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self._transport.abort)
            transport = await _connect_within(timeout, encrypted)
            if transport is None:
                msg = "the connection was closed during the TLS handshake"
                raise httpcore2.ConnectError(msg)
            on_failure.pop_all()
        self._protocol.transport = transport
        return SocketStream(transport, self._protocol)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore2's signature
        """Return a property of the connection, by the names of httpcore2."""
        if info == "is_readable":  # data on an idle connection announces a close by the server
            return bool(self._protocol.unread) or self._protocol.at_eof
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(names.get(info, info))
