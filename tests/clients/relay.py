"""A relay between a client and a daemon that notes the paths of the requests."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"^(?:GET|POST|DELETE) (\S+) HTTP/1\.1\r\n", re.MULTILINE)
_PIECE = 2**16


class Relay:
    """Passes bytes on in both directions; either side may close the connection."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self.paths: list[str] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Relay"]:
        """Accept connections until the end of the block."""
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[None]] = []

            def accept(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
                tasks.append(group.create_task(self._carry(near, back)))

            async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
                self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
                yield self
            for task in tasks:
                task.cancel()

    async def _carry(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, forth = await asyncio.open_connection(self._target.hostname, self._target.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(near, forth, note=True))
            group.create_task(self._pump(far, back, note=False))

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, note: bool
    ) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(_PIECE):
                    if note:
                        self.paths += [each.decode() for each in _REQUEST.findall(data)]
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.close()
