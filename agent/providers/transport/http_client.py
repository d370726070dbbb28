"""The HTTP client of the SDKs, with connections opened by `SocketBackend`.

A network backend can only be passed to httpcore2 when a connection pool is built. httpx2 builds
pools without a backend, so this module builds the pools and wraps them as transports of httpx2.
"""

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager

import httpcore2
import httpx2

from agent.providers.transport.connections import (
    CONNECTION_LIMITS,
    keepalive_options,
    tls_context,
)
from agent.providers.transport.proxies import environment_proxies
from agent.providers.transport.sockets import SocketBackend


def make_http_client(
    timeout: httpx2.Timeout, *, tls: ssl.SSLContext | None = None, own_sockets: bool = True
) -> httpx2.AsyncClient:
    """Build a client that follows redirects and uses the proxies of the environment.

    Without `own_sockets`, httpx2 carries all connections itself, with the same results but slower.
    """
    tls = tls or tls_context()
    backend = SocketBackend() if own_sockets else None
    proxies = environment_proxies().items()
    return httpx2.AsyncClient(
        transport=_make_transport(tls, None, backend),
        mounts={
            pattern: None if url is None else _make_transport(tls, httpx2.Proxy(url), backend)
            for pattern, url in proxies
        },
        timeout=timeout,
        follow_redirects=True,
    )


def _make_transport(
    tls: ssl.SSLContext, proxy: httpx2.Proxy | None, backend: SocketBackend | None
) -> httpx2.AsyncBaseTransport:
    """Return a transport over `backend`, or one of httpx2 without a backend or for SOCKS."""
    if backend is None or (proxy and proxy.url.scheme.startswith("socks")):
        return httpx2.AsyncHTTPTransport(
            verify=tls, limits=CONNECTION_LIMITS, proxy=proxy, socket_options=keepalive_options()
        )
    return _PoolTransport(
        httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            proxy=_core_proxy(proxy) if proxy else None,
            max_connections=CONNECTION_LIMITS.max_connections,
            max_keepalive_connections=CONNECTION_LIMITS.max_keepalive_connections,
            keepalive_expiry=CONNECTION_LIMITS.keepalive_expiry,
            network_backend=backend,
            socket_options=keepalive_options(),
        )
    )


def _core_proxy(proxy: httpx2.Proxy) -> httpcore2.Proxy:
    return httpcore2.Proxy(
        _core_url(proxy.url), proxy.raw_auth, proxy.headers.raw, proxy.ssl_context
    )


def _core_url(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )


class _PoolTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of httpx2 through a pool of httpcore2, as httpx2's own transport does."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return once the headers of the response have arrived."""
        assert isinstance(request.stream, AsyncIterable)  # noqa: S101 - an AsyncClient made it
        sent = httpcore2.Request(
            request.method,
            _core_url(request.url),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _translate_errors():
            response = await self._pool.handle_async_request(sent)
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_PoolStream(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections at the same time; the pool would close one after the other."""
        async with asyncio.TaskGroup() as group:
            for connection in self._pool.connections:
                group.create_task(connection.aclose())
        await self._pool.aclose()


class _PoolStream(httpx2.AsyncByteStream):
    """The body of a response."""

    def __init__(self, response: httpcore2.Response) -> None:
        assert isinstance(response.stream, AsyncIterable)  # noqa: S101 - an async pool made it
        self._stream = response.stream
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translate_errors():
            # Not `aiter_stream`, which is one more generator to pass for every piece.
            async for data in self._stream:
                yield data

    async def aclose(self) -> None:
        """Release the connection."""
        await self._response.aclose()


_ERROR_TABLE: dict[type[Exception], type[httpx2.TransportError]] = {
    httpcore2.ConnectTimeout: httpx2.ConnectTimeout,
    httpcore2.ReadTimeout: httpx2.ReadTimeout,
    httpcore2.WriteTimeout: httpx2.WriteTimeout,
    httpcore2.PoolTimeout: httpx2.PoolTimeout,
    httpcore2.ConnectError: httpx2.ConnectError,
    httpcore2.ReadError: httpx2.ReadError,
    httpcore2.WriteError: httpx2.WriteError,
    httpcore2.ProxyError: httpx2.ProxyError,
    httpcore2.UnsupportedProtocol: httpx2.UnsupportedProtocol,
    httpcore2.LocalProtocolError: httpx2.LocalProtocolError,
    httpcore2.RemoteProtocolError: httpx2.RemoteProtocolError,
    httpcore2.TimeoutException: httpx2.TimeoutException,
    httpcore2.NetworkError: httpx2.NetworkError,
    httpcore2.ProtocolError: httpx2.ProtocolError,
}
"""The first match counts, so base classes come last."""


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except tuple(_ERROR_TABLE) as error:
        ours = next(ours for theirs, ours in _ERROR_TABLE.items() if isinstance(error, theirs))
        raise ours(str(error)) from error
