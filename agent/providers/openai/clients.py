"""The official SDK: its connections, and its exceptions put into our words.

Importing this imports the SDK, which takes a while; the registry does so only when it is needed.
"""

import functools
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import openai

from agent import errors
from agent.errors import ProviderError
from agent.providers.openai.classify import complaint_in, refused
from agent.providers.sse import EventTooLong
from agent.settings import TargetSettings

STREAMS_PER_CLIENT = 50
"""What one connection pool carries well: its work grows with the square of what it holds."""

_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 60_000),
)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Make it once: it takes longer than all the rest of a client."""
    return httpx2.create_ssl_context()


class Clients:
    """As many clients of one service as its live streams need."""

    def __init__(self, settings: TargetSettings) -> None:
        self._settings = settings
        self._live: dict[openai.AsyncOpenAI, int] = {}
        self.base_url = settings.base_url or str(self._first().base_url)

    @contextmanager
    def lease(self) -> Iterator[openai.AsyncOpenAI]:
        """Lend a client for one stream."""
        client = next((c for c, live in self._live.items() if live < STREAMS_PER_CLIENT), None)
        client = client or self._make()
        self._live[client] += 1
        try:
            yield client
        finally:
            self._live[client] -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        for client in list(self._live):
            await client.close()
        self._live.clear()

    def _first(self) -> openai.AsyncOpenAI:
        return next(iter(self._live), None) or self._make()

    def _make(self) -> openai.AsyncOpenAI:
        settings, timeouts = self._settings, self._settings.timeouts
        # Our own clocks are the shorter ones; these only stand behind them.
        backstop = httpx2.Timeout(timeouts.lifetime + 5, connect=timeouts.connect)
        limits = httpx2.Limits(max_keepalive_connections=STREAMS_PER_CLIENT, keepalive_expiry=30)
        http = openai.DefaultAsyncHttpxClient(verify=_tls(), limits=limits, timeout=backstop)
        client = openai.AsyncOpenAI(
            api_key=settings.api_key.reveal() if settings.api_key else "none",
            base_url=settings.base_url,
            timeout=backstop,
            max_retries=0,
            http_client=http,
        )
        self._live[client] = 0
        return client


def keep_alive(response: httpx2.Response) -> None:
    """Have the system notice a dead connection; left out where it does not know how."""
    stream = response.extensions.get("network_stream")
    sock = stream.get_extra_info("socket") if stream is not None else None
    if sock is None:
        return
    for level, name, value in _KEEPALIVE:
        option = name if isinstance(name, int) else getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(level, option, value)


@contextmanager
def in_our_words(base_url: str) -> Iterator[None]:
    """Raise only what `agent.errors` names, before the headers as well as in the body."""
    try:
        yield
    except (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError, EventTooLong) as error:
        raise _translated(error, base_url) from error


_TABLE: tuple[tuple[type[Exception], type[ProviderError], str], ...] = (
    (httpx2.ConnectError, errors.Overloaded, "no connection to {url}"),
    (httpx2.ConnectTimeout, errors.Overloaded, "no connection to {url} in time"),
    (httpx2.PoolTimeout, errors.Overloaded, "no free connection to {url}"),
    (httpx2.ProxyError, errors.Overloaded, "the proxy on the way to {url} failed"),
    (httpx2.TimeoutException, errors.Stalled, "{url} stopped sending"),
    (httpx2.UnsupportedProtocol, errors.BadRequest, "{url} is not an address we can use"),
    (httpx2.TooManyRedirects, errors.BadRequest, "{url} redirects for ever"),
    (httpx2.LocalProtocolError, errors.BadRequest, "the request could not be written: {error}"),
    (httpx2.HTTPError, errors.Cut, "{error}"),
    (httpx2.StreamError, errors.Cut, "{error}"),
    (EventTooLong, errors.Cut, "{error}"),
    (openai.OpenAIError, errors.BadRequest, "{error}"),
)


def _translated(error: Exception, base_url: str) -> ProviderError:
    if isinstance(error, openai.APIStatusError):
        complaint = complaint_in(error.body if error.body is not None else error.response.text)
        return refused(error.status_code, complaint, error.response.headers)
    cause = error.__cause__
    met = cause if isinstance(error, openai.APIConnectionError) and cause is not None else error
    ours, said = next((ours, said) for theirs, ours, said in _TABLE if isinstance(met, theirs))
    return ours(said.format(url=base_url, error=str(met) or type(met).__name__))
