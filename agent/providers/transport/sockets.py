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
import httpx2

from agent.providers.transport.chunked import Chunks
from agent.providers.transport.reach import reach

MOST_UNREAD = 256 * 1024
"""Bytes after which nothing more is taken from a socket until somebody reads."""

_BEGINS = b"HTTP/"
_BLANK_LINE = re.compile(rb"\n\r?\n")
_AT_ONCE = 64 * 1024  # that are taken from a socket
_CLOSE_WITHIN = 1.0  # for what is still to be written, and for the farewell of TLS

Option = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
Opened = TypeVar("Opened")


def use(client: httpx2.AsyncClient) -> None:
    """Have all new connections of a client carried in this way, those through proxies as well.

    The client's pools take a backend only when they are made, and the client makes them itself. A
    version that keeps it elsewhere works as before, only slower.
    """
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - see above
        pool: Any = getattr(transport, "_pool", None)
        if hasattr(pool, "_network_backend"):
            pool._network_backend = Sockets()  # noqa: SLF001 - see above


class Sockets(httpcore2.AsyncNetworkBackend):
    """Opens connections; see `httpcore2.AsyncNetworkBackend`."""

    def __init__(self) -> None:
        # One for all connections, as a read is over before the next begins. asyncio would set aside
        # 256 KB for each read, which takes longer than the reading.
        self._room = memoryview(bytearray(_AT_ONCE))

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface is theirs
        local_address: str | None = None,
        socket_options: Iterable[Option] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Reach a host; of several addresses the first that answers."""
        opened = reach(host, port, lambda: _Line(self._room), local_address)
        return _with_options(*await _within(timeout, opened), socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait before it is tried again."""
        await asyncio.sleep(seconds)


async def _within(seconds: float | None, opened: Awaitable[Opened]) -> Opened:
    try:
        async with asyncio.timeout(seconds):
            return await opened
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout(str(error)) from error
    except OSError as error:  # that of TLS is one, too
        raise httpcore2.ConnectError(_words(error)) from error


def _with_options(
    transport: asyncio.Transport, line: "_Line", options: Iterable[Option] | None
) -> "Stream":
    for option in options or ():
        transport.get_extra_info("socket").setsockopt(*option)
    return Stream(transport, line)


def _words(error: Exception | None) -> str:
    """The system's own sentence, without its number."""
    said = error.strerror if isinstance(error, OSError) else ""
    return said or str(error or "the connection is closed")


