"""Connections to model services, as every SDK that stands on httpx2 needs them."""

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
from agent.providers.transport import sockets
from agent.providers.transport.chunked import ChunkedDecoder
from agent.providers.transport.sse import EventTooLong
from agent.settings import Timeouts
from sessions.values.secret import Secret

STREAMS_PER_CLIENT = 50
"""What one connection pool carries well: its work grows with the square of what it holds."""

CONNECTION_LIMITS = httpx2.Limits(max_keepalive_connections=STREAMS_PER_CLIENT, keepalive_expiry=30)

_CLOSE_SECONDS = 2.0
_DRAIN_SECONDS = 0.1  # a connection whose body ends in this time can be used again

_KEEPALIVE = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 30),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 10),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 60_000),
)


class ChunkReader(Protocol):
    """Turns the body of one answer into chunks."""

    done: bool

    def feed(self, received: bytes) -> Iterator[Chunk]:
        """Take bytes."""
        ...

    def close(self) -> Iterator[Chunk]:
        """The body is over."""
        ...


class SupportsClose(Protocol):
    """A client of an SDK."""

    async def close(self) -> None:
        """Close its connections."""
        ...


Client = TypeVar("Client", bound=SupportsClose)
Answer = TypeVar("Answer")


class ServiceKey:
    """The key of one service. Whoever puts another one in its place need not restart us."""

    def __init__(self, secret: Secret | None) -> None:
        self._secret = secret or Secret("none")  # SDKs want one, also for servers that do not

    async def send_with_key(self, send: Callable[[str], Awaitable[Answer]]) -> Answer:
        """Send something with the key; where it is refused and there is another one, with that."""
        shown = self._secret.reveal()
        try:
            return await send(shown)
        except ApiKeyRejected:
            if not await self._reload_if_changed(shown):
                raise
        # Not a second try of the same thing: the service has not seen this key yet.
        return await send(self._secret.reveal())

    async def _reload_if_changed(self, refused: str) -> bool:
        secret = self._secret
        newer = await asyncio.to_thread(secret.reread)
        if newer is not secret and self._secret is secret:  # nobody has found it out meanwhile
            self._secret = newer
            newer.notify_listeners()
        return self._secret.reveal() != refused


class ClientPool(Generic[Client]):
    """As many clients of one service as its live streams need."""

    def __init__(self, make_client: Callable[[], Client]) -> None:
        self._make_client = make_client
        self._stream_counts: dict[Client, int] = {}

    @property
    def stream_counts(self) -> list[int]:
        """How many streams each client carries."""
        return list(self._stream_counts.values())

    @contextmanager
    def lease(self) -> Iterator[Client]:
        """Lend a client for one stream."""
        free = (client for client, live in self._stream_counts.items() if live < STREAMS_PER_CLIENT)
        client = next(free, None) or self._make_client()
        self._stream_counts[client] = self._stream_counts.get(client, 0) + 1
        try:
            yield client
        finally:
            self._stream_counts[client] -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        for client in list(self._stream_counts):
            await client.close()
        self._stream_counts.clear()


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Make it once: it takes longer than all the rest of a client."""
    return httpx2.create_ssl_context()


def socket_timeouts(timeouts: Timeouts) -> httpx2.Timeout:
    """Give the sockets' own clocks; ours are shorter, these only stand behind them."""
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
    """Read a list of models, which all services write alike."""
    try:
        models = msgspec.json.decode(listed.content, type=_ModelListing)
    except msgspec.DecodeError:
        msg = f"{url} does not give a list of models"
        raise BadRequest(msg) from None
    return tuple(model.id for model in models.data)


def as_response(answer: object) -> httpx2.Response:
    """Take what an SDK gives when it is told to stream into a bare response."""
    response = cast("httpx2.Response", answer)  # as `cast_to` asks, whatever the types say
    enable_keepalive(response)
    return response


@asynccontextmanager
async def stream_response(
    lease: AbstractContextManager[Client],
    open_response: Callable[[Client], Awaitable[httpx2.Response]],
    read_chunks: Callable[[httpx2.Response], AsyncGenerator[Chunk]],
) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Give the chunks of one answer; the connection is free again at the end."""
    with lease as client:
        response = await open_response(client)
        try:
            async with aclosing(read_chunks(response)) as given:
                yield given
        finally:
            await close_response(response)


CONNECTION_ERRORS = (httpx2.HTTPError, httpx2.StreamError, EventTooLong)
"""How a connection fails; SDKs wrap these before the headers and let them through after."""

_ERROR_TABLE: tuple[tuple[type[Exception], type[ProviderError], str], ...] = (
    (httpx2.ConnectError, errors.Overloaded, "no connection to {url}"),
    (httpx2.ConnectTimeout, errors.Overloaded, "no connection to {url} in time"),
    (httpx2.PoolTimeout, errors.Overloaded, "no free connection to {url}"),
    (httpx2.ProxyError, errors.Overloaded, "the proxy on the way to {url} failed"),
    (httpx2.TimeoutException, errors.Stalled, "{url} stopped sending"),
    (httpx2.UnsupportedProtocol, errors.BadRequest, "{url} is not an address we can use"),
    (httpx2.TooManyRedirects, errors.BadRequest, "{url} redirects for ever"),
    (httpx2.LocalProtocolError, errors.BadRequest, "the request could not be written: {error}"),
    *((each, errors.ConnectionLost, "{error}") for each in CONNECTION_ERRORS),
    (Exception, errors.BadRequest, "{error}"),
)


def translate_error(error: Exception, url: str) -> ProviderError:
    """Put a failure into our words; what is not of the connection is the request's own fault."""
    ours, said = next(
        (ours, said) for theirs, ours, said in _ERROR_TABLE if isinstance(error, theirs)
    )
    return ours(said.format(url=url, error=str(error) or type(error).__name__))


async def read_chunks(response: httpx2.Response, reader: ChunkReader) -> AsyncGenerator[Chunk]:
    """Give what a body says; one that has said its last is not read to its end for long."""
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
    """Give what comes.

    Plain chunks are read from the connection itself: on their way through the HTTP client they take
    longer than in all the rest of us. The end, and whatever is not quite as it should be, is its part.
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
    """Read the rest of a body that has said its last; what happens now is of no interest."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in received:
                pass


async def close_response(response: httpx2.Response) -> None:
    """Close a response; a connection that does not let itself be closed is left alone."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await response.aclose()
