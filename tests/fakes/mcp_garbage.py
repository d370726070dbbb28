"""An MCP server over HTTP whose stream for messages of its own is endless garbage.

It speaks the protocol with sessions, and has one tool, which works.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

_PROTOCOL = "2025-06-18"


class GarbageServer:
    """The server; created by `garbage_server`."""

    def __init__(self, event: bytes) -> None:
        self._event = event
        self.url = ""
        self.flooding = asyncio.Event()  # set when the stream has begun

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                if head.startswith("get"):
                    await self._flood(writer)
                length = head.partition("content-length:")[2].split()
                body = await reader.readexactly(int(length[0]) if length else 0)
                if head.startswith("delete"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                else:
                    writer.write(_answer(json.loads(body)))
                await writer.drain()
        writer.close()

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        self.flooding.set()
        for _ in itertools.count():
            writer.write(self._event * (1 + 65_536 // len(self._event)))
            await writer.drain()
            await asyncio.sleep(0)


def _answer(request: dict[str, Any]) -> bytes:
    result: dict[str, Any] | None = None
    match request.get("method"):
        case "initialize":
            result = {
                "protocolVersion": _PROTOCOL,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "garbage", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "done"}]}
        case "ping":
            result = {}
        case _:
            pass
    if "id" not in request:
        return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    if result is None:
        answer["error"] = {"code": -32601, "message": "unknown method"}
    else:
        answer["result"] = result
    body = json.dumps(answer).encode()
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nmcp-session-id: s\r\n"
    return f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + body


@contextlib.asynccontextmanager
async def garbage_server(event: bytes) -> AsyncIterator[GarbageServer]:
    """Serve on a free port; the stream repeats `event`."""
    garbage = GarbageServer(event)
    server = await asyncio.start_server(garbage.serve, "127.0.0.1", 0)
    async with server:
        garbage.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        yield garbage