class _Line(asyncio.BufferedProtocol):
    """What came and was not read, and whether more may be written."""

    def __init__(self, room: memoryview) -> None:
        self._room = room
        self.transport: asyncio.Transport | None = None
        self.unread: list[bytes] = []
        self.size = 0
        self.over = False  # nothing more will come
        self.error: Exception | None = None
        self.closed = asyncio.Event()
        self.at_body = False  # what was read last ended with the head of an answer
        self._head: bytes | None = None  # the last of a head that was read in part
        self.reads_until = float("inf")
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self._full = self._paused = False
        self._clock: asyncio.TimerHandle | None = None

    # --- what asyncio tells ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Opened, or opened again inside of TLS."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - streams are all it is for
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - it is always the same
        """Say where to put what comes."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Keep it for the reader."""
        self.unread.append(bytes(self._room[:nbytes]))
        self.size += nbytes
        if self.size > MOST_UNREAD and self.transport and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The other side writes no more."""
        self.over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whichever side."""
        self.over, self.error = True, self.error or exc
        self._full = False
        if self._clock:
            self._clock.cancel()
        self._wake()
        for writer in self._writers:
            if not writer.done():
                writer.set_result(None)
        self.closed.set()

    def pause_writing(self) -> None:
        """The other side takes nothing."""
        self._full = True

    def resume_writing(self) -> None:
        """It does again."""
        self._full = False
        for writer in self._writers:
            if not writer.done():
                writer.set_result(None)

    # --- reading --------------------------------------------------------------------------------

    def take(self, most: int) -> bytes:
        """Give what is there, but no more than `most`, and not beyond the head of an answer."""
        data = self.unread[0] if len(self.unread) == 1 else b"".join(self.unread)
        most = min(most, self._end_of_head(data))
        if len(data) > most:
            data, rest = data[:most], data[most:]
            self.unread, self.size = [rest], len(rest)
        else:
            self.unread, self.size = [], 0
        if self._paused and self.transport and self.size <= MOST_UNREAD:
            self._paused = False
            self.transport.resume_reading()
        return data

    def _end_of_head(self, data: bytes) -> int:
        """Say where a head ends, so that whoever reads it can read the body in another way."""
        self.at_body = False
        before = self._head
        if before is None:
            if not data.startswith(_BEGINS):
                return len(data)
            before = b""
        found = _BLANK_LINE.search(before + data)
        self.at_body = found is not None
        self._head = None if found else (before + data)[-2:]
        return found.end() - len(before) if found else len(data)

    def put_back(self, data: bytes) -> None:
        """Have it read again."""
        self.unread.insert(0, data)
        self.size += len(data)

    async def came(self, seconds: float | None) -> None:
        """Wait until there is something to read, or never will be."""
        loop = asyncio.get_running_loop()
        self.reads_until = float("inf") if seconds is None else loop.time() + seconds
        # One clock for a connection, not one for each read: it looks again when it has run out.
        if self._clock and self._clock.when() > self.reads_until:
            self._clock.cancel()
            self._clock = None
        if seconds is not None and self._clock is None:
            self._clock = loop.call_at(self.reads_until, self._look_at_the_clock, loop)
        self._reader = loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)

    def _look_at_the_clock(self, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = None
        if self._reader is None or self.reads_until == float("inf"):
            return  # the next read sets it again
        if loop.time() < self.reads_until:
            self._clock = loop.call_at(self.reads_until, self._look_at_the_clock, loop)
        elif not self._reader.done():
            self._reader.set_exception(httpcore2.ReadTimeout())

    # --- writing --------------------------------------------------------------------------------

    async def drained(self) -> None:
        """Wait until more may be written."""
        if not self._full:
            return
        writer = asyncio.get_running_loop().create_future()
        self._writers.append(writer)
        try:
            await writer
        finally:
            self._writers.remove(writer)


class Stream(httpcore2.AsyncNetworkStream):
    """One connection; see `httpcore2.AsyncNetworkStream`."""

    def __init__(self, transport: asyncio.Transport, line: _Line) -> None:
        self._transport = transport
        self._line = line

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the interface is theirs
        """Give what has come, at least a byte; none when it is over."""
        line = self._line
        while not line.unread:
            if line.error:
                raise httpcore2.ReadError(_words(line.error)) from line.error
            if line.over:
                return b""
            await line.came(timeout)
        return line.take(max_bytes)

    @property
    def at_body(self) -> bool:
        """Tell whether the HTTP client has read the head of an answer, and nothing behind it."""
        return self._line.at_body

    async def read_chunks(self, chunks: Chunks, timeout: float | None) -> bytes:  # noqa: ASYNC109 - as above
        """Give some of a body; none when the rest of it, or its failure, is for the HTTP client."""
        line = self._line
        while chunks.rest is None:
            if not line.unread:
                if line.over:
                    return b""
                await line.came(timeout)
            elif data := chunks.feed(line.take(MOST_UNREAD)):
                return data
        line.put_back(chunks.rest)
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the interface is theirs
        """Hand over all of it."""
        line = self._line
        if line.closed.is_set() or self._transport.is_closing():
            raise httpcore2.WriteError(_words(line.error)) from line.error
        self._transport.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                await line.drained()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout(str(error)) from error
        if line.error:
            raise httpcore2.WriteError(_words(line.error)) from line.error

    async def aclose(self) -> None:
        """Close it; one that does not let itself be closed is broken off, also when we must hurry."""
        self._transport.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_WITHIN):
                    await self._line.closed.wait()
        finally:
            if not self._line.closed.is_set():  # what is to be written would keep it open for ever
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
            self._line,
            ssl_context,
            server_hostname=server_hostname,
            ssl_shutdown_timeout=_CLOSE_WITHIN,
        )
        with contextlib.ExitStack() as otherwise:
            otherwise.callback(self._transport.abort)
            transport = await _within(timeout, encrypted)
            if transport is None:
                msg = "the connection was closed while TLS began"
                raise httpcore2.ConnectError(msg)
            otherwise.pop_all()
        self._line.transport = transport
        return Stream(transport, self._line)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - the interface is theirs
        """What is known of the connection, by their names."""
        if info == "is_readable":  # an idle connection that says something can only say good-bye
            return bool(self._line.unread) or self._line.over
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(names.get(info, info))
