"""Gets what lies at a web address, from the public internet alone.

A name is looked up once, and the connection goes to the very address that was judged: a name service
that answers anew for the connection changes nothing. Nothing of the environment is used (proxies,
cookies, stored passwords). Redirects are judged like the first address.
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
"""Gives the addresses of a name as numbers."""

MAX_REDIRECTS = 3
FETCH_SECONDS = 20.0
"""For all of it, redirects included."""

_CONNECT_SECONDS = 5.0
_MAX_ADDRESSES = 3  # addresses of one name
_READ_BYTES = 65_536
_REDIRECT_STATUSES = {301, 302, 303, 307, 308}


class FetchedResource(msgspec.Struct, frozen=True):
    """What was there in the end."""

    url: str
    status: int
    media_type: str  # as the server calls it
    content: bytes


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Make it once: it reads all authorities of this machine."""
    return ssl.create_default_context()


async def resolve_name(name: str) -> Sequence[str]:
    """Ask the name service of this machine."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, None, type=SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Fetcher:
    """Fetches, one address at a time or several."""

    def __init__(
        self,
        rules: FetchRules | None = None,
        *,
        resolve: ResolveName = resolve_name,
        tls: Callable[[], ssl.SSLContext] = tls_context,
        seconds: float = FETCH_SECONDS,
    ) -> None:
        self._rules = rules or FetchRules()
        self._resolve = resolve
        self._tls = tls
        self._seconds = seconds

    async def get(self, url: str, max_bytes: int, accept: str = "*/*") -> FetchedResource:
        """Fetch up to `most` bytes; raises `FetchError`."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow_redirects(
                    parse_target(url, self._rules), max_bytes, accept
                )
        except TimeoutError as error:
            msg = f"it did not come within {self._seconds:g} seconds"
            raise FetchError(msg) from error
        except (OSError, UnicodeError) as error:
            msg = "the connection broke"
            raise FetchError(msg) from error
        except h11.ProtocolError as error:
            msg = "the server there does not speak HTTP as it should"
            raise FetchError(msg) from error

    async def _follow_redirects(
        self, target: FetchTarget, max_bytes: int, accept: str
    ) -> FetchedResource:
        for _ in range(MAX_REDIRECTS + 1):
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
        msg = f"it leads on more than {MAX_REDIRECTS} times"
        raise FetchError(msg)

    async def _connect(
        self, target: FetchTarget
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first of its addresses that is allowed, and answers."""
        failed: OSError | None = None
        for address in await self._resolve_allowed(target):
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await self._open_connection(target, address)
            except OSError as error:  # a timeout is one as well
                failed = error
        msg = f"{target.host} cannot be reached"
        if isinstance(failed, ssl.SSLError):
            msg = f"{target.host} cannot prove that it is {target.host}"
        raise FetchError(msg) from failed

    async def _resolve_allowed(self, target: FetchTarget) -> Sequence[str]:
        numbers = target.literal_address
        try:
            found = [numbers] if numbers else await self._resolve(target.host)
        except OSError as error:
            msg = f"there is no {target.host}"
            raise FetchError(msg) from error
        allowed = [each for each in found if self._rules.allows(each, target.port)]
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
    """One request and its answer."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: FetchTarget
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._target = target
        self._http = h11.Connection(h11.CLIENT)
        self._headers: dict[bytes, bytes] = {}

    async def read_head(self, accept: str) -> h11.Response:
        """Ask, and read how the answer begins."""
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
        while not isinstance(answer := await self._next_event(), h11.Response):
            pass  # what only announces an answer
        self._headers = dict(answer.headers)
        return answer

    def header(self, name: str) -> str:
        """Give a header of the answer."""
        return self._headers.get(name.encode(), b"").decode("latin-1")

    async def read_body(self, max_bytes: int) -> bytes:
        """Read the rest; raises `FetchError` as soon as it is known to be too much."""
        if self.header("content-encoding").strip().lower() not in {"", "identity"}:
            msg = "it is sent compressed, which was not asked for"
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
