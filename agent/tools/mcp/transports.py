"""How messages reach a server: through a program's pipes, or as HTTP requests.

The package gives up a whole connection when one HTTP request fails. Here each request fails for
itself, and says whether it can have reached the server: see `Requests`.
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
    from mcp.client._transport import ReadStream, TransportStreams  # not promised to stay there

# What `Requests` says in the place of a server, in the form of a server's own errors.
NOT_SENT = -47_001  # the request did not reach it, or was turned away
UNCLEAR = -47_002  # it may have

_MAX_EVENT_BYTES = 32 * 1024 * 1024  # bytes
_READ_BYTES = 64 * 1024
_MAX_LINE_BYTES = 2_000  # bytes
_STDERR_GRACE_SECONDS = 0.5  # seconds for what an ended program still wrote
_NOTIFICATION_SECONDS = 10.0  # seconds for a message that nobody answers
_DELETE_SECONDS = 3.0  # seconds for the word that we leave
_HTTP_TIMEOUT = httpx2.Timeout(
    30.0, connect=10.0, read=None, pool=10.0
)  # how long a call takes is not theirs to judge
# Servers often close what is idle for 5 s; a call that meets with that has an unclear outcome.
_CONNECTION_LIMITS = httpx2.Limits(max_connections=None, keepalive_expiry=2.0)


@contextlib.asynccontextmanager
async def open_transport(
    settings: McpSettings, listener: ServerListener
) -> "AsyncIterator[TransportStreams]":
    """Reach a server in the way its settings say."""
    open_streams = _http_streams(settings) if settings.url else _stdio_streams(settings, listener)
    async with open_streams as (read, write):
        yield _NotifyingStream(read, listener.on_disconnected), write


# --- programs ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _stdio_streams(
    settings: McpSettings, listener: ServerListener
) -> "AsyncIterator[TransportStreams]":
    """Start the program; at the end it is asked to go, then made to."""
    parameters = StdioServerParameters(
        command=settings.command or "",
        args=list(settings.args),
        # The package adds PATH, HOME and who we are, and nothing else of our own environment.
        env={"LANG": "C.UTF-8", **{name: value.reveal() for name, value in settings.env.items()}},
        encoding_error_handler="replace",  # one wrong byte is one message that cannot be read
    )
    async with (
        _stderr_reader(listener.on_stderr_line) as errors,
        hold_context(stdio_client(parameters, errors), listener.on_disconnected) as streams,
    ):
        errors.close()  # from here on only the program holds it
        yield streams


@contextlib.asynccontextmanager
async def _stderr_reader(on_line: Callable[[str], None]) -> AsyncIterator[TextIO]:
    """Give a file; what is written to it is passed on line by line."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "w") as sink:
        reader = asyncio.StreamReader()
        ears, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), source
        )
        try:
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(
                    _forward_lines(reader, on_line), name="stderr of a server"
                )
                try:
                    yield sink
                finally:
                    sink.close()
                    await asyncio.wait({listening}, timeout=_STDERR_GRACE_SECONDS)
                    listening.cancel()
        finally:
            ears.close()


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
    """As much of a message as tells whether it wants an answer."""

    id: int | str | None = None
    method: str = ""

    @property
    def is_call(self) -> bool:
        return self.id is not None and bool(self.method)


class _JsonRpcError(msgspec.Struct):
    """As much of an answer as tells that it is the server's own."""

    jsonrpc: str
    error: msgspec.Raw


class McpHttpClient(httpx2.AsyncClient):
    """Gives an answer to every request, also where there is none: then it is an error as data."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - passed on
        """See `httpx2.AsyncClient`."""
        try:
            async with asyncio.timeout(_header_timeout(request)):
                return await _check_response(request, await super().send(request, **options))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error_response(
                request, NOT_SENT, f"it cannot be reached ({_error_text(error)})"
            )
        except (httpx2.TransportError, TimeoutError) as error:
            return _error_response(request, UNCLEAR, f"the connection broke ({_error_text(error)})")


def _header_timeout(request: httpx2.Request) -> float | None:
    """How long until there are headers. Others wait behind a message that nobody answers."""
    if request.method == "DELETE":
        return _DELETE_SECONDS
    if (
        request.method != "POST"
        or msgspec.json.decode(request.content, type=_JsonRpcMessage).is_call
    ):
        return None
    return _NOTIFICATION_SECONDS


async def _check_response(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Let answers of the server pass; put what a proxy or its front door says into our words."""
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
        request, code, f"it answered HTTP {response.status_code}", response.status_code
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
    """A stream that tells when it is over."""

    def __init__(
        self, stream: "ReadStream[SessionMessage | Exception]", on_end: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> object:
        """The package runs what a message sets off in its sender's context."""
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
