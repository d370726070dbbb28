"""Client pools, API keys, timeouts and connection errors, shared by the SDKs built on httpx2."""

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Generic, Protocol, TypeVar, cast

import httpcore2
import httpx2
import msgspec

from agent import errors
from agent.errors import ApiKeyRejected, BadRequest, ProviderError
from agent.model.contract import Chunk
from agent.providers.error_table import ErrorRule, FailedRequest, translate
from agent.providers.transport import sockets
from agent.providers.transport.chunked import ChunkedDecoder
from agent.providers.transport.sse import EventTooLong
from agent.settings import Timeouts
from sessions.values.secret import Secret

STREAMS_PER_CLIENT = 50
"""Streams per client, because the work of a connection pool grows quadratically."""

CONNECTION_LIMITS = httpx2.Limits(max_keepalive_connections=STREAMS_PER_CLIENT, keepalive_expiry=30)

_CLOSE_SECONDS = 2.0
_DRAIN_SECONDS = 0.1  # longest wait for the end of a body, which makes the connection reusable

_KEEPALIVE = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 30),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 10),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 60_000),
)


class ChunkReader(Protocol):
    """Converts the body of one response to chunks."""

    done: bool

    def feed(self, received: bytes) -> Iterator[Chunk]:
        """Yield the chunks completed by these bytes."""
        ...

    def close(self) -> Iterator[Chunk]:
        """Yield the chunks left at the end of the body."""
        ...


class SupportsClose(Protocol):
    """An SDK's client."""

    async def close(self) -> None:
        """Close all connections."""
        ...


Client = TypeVar("Client", bound=SupportsClose)
Answer = TypeVar("Answer")


class ServiceKey:
    """The API key of one service; a rotated key is picked up without a restart."""

    def __init__(self, secret: Secret | None) -> None:
        self._secret = secret or Secret("none")  # SDKs require a key even where servers do not

    async def send_with_key(self, send: Callable[[str], Awaitable[Answer]]) -> Answer:
        """Send a request with the key, and once more if the key is rejected and has been rotated.

        Raises `ApiKeyRejected`.
        """
        key = self._secret.reveal()
        try:
            return await send(key)
        except ApiKeyRejected:
            if not await self._reload_if_changed(key):
                raise
        # This is no retry of the same request: the service has not seen this key yet.
        return await send(self._secret.reveal())

    async def _reload_if_changed(self, rejected: str) -> bool:
        secret = self._secret
        newer = await asyncio.to_thread(secret.reread)
        if newer is not secret and self._secret is secret:  # no other request was faster
            self._secret = newer
            newer.notify_listeners()
        return self._secret.reveal() != rejected


class ClientPool(Generic[Client]):
    """Clients of one service, as many as its open streams need."""

    def __init__(self, make_client: Callable[[], Client]) -> None:
        self._make_client = make_client
        self._stream_counts: dict[Client, int] = {}

    @property
    def stream_counts(self) -> list[int]:
        """Number of open streams per client."""
        return list(self._stream_counts.values())

    @contextmanager
    def lease(self) -> Iterator[Client]:
        """Lease a client for one stream."""
        counts = self._stream_counts.items()
        free = (client for client, streams in counts if streams < STREAMS_PER_CLIENT)
        client = next(free, None) or self._make_client()
        self._stream_counts[client] = self._stream_counts.get(client, 0) + 1
        try:
            yield client
        finally:
            self._stream_counts[client] -= 1

    async def aclose(self) -> None:
        """Close all connections; give up on those that do not close in time."""
        clients = list(self._stream_counts)
        self._stream_counts.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS), asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.close())


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return the shared TLS context; creating one is the slowest part of creating a client."""
    return httpx2.create_ssl_context()


def socket_timeouts(timeouts: Timeouts) -> httpx2.Timeout:
    """Return the socket timeouts; they are only a backstop behind the shorter model timeouts."""
    return httpx2.Timeout(timeouts.lifetime + 5, connect=timeouts.connect)


@functools.cache
def keepalive_options() -> tuple[tuple[int, int, int], ...]:
    """Return the socket options that detect a dead connection, as far as this system has them."""
    return tuple(
        (getattr(socket, level), getattr(socket, name), value)
        for level, name, value in _KEEPALIVE
        if hasattr(socket, name)
    )


def enable_keepalive(response: httpx2.Response) -> None:
    """Set the keepalive options again, because connections through a proxy open without them."""
    stream = response.extensions.get("network_stream")
    sock = stream.get_extra_info("socket") if stream is not None else None
    if sock is None:
        return
    for option in keepalive_options():
        sock.setsockopt(*option)


REQUEST_HEADERS = {"accept-encoding": "identity", "content-type": "application/json"}


class _ListedModel(msgspec.Struct):
    id: str


class _ModelListing(msgspec.Struct):
    data: list[_ListedModel]


def parse_models(listed: httpx2.Response, url: str) -> tuple[str, ...]:
    """Read the names in a list of models, which has the same form in all services."""
    try:
        models = msgspec.json.decode(listed.content, type=_ModelListing)
    except msgspec.DecodeError:
        msg = f"{url} does not return a list of models"
        raise BadRequest(msg) from None
    return tuple(model.id for model in models.data)


def as_response(answer: object) -> httpx2.Response:
    """Cast an SDK's answer to a plain response and enable TCP keepalive."""
    response = cast("httpx2.Response", answer)  # because of `cast_to=httpx2.Response`
    enable_keepalive(response)
    return response


