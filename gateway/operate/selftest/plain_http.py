"""A minimal HTTP server for requests from this project's own programs.

Requests arrive whole, one at a time per connection; a response has a length, or the handler writes
it in chunks. The server costs little CPU, so that it does not distort benchmarks.
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
    """The connection of one client."""

    _transport: asyncio.Transport

    def __init__(self, handle: "RequestHandler") -> None:
        self._handle = handle
        self._received = bytearray()
        self._request_size = 0  # bytes of the whole request

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
            request = bytes(self._received[: self._request_size])
            del self._received[: self._request_size]
            self._request_size = 0
            self._handle(self, request.split(b" ", 2)[1].decode(), request[end + 4 :])

    @property
    def is_closed(self) -> bool:
        """True if the client has disconnected."""
        return self._transport.is_closing()

    def write(self, raw: bytes) -> None:
        """Write a part of a response; ignored if the client has disconnected."""
        if not self._transport.is_closing():
            self._transport.write(raw)

    def close(self) -> None:
        """Close the connection after all written data is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately, dropping unsent data."""
        self._transport.abort()

    def answer(self, body: bytes, status: int = 200) -> None:
        """Send a JSON response."""
        self.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, _REASONS[status], len(body), body)
        )


RequestHandler = Callable[[Connection, str, bytes], None]
"""Handles a request: the connection, the path with query, and the body."""


@contextlib.asynccontextmanager
async def serve(handle: RequestHandler) -> AsyncIterator[int]:
    """Serve on a free port of the loopback interface; yield the port."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(handle), "127.0.0.1", 0, backlog=4096
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
