"""The door in front of a server: open, shut, or open with nobody behind it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit


class Door:
    """Has an address of its own, and lets through what comes, as long as it is open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port
        self._behind = parts.port
        self._parts = parts
        self._server: asyncio.Server | None = None
        self._port = 0
        self._through: set[asyncio.Task[None]] = set()
        self.silent = False  # takes connections, and never answers
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def url(self) -> str:
        """The server's address, by this door."""
        return urlunsplit(self._parts._replace(netloc=f"127.0.0.1:{self._port}"))

    @property
    def port(self) -> int:
        return self._port

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Refuse connections, and break those that are there."""
        if self._server:
            self._server.close()
        for task in self._through:
            task.cancel()
        if self._through:
            await asyncio.wait(self._through)

    def fall_silent(self) -> None:
        """Keep every connection, take new ones, and let nothing through, either way."""
        self._flows.clear()

    def speak_again(self) -> None:
        """Let through what waited, and what comes."""
        self._flows.set()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._through.add(task)
        try:
            if self.silent:
                await asyncio.Event().wait()
            inner, outer = await asyncio.open_connection("127.0.0.1", self._behind)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._carry(reader, outer))
                    both.create_task(self._carry(inner, writer))
            finally:
                await _close(outer)
        except (asyncio.CancelledError, ConnectionError, ExceptionGroup):
            pass  # whoever came in sees the connection end
        finally:
            self._through.discard(task)
            await _close(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            await self._flows.wait()
            writer.write(piece)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def door(url: str) -> AsyncIterator[Door]:
    """A door that is open at first."""
    made = Door(url)
    await made.open()
    try:
        yield made
    finally:
        await made.shut()
