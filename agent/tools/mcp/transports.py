"""Transports to servers: the pipes of a program, or HTTP requests."""

import contextlib
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from agent.settings import McpSettings
from agent.tools.mcp.contract import MAX_MESSAGE_BYTES, ServerListener
from agent.tools.mcp.http_client import McpHttpClient
from agent.tools.mcp.program import program_streams
from agent.tools.mcp.sse import sse_streams

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams  # private, may move


@contextlib.asynccontextmanager
async def program_transport(
    settings: McpSettings, listener: ServerListener
) -> "AsyncIterator[TransportStreams]":
    """Start the program of a server."""
    async with program_streams(settings, listener) as (read, write):
        yield _NotifyingStream(read, listener.on_disconnected), write


@contextlib.asynccontextmanager
async def http_transport(
    settings: McpSettings, listener: ServerListener, client: McpHttpClient
) -> "AsyncIterator[TransportStreams]":
    """Talk to a server over Streamable HTTP."""
    async with streamable_http_client(
        settings.url or "", http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
    ) as (read, write):
        yield _NotifyingStream(read, listener.on_disconnected), write


@contextlib.asynccontextmanager
async def sse_transport(
    settings: McpSettings, listener: ServerListener, client: McpHttpClient
) -> "AsyncIterator[TransportStreams]":
    """Talk to a server over the HTTP transport of protocol version 2024-11-05."""
    async with sse_streams(settings.url or "", client, listener) as (read, write):
        yield _NotifyingStream(read, listener.on_disconnected), write


class _NotifyingStream:
    """A stream that calls `on_end` when it ends."""

    def __init__(
        self, stream: "ReadStream[SessionMessage | Exception]", on_end: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> object:
        """The context of the last message's sender, in which the package runs its handlers."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)
