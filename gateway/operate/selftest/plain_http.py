"""Just enough HTTP for services that only our own programs talk to.

Requests come whole, one after the other on a connection; answers have a length, or are written in
pieces by whoever answers. Its costs are small, so that they are not what a benchmark measures.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import cast

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    404: b"Not Found",
    429: b"Too Many Requests",
    500: b"Internal Server Error",
}


class Connection(asyncio.Protocol):
    """One client's connection."""

    _transport: asyncio.Transport

    def __init__(self, handle: "RequestHandler") -> None:
        self._handle = handle
        self._received = bytearray()
        self._request_size = 0  # bytes until the request is whole

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        while len(self._received) >= self._request_size:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            found = _LENGTH.search(self._received, 0, end)
            self._request_size = end + 4 + (int(found[1]) if found else 0)
            if len(self._received) < self._request_size:
                return
            whole = bytes(self._received[: self._request_size])
            del self._received[: self._request_size]
            self._request_size = 0
            self._handle(self, whole.split(b" ", 2)[1].decode(), whole[end + 4 :])

    @property
    def is_closed(self) -> bool:
        """The client has gone."""
        return self._transport.is_closing()

    def write(self, raw: bytes) -> None:
        """Write a piece of an answer; nothing when the client has gone."""
        if not self._transport.is_closing():
            self._transport.write(raw)

    def close(self) -> None:
        """Close it when what was written is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close it at once, in the middle of whatever was being said."""
        self._transport.abort()

    def answer(self, body: bytes, status: int = 200) -> None:
        """Answer with JSON."""
        self.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, _REASONS[status], len(body), body)
        )


RequestHandler = Callable[[Connection, str, bytes], None]
"""Takes a request: who asks, the path with its query, the body."""


@contextlib.asynccontextmanager
async def serve(handle: RequestHandler) -> AsyncIterator[int]:
    """Serve on a free port of this machine; gives the port."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(handle), "127.0.0.1", 0, backlog=4096
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
