"""An HTTP client that fetches only from the public internet.

A host name is resolved once, and the connection goes to the checked address, so DNS rebinding has
no effect. Proxies, cookies and passwords of the environment are not used. Redirects are checked
like the first URL.
"""

import asyncio
import functools
import ssl
from collections.abc import Awaitable, Callable, Sequence
from socket import SOCK_STREAM

import h11
import msgspec

from agent.web.errors import FetchError
from agent.web.urls import FetchRules, FetchTarget, parse_target, resolve_redirect

ResolveName = Callable[[str], Awaitable[Sequence[str]]]
"""Resolves a host name to IP addresses."""

_MAX_REDIRECTS = 3
_FETCH_SECONDS = 20.0
"""Time limit for a fetch, including redirects."""

_CONNECT_SECONDS = 5.0
_MAX_ADDRESSES = 3  # tried per host
_READ_BYTES = 65_536
_REDIRECT_STATUSES = {301, 302, 303, 307, 308}


class FetchedResource(msgspec.Struct, frozen=True):
    """The response at the end of all redirects."""

    url: str
    status: int
    media_type: str  # as declared by the server
    content: bytes


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return the shared TLS context; creating one loads all certificates of this machine."""
    return ssl.create_default_context()


async def resolve_name(name: str) -> Sequence[str]:
    """Resolve a host name with the resolver of this machine."""
    loop = asyncio.get_running_loop()
    results = await loop.getaddrinfo(name, None, type=SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


class Fetcher:
    """An HTTP client; concurrent fetches are independent of each other."""

    def __init__(
        self,
        rules: FetchRules | None = None,
        *,
        resolve: ResolveName = resolve_name,
        tls: Callable[[], ssl.SSLContext] = tls_context,
        seconds: float = _FETCH_SECONDS,
    ) -> None:
        self._rules = rules or FetchRules()
        self._resolve = resolve
        self._tls = tls
        self._seconds = seconds

    async def get(self, url: str, max_bytes: int, accept: str = "*/*") -> FetchedResource:
        """Fetch a URL; raises `FetchError`, also for a body larger than `max_bytes`."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow_redirects(
                    parse_target(url, self._rules), max_bytes, accept
                )
        except TimeoutError as error:
            msg = f"it did not arrive within {self._seconds:g} seconds"
            raise FetchError(msg) from error
        except (OSError, UnicodeError) as error:
            msg = "the connection broke"
            raise FetchError(msg) from error
        except h11.ProtocolError as error:
            msg = "the server violates the HTTP protocol"
            raise FetchError(msg) from error

    async def _follow_redirects(
        self, target: FetchTarget, max_bytes: int, accept: str
    ) -> FetchedResource:
        for _ in range(_MAX_REDIRECTS + 1):
            reader, writer = await self._connect(target)
            try:
                exchange = _HttpExchange(reader, writer, target)
                head = await exchange.read_head(accept)
                location = exchange.header("location")
                if head.status_code not in _REDIRECT_STATUSES or not location:
                    kind = exchange.header("content-type").partition(";")[0].strip().lower()
                    content = await exchange.read_body(max_bytes)
                    return FetchedResource(target.url, head.status_code, kind, content)
            finally:
                writer.transport.abort()
            target = resolve_redirect(target, location, self._rules)
        msg = f"it redirects more than {_MAX_REDIRECTS} times"
        raise FetchError(msg)

    async def _connect(
        self, target: FetchTarget
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first allowed address that answers."""
        last_error: OSError | None = None
        for address in await self._resolve_allowed(target):
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await self._open_connection(target, address)
            except OSError as error:  # `TimeoutError` is one as well
                last_error = error
        msg = f"{target.host} cannot be reached"
        if isinstance(last_error, ssl.SSLError):
            msg = f"{target.host} has no valid certificate"
        raise FetchError(msg) from last_error

    async def _resolve_allowed(self, target: FetchTarget) -> Sequence[str]:
        literal = target.literal_address
        try:
            addresses = [literal] if literal else await self._resolve(target.host)
        except OSError as error:
            msg = f"the host {target.host} does not exist"
            raise FetchError(msg) from error
        allowed = [address for address in addresses if self._rules.allows(address, target.port)]
        if not allowed:
            msg = f"{target.host} is not on the public internet"
            raise FetchError(msg)
        return allowed[:_MAX_ADDRESSES]

    async def _open_connection(
        self, target: FetchTarget, address: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if target.scheme == "http":
            return await asyncio.open_connection(address, target.port)
        context = await asyncio.to_thread(self._tls)
        name = target.host.rstrip(".")
        return await asyncio.open_connection(
            address, target.port, ssl=context, server_hostname=name
        )


class _HttpExchange:
    """One request and its response."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: FetchTarget
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._target = target
        self._http = h11.Connection(h11.CLIENT)
        self._headers: dict[bytes, bytes] = {}

    async def read_head(self, accept: str) -> h11.Response:
        """Send the request and read the response headers."""
        request = h11.Request(
            method="GET",
            target=self._target.path,
            headers=[
                ("Host", self._target.authority),
                ("User-Agent", "Holdfast"),
                ("Accept", accept),
                ("Accept-Encoding", "identity"),
                ("Connection", "close"),
            ],
        )
        for event in (request, h11.EndOfMessage()):
            self._writer.write(self._http.send(event) or b"")
        while not isinstance(response := await self._next_event(), h11.Response):
            pass  # informational responses (1xx)
        self._headers = dict(response.headers)
        return response

    def header(self, name: str) -> str:
        """Return a response header by its lower-case name; empty if missing."""
        return self._headers.get(name.encode(), b"").decode("latin-1")

    async def read_body(self, max_bytes: int) -> bytes:
        """Read the body; raises `FetchError` as soon as the body is known to be too large."""
        if self.header("content-encoding").strip().lower() not in {"", "identity"}:
            msg = "it is compressed although no compression was requested"
            raise FetchError(msg)
        received = bytearray()
        length = self.header("content-length")
        expected = int(length) if length.isdecimal() else 0
        while expected <= max_bytes and len(received) <= max_bytes:
            event = await self._next_event()
            if not isinstance(event, h11.Data):
                return bytes(received)
            received += event.data
        msg = "it is too large"
        raise FetchError(msg)

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_READ_BYTES))
        return event
