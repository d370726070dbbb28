"""A web server that holds what it is given, byte for byte; asked by whoever fetches."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Self

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def answer(
    content: bytes = b"", kind: str = "image/png", status: str = "200 OK", **headers: str
) -> bytes:
    """An answer as it goes over the wire."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    found = {"content-type": kind, "content-length": str(len(content)), **named}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in found.items())]
    return "\r\n".join([*lines, "", ""]).encode() + content


def leads_to(location: str, status: str = "302 Found") -> bytes:
    return answer(status=status, location=location)


class Shelf:
    """What lies at each path; what is asked for and does not lie there is a 404."""

    def __init__(self, held: dict[str, bytes]) -> None:
        self.held = held
        self.asked: list[str] = []
        """The head of every request."""
        self.met = 0
        """Connections."""
        self.hold = asyncio.Event()
        """Until it is set an answer without content ends in silence."""
        self.port = 0

    def place(self, host: str = "127.0.0.1") -> str:
        return f"{host}:{self.port}"

    @contextlib.asynccontextmanager
    async def open(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.hold.set()
            server.close()
            await server.wait_closed()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            lying = self.held.get(head.split()[1], answer(status="404 Not Found"))
            writer.write(lying)
            await writer.drain()
            if not lying:
                await self.hold.wait()
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()
