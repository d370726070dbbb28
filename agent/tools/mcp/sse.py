"""The HTTP transport of protocol version 2024-11-05, which many hosted servers still offer alone.

The server sends all its messages as events of one GET request. The first event names the address
for the messages of the client. The transport of the official package ends with the first message
that fails; with this one, only the call with that message fails.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from agent.tools.mcp.contract import MAX_MESSAGE_BYTES, ServerListener
from agent.tools.mcp.http_client import NOT_SENT, UNCLEAR, JsonRpcErrorFields, McpHttpClient
from sessions.values.exceptions import error_text

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # private, may move

_ENDPOINT_SECONDS = 10.0  # until the first event
_POST_SECONDS = 15.0  # for the acknowledgement of a message; its answer is an event
_MAX_EXAMPLE_LENGTH = 100  # characters of an event that is no message

_log = logging.getLogger(__name__)


class _ErrorBody(msgspec.Struct):
    error: JsonRpcErrorFields


@contextlib.asynccontextmanager
async def sse_streams(
    url: str, client: McpHttpClient, listener: ServerListener
) -> "AsyncIterator[TransportStreams]":
    """Open the stream of events, and send messages to the address that the server names.

    Raises:
        ConnectionError: The address does not speak this transport.
    """
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    from_session, to_server = anyio.create_memory_object_stream[SessionMessage](0)
    endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    try:
        async with client.stream("GET", url, headers=headers, follow_redirects=False) as response:
            _check_event_stream(response)
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(
                    _read_events(url, response, endpoint, to_session, listener),
                    name="events of a server",
                )
                async with asyncio.timeout(_ENDPOINT_SECONDS):
                    address = await endpoint
                writer = group.create_task(
                    _send_messages(client, address, to_server, to_session),
                    name="messages to a server",
                )
                try:
                    yield from_server, from_session
                finally:
                    reader.cancel()
                    writer.cancel()
    finally:
        for stream in (to_session, from_server, from_session, to_server):
            stream.close()


def _check_event_stream(response: httpx2.Response) -> None:
    if response.is_error:
        msg = f"the server answered HTTP {response.status_code}"
        raise ConnectionError(msg)
    content_type = response.headers.get("content-type", "")
    if not content_type.lower().startswith("text/event-stream"):
        msg = f"Unexpected content type: {content_type}"
        raise ConnectionError(msg)


async def _read_events(
    url: str,
    response: httpx2.Response,
    endpoint: asyncio.Future[str],
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    listener: ServerListener,
) -> None:
    """Pass on the messages of the server until the stream ends."""
    reason = "the server ended its stream of events"
    async with to_session:
        try:
            async for event in httpx2.EventSource(response, max_event_size=MAX_MESSAGE_BYTES):
                if event.event == "endpoint" and not endpoint.done():
                    endpoint.set_result(_same_origin(url, event.data))
                elif event.event == "message" and event.data:
                    try:
                        message = jsonrpc_message_adapter.validate_json(event.data, by_name=False)
                    except ValueError:
                        listener.on_unreadable_output(1, event.data[:_MAX_EXAMPLE_LENGTH])
                    else:
                        await to_session.send(SessionMessage(message))
        except (httpx2.TransportError, httpx2.StreamError, httpx2.SSEError) as error:
            reason = f"its stream of events broke ({error_text(error)})"
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session is being closed
    if endpoint.done():
        listener.on_disconnected(reason)
    else:
        endpoint.set_exception(ConnectionError(reason))


def _same_origin(url: str, endpoint: str) -> str:
    """Return the absolute address for messages; other servers must not get our headers."""
    address = urljoin(url, endpoint)
    if urlsplit(address)[:2] != urlsplit(url)[:2]:
        msg = f"the server names an address on another server for messages: {address}"
        raise ConnectionError(msg)
    return address


async def _send_messages(
    client: McpHttpClient,
    address: str,
    to_server: MemoryObjectReceiveStream[SessionMessage],
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Send the messages of the session one after the other, because their order matters."""
    async for item in to_server:
        error = await _send_message(client, address, item)
        if error is None:
            continue
        if isinstance(item.message, JSONRPCRequest):
            reply = JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error)
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await to_session.send(SessionMessage(reply))
        else:
            _log.debug("a message was not accepted: %s", error.message)


async def _send_message(
    client: McpHttpClient, address: str, item: SessionMessage
) -> ErrorData | None:
    """Send one message; return the error if it was not accepted."""
    body = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
    try:
        async with asyncio.timeout(_POST_SECONDS):
            response = await client.post(address, json=body, follow_redirects=False)
    except TimeoutError:
        return ErrorData(code=UNCLEAR, message="the server did not acknowledge the message")
    if response.is_success:
        return None
    try:
        error = msgspec.json.decode(response.content, type=_ErrorBody).error
    except msgspec.DecodeError:
        message = f"the server answered HTTP {response.status_code}"
        return ErrorData(code=NOT_SENT, message=message)
    return ErrorData(code=error.code, message=error.message)
