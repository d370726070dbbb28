"""The HTTP client for servers: failed requests become errors of single calls.

The official package drops the whole connection when one HTTP request fails. With `McpHttpClient`
only that request fails, and the error code tells whether the request may have reached the server.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import msgspec
from mcp_types import METHOD_NOT_FOUND

from agent.providers.transport.connections import tls_context
from agent.tools.mcp.contract import LoginRequired
from sessions.values.exceptions import error_text

# Error codes of `McpHttpClient`, in the form of a server's own JSON-RPC errors.
NOT_SENT = -47_001  # the request did not reach the server or was rejected
UNCLEAR = -47_002  # the request may have reached the server
SESSION_ENDED = -47_003  # the server does not know the session any more; nothing has run

_SESSION_HEADER = "mcp-session-id"
_SESSION_WORD = re.compile(rb"\bsession\b", re.IGNORECASE)

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


class _JsonRpcMessage(msgspec.Struct):
    """The fields of a message that distinguish calls from notifications."""

    id: int | str | None = None
    method: str = ""

    @property
    def is_call(self) -> bool:
        return self.id is not None and bool(self.method)


class JsonRpcErrorFields(msgspec.Struct):
    """The fields of an error in a JSON-RPC error message."""

    code: int = 0
    message: str = ""


class _JsonRpcError(msgspec.Struct):
    """The fields of an error that comes from the server itself."""

    jsonrpc: str
    error: JsonRpcErrorFields


class HttpRejection(msgspec.Struct, frozen=True):
    """A request that the server refused: its status, and the login that the server asks for."""

    status: int
    challenge: str = ""  # header `WWW-Authenticate`


class McpHttpClient(httpx2.AsyncClient):
    """An HTTP client that turns failed requests into JSON-RPC errors instead of exceptions."""

    def __init__(
        self, login_command: str, headers: Mapping[str, str], auth: httpx2.Auth | None = None
    ) -> None:
        super().__init__(
            auth=auth,
            headers=dict(headers),
            timeout=_HTTP_TIMEOUT,
            limits=_CONNECTION_LIMITS,
            verify=tls_context(),
        )
        self._login_command = login_command
        self.rejection: HttpRejection | None = None
        """The last POST request, if the server answered it with an HTTP error."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - passed on
        """See `httpx2.AsyncClient`."""
        response = await self._send(request, options)
        if request.method == "DELETE" and response.is_error:
            await response.aclose()
            return httpx2.Response(204, request=request)  # the session is over in any case
        return _with_paced_events(response)

    async def _send(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        try:
            async with asyncio.timeout(_header_timeout(request)):
                response = await super().send(request, **options)
                if request.method == "POST":
                    self.rejection = _rejection_of(response)
                    response = await _check_response(request, response, self._login_command)
        except LoginRequired as error:
            self.rejection = HttpRejection(httpx2.codes.UNAUTHORIZED)
            return _error_response(request, NOT_SENT, str(error), httpx2.codes.UNAUTHORIZED)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error_response(
                request, NOT_SENT, f"the server cannot be reached ({error_text(error)})"
            )
        except (httpx2.TransportError, TimeoutError) as error:
            return _error_response(request, UNCLEAR, f"the connection broke ({error_text(error)})")
        return response


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


async def _check_response(
    request: httpx2.Request, response: httpx2.Response, login_command: str
) -> httpx2.Response:
    """Return responses of the server unchanged; replace error pages of proxies by JSON-RPC errors."""
    if not response.is_error:
        return response
    body = await response.aread()
    error = _json_rpc_error(body)
    if _is_session_ended(request, response, body, error):
        reason = "the server has ended the session"
        return _error_response(request, SESSION_ENDED, reason, response.status_code)
    if response.status_code == httpx2.codes.UNAUTHORIZED:
        reason = str(
            LoginRequired(login_command, "the server answered HTTP 401: it asks for a login")
        )
        return _error_response(request, NOT_SENT, reason, response.status_code)
    if error is not None:
        return response
    code = UNCLEAR if response.is_server_error else NOT_SENT
    return _error_response(
        request, code, f"the server answered HTTP {response.status_code}", response.status_code
    )


def _rejection_of(response: httpx2.Response) -> HttpRejection | None:
    if not response.is_error:
        return None
    return HttpRejection(response.status_code, response.headers.get("www-authenticate", ""))


def _json_rpc_error(body: bytes) -> JsonRpcErrorFields | None:
    try:
        return msgspec.json.decode(body, type=_JsonRpcError).error
    except msgspec.DecodeError:
        return None


def _is_session_ended(
    request: httpx2.Request,
    response: httpx2.Response,
    body: bytes,
    error: JsonRpcErrorFields | None,
) -> bool:
    """True if the request named a session that the server does not know; then nothing has run.

    The specification asks for 404. Servers that keep their sessions in memory, such as those of the
    TypeScript SDK, answer 400 with a sentence about the session.
    """
    if _SESSION_HEADER not in request.headers:
        return False
    if response.status_code == httpx2.codes.NOT_FOUND:
        return error is None or error.code != METHOD_NOT_FOUND
    return response.status_code == httpx2.codes.BAD_REQUEST and bool(_SESSION_WORD.search(body))


def _error_response(
    request: httpx2.Request, code: int, message: str, status: int = 503
) -> httpx2.Response:
    error = {"code": code, "message": message}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(status, json=body, request=request)