@asynccontextmanager
async def stream_response(
    lease: AbstractContextManager[Client],
    open_response: Callable[[Client], Awaitable[httpx2.Response]],
    read_chunks: Callable[[httpx2.Response], AsyncGenerator[Chunk]],
) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Yield the chunks of one response; release the connection at the end."""
    with lease as client:
        response = await open_response(client)
        try:
            async with aclosing(read_chunks(response)) as chunks:
                yield chunks
        finally:
            await close_response(response)


CONNECTION_ERRORS = (httpx2.HTTPError, httpx2.StreamError, EventTooLong)
"""Connection errors; SDKs wrap them before the response headers and pass them through after."""

_EXCEPTIONS = (
    ErrorRule(errors.Overloaded, "no connection to {url}", httpx2.ConnectError),
    ErrorRule(errors.Overloaded, "no connection to {url} in time", httpx2.ConnectTimeout),
    ErrorRule(errors.Overloaded, "no free connection to {url}", httpx2.PoolTimeout),
    ErrorRule(errors.Overloaded, "the proxy for {url} failed", httpx2.ProxyError),
    ErrorRule(errors.Stalled, "{url} stopped sending", httpx2.TimeoutException),
    ErrorRule(errors.BadRequest, "{url} is not a supported URL", httpx2.UnsupportedProtocol),
    ErrorRule(errors.BadRequest, "too many redirects from {url}", httpx2.TooManyRedirects),
    ErrorRule(
        errors.BadRequest, "the request could not be written: {error}", httpx2.LocalProtocolError
    ),
    ErrorRule(errors.EndedEarly, "{error}", httpx2.RemoteProtocolError),
    ErrorRule(errors.ConnectionLost, "{error}", CONNECTION_ERRORS),
    ErrorRule(errors.BadRequest, "{error}"),
)


def translate_error(error: Exception, url: str) -> ProviderError:
    """Map a failure to a `ProviderError`; unknown failures count as `BadRequest`."""
    return translate(_EXCEPTIONS, FailedRequest(error=error, url=url))


async def read_chunks(response: httpx2.Response, reader: ChunkReader) -> AsyncGenerator[Chunk]:
    """Yield the chunks of a body; after the end marker, wait only briefly for the body's end."""
    async with aclosing(_read_body(response)) as received:
        async for data in received:
            for chunk in reader.feed(data):
                yield chunk
            if reader.done:
                await _drain(received)
                return
    for chunk in reader.close():
        yield chunk


async def _read_body(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """Yield the bytes of a body.

    Plain chunks are read directly from the connection, because the HTTP client spends more time on
    them than the rest of the program. The client reads the end of the body and any other data.
    """
    stream = response.extensions.get("network_stream")
    if isinstance(stream, sockets.SocketStream) and stream.at_body and _is_plain_chunked(response):
        chunks = ChunkedDecoder()
        seconds = response.request.extensions.get("timeout", {}).get("read")
        with _translate_timeout():
            while data := await stream.read_chunks(chunks, seconds):
                yield data
    async with aclosing(response.aiter_bytes()) as received:
        async for data in received:
            yield data


def _is_plain_chunked(response: httpx2.Response) -> bool:
    headers = response.headers
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    return (
        chunked
        and headers.get("content-encoding", "identity").lower() == "identity"
        and response.http_version == "HTTP/1.1"
    )


@contextmanager
def _translate_timeout() -> Iterator[None]:
    try:
        yield
    except httpcore2.ReadTimeout as error:
        raise httpx2.ReadTimeout(str(error)) from error


async def _drain(received: AsyncIterator[bytes]) -> None:
    """Read the rest of a body so that the connection can be reused; ignore failures."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in received:
                pass


async def close_response(response: httpx2.Response) -> None:
    """Close a response; give up on a connection that does not close in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await response.aclose()
