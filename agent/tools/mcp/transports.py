"""Transports to servers: the pipes of a program, or HTTP requests.

The official package drops the whole connection when one HTTP request fails. With `McpHttpClient`
only that request fails, and the error code tells whether the request may have reached the server.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

import httpx2
import msgspec
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from agent.providers.transport.connections import tls_context
from agent.settings import McpSettings
from agent.tools.mcp.contract import ServerListener
from agent.tools.mcp.held import hold_context

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams  # private, may move

# Error codes of `McpHttpClient`, in the form of a server's own JSON-RPC errors.
NOT_SENT = -47_001  # the request did not reach the server or was rejected
UNCLEAR = -47_002  # the request may have reached the server

_MAX_EVENT_BYTES = 32 * 1024 * 1024
_READ_BYTES = 64 * 1024
_MAX_LINE_BYTES = 2_000
_STDERR_GRACE_SECONDS = 0.5  # for the last output of an ended program
_NOTIFICATION_SECONDS = 10.0  # for a message without an answer
_DELETE_SECONDS = 3.0  # for the end of a session
# No read timeout, because calls have their own deadlines.
_HTTP_TIMEOUT = httpx2.Timeout(30.0, connect=10.0, read=None, pool=10.0)
# Servers often close connections after 5 s; a call sent just then has an unclear outcome.
_CONNECTION_LIMITS = httpx2.Limits(max_connections=None, keepalive_expiry=2.0)


@contextlib.asynccontextmanager
async def open_transport(
    settings: McpSettings, listener: ServerListener
) -> "AsyncIterator[TransportStreams]":
    """Open the transport that the settings name: HTTP with a URL, else a program."""
    open_streams = _http_streams(settings) if settings.url else _stdio_streams(settings, listener)
    async with open_streams as (read, write):
        yield _NotifyingStream(read, listener.on_disconnected), write


# --- programs ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _stdio_streams(
    settings: McpSettings, listener: ServerListener
) -> "AsyncIterator[TransportStreams]":
    """Start the program; terminate it at the end, by force if necessary."""
    parameters = StdioServerParameters(
        command=settings.command or "",
        args=list(settings.args),
        # The package adds only PATH, HOME and the user's name from our own environment.
        env={"LANG": "C.UTF-8", **{name: value.reveal() for name, value in settings.env.items()}},
        encoding_error_handler="replace",  # an invalid byte spoils only one message
    )
    async with (
        _stderr_reader(listener.on_stderr_line) as errors,
        hold_context(stdio_client(parameters, errors), listener.on_disconnected) as streams,
    ):
        errors.close()  # only the program keeps the pipe open now
        yield streams


@contextlib.asynccontextmanager
async def _stderr_reader(on_line: Callable[[str], None]) -> AsyncIterator[TextIO]:
    """Yield a writable file whose lines are passed to `on_line`."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "w") as sink:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), source
        )
        try:
            async with asyncio.TaskGroup() as group:
                forwarder = group.create_task(
                    _forward_lines(reader, on_line), name="stderr of a server"
                )
                try:
                    yield sink
                finally:
                    sink.close()
                    await asyncio.wait({forwarder}, timeout=_STDERR_GRACE_SECONDS)
                    forwarder.cancel()
        finally:
            transport.close()


async def _forward_lines(reader: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    rest = b""
    while chunk := await reader.read(_READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _forward_line(line, on_line)
        rest = rest[:_MAX_LINE_BYTES]
    _forward_line(rest, on_line)


def _forward_line(line: bytes, on_line: Callable[[str], None]) -> None:
    text = line[:_MAX_LINE_BYTES].decode(errors="replace").rstrip()
    if text:
        on_line(text)


# --- HTTP ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _http_streams(settings: McpSettings) -> "AsyncIterator[TransportStreams]":
    headers = {name: value.reveal() for name, value in settings.headers.items()}
    async with (
        McpHttpClient(
            headers=headers, timeout=_HTTP_TIMEOUT, limits=_CONNECTION_LIMITS, verify=tls_context()
        ) as client,
        streamable_http_client(
            settings.url or "", http_client=client, max_sse_event_size=_MAX_EVENT_BYTES
        ) as streams,
    ):
        yield streams


class _JsonRpcMessage(msgspec.Struct):
    """The fields of a message that distinguish calls from notifications."""

    id: int | str | None = None
    method: str = ""

    @property
    def is_call(self) -> bool:
        return self.id is not None and bool(self.method)


class _JsonRpcError(msgspec.Struct):
    """The fields of an error that comes from the server itself."""

    jsonrpc: str
    error: msgspec.Raw


class McpHttpClient(httpx2.AsyncClient):
    """An HTTP client that turns failed requests into JSON-RPC errors instead of exceptions."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - passed on
        """See `httpx2.AsyncClient`."""
        try:
            async with asyncio.timeout(_header_timeout(request)):
                return await _check_response(request, await super().send(request, **options))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error_response(
                request, NOT_SENT, f"the server cannot be reached ({_error_text(error)})"
            )
        except (httpx2.TransportError, TimeoutError) as error:
            return _error_response(request, UNCLEAR, f"the connection broke ({_error_text(error)})")


def _header_timeout(request: httpx2.Request) -> float | None:
    """Return the time limit for response headers; None for calls, which have their own deadlines.

    Messages without an answer get a limit, because other messages wait behind them.
    """
    if request.method == "DELETE":
        return _DELETE_SECONDS
    if (
        request.method != "POST"
        or msgspec.json.decode(request.content, type=_JsonRpcMessage).is_call
    ):
        return None
    return _NOTIFICATION_SECONDS


async def _check_response(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return responses of the server unchanged; replace error pages of proxies by JSON-RPC errors."""
    if request.method != "POST" or not response.is_error:
        return response
    try:
        msgspec.json.decode(await response.aread(), type=_JsonRpcError)
    except msgspec.DecodeError:
        pass
    else:
        return response
    code = UNCLEAR if response.is_server_error else NOT_SENT
    return _error_response(
        request, code, f"the server answered HTTP {response.status_code}", response.status_code
    )


def _error_response(
    request: httpx2.Request, code: int, message: str, status: int = 503
) -> httpx2.Response:
    error = {"code": code, "message": message}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(status, json=body, request=request)


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


# --- both ----------------------------------------------------------------------------------------


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
