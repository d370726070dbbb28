"""Transports to servers: the pipes of a program, or HTTP requests.

The official package drops the whole connection when one HTTP request fails. With `McpHttpClient`
only that request fails, and the error code tells whether the request may have reached the server.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from agent.providers.transport.connections import tls_context
from agent.settings import McpSettings
from agent.tools.mcp.contract import MAX_MESSAGE_BYTES, ServerListener
from agent.tools.mcp.program import program_streams
from sessions.values.exceptions import error_text

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams  # private, may move

# Error codes of `McpHttpClient`, in the form of a server's own JSON-RPC errors.
NOT_SENT = -47_001  # the request did not reach the server or was rejected
UNCLEAR = -47_002  # the request may have reached the server

_NOTIFICATION_SECONDS = 10.0  # for a message without an answer
_DELETE_SECONDS = 3.0  # for the end of a session
# No read timeout, because calls have their own deadlines.
_HTTP_TIMEOUT = httpx2.Timeout(30.0, connect=10.0, read=None, pool=10.0)
# Rates at which lines and useless bytes of event streams are read; a server that sends more waits.
_LINES_PER_SECOND = 2_000
_USELESS_BYTES_PER_SECOND = 1024 * 1024
_MESSAGE_LINE = re.compile(rb"data: ?\{")
_LINE_HEAD_BYTES = 8
_OF_ENCODING = {"content-encoding", "content-length", "transfer-encoding"}
# Servers often close connections after 5 s; a call sent just then has an unclear outcome.
_CONNECTION_LIMITS = httpx2.Limits(max_connections=None, keepalive_expiry=2.0)


@contextlib.asynccontextmanager
async def open_transport(
    settings: McpSettings, listener: ServerListener
) -> "AsyncIterator[TransportStreams]":
    """Open the transport that the settings name: HTTP with a URL, else a program."""
    open_streams = _http_streams(settings) if settings.url else program_streams(settings, listener)
    async with open_streams as (read, write):
        yield _NotifyingStream(read, listener.on_disconnected), write


# --- HTTP ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _http_streams(settings: McpSettings) -> "AsyncIterator[TransportStreams]":
    headers = {name: value.reveal() for name, value in settings.headers.items()}
    async with (
        McpHttpClient(
            headers=headers, timeout=_HTTP_TIMEOUT, limits=_CONNECTION_LIMITS, verify=tls_context()
        ) as client,
        streamable_http_client(
            settings.url or "", http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
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
                response = await _check_response(request, await super().send(request, **options))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error_response(
                request, NOT_SENT, f"the server cannot be reached ({error_text(error)})"
            )
        except (httpx2.TransportError, TimeoutError) as error:
            return _error_response(request, UNCLEAR, f"the connection broke ({error_text(error)})")
        return _with_paced_events(response)


def _with_paced_events(response: httpx2.Response) -> httpx2.Response:
    """Return a response whose events are read slowly while the server sends much garbage."""
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "text/event-stream" or response.is_closed:
        return response
    headers = [item for item in response.headers.multi_items() if item[0] not in _OF_ENCODING]
    return httpx2.Response(
        response.status_code,
        headers=headers,
        stream=_PacedEvents(response),
        request=response.request,
        extensions=response.extensions,
    )


class _PacedEvents(httpx2.AsyncByteStream):
    """The decoded body of an event stream; pauses after garbage, so that the server has to wait.

    The official package spends 0.2 ms on each event that is not a message.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        gauge = EventGauge()
        async for chunk in self._response.aiter_bytes():
            lines, useless_bytes = gauge.measure(chunk)
            yield chunk
            await asyncio.sleep(event_pause_seconds(lines, useless_bytes))

    async def aclose(self) -> None:
        await self._response.aclose()


class EventGauge:
    """Measures the chunks of an event stream."""

    def __init__(self) -> None:
        self._line = b""  # beginning of the line that continues in the next chunk

    def measure(self, chunk: bytes) -> tuple[int, int]:
        """Return the number of lines that end in a chunk, and its bytes outside of messages."""
        *ended, rest = chunk.split(b"\n")
        useless = 0
        for line in ended:
            useless += self._useless_bytes(line)
            self._line = b""
        return max(len(ended), chunk.count(b"\r")), useless + self._useless_bytes(rest)

    def _useless_bytes(self, part: bytes) -> int:
        self._line += part[: _LINE_HEAD_BYTES - len(self._line)]
        return 0 if _MESSAGE_LINE.match(self._line) else len(part)


def event_pause_seconds(lines: int, useless_bytes: int) -> float:
    """Return the pause after so many lines and so many useless bytes of an event stream."""
    return max(lines / _LINES_PER_SECOND, useless_bytes / _USELESS_BYTES_PER_SECOND)


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
