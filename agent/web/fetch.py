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

from agent.web.errors import NotFetched
from agent.web.urls import Rules, Target, redirected, target

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Gives the addresses of a name as numbers."""

REDIRECTS = 3
SECONDS = 20.0
"""For all of it, redirects included."""

_CONNECT = 5.0
_MOST_TRIED = 3  # addresses of one name
_PIECE = 65_536
_LEADS_ON = {301, 302, 303, 307, 308}


class Fetched(msgspec.Struct, frozen=True):
    """What was there in the end."""

    url: str
    status: int
    media_type: str  # as the server calls it
    content: bytes


@functools.cache
def tls() -> ssl.SSLContext:
    """Make it once: it reads all authorities of this machine."""
    return ssl.create_default_context()


async def look_up(name: str) -> Sequence[str]:
    """Ask the name service of this machine."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, None, type=SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Fetcher:
    """Fetches, one address at a time or several."""

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        resolve: Resolve = look_up,
        tls: Callable[[], ssl.SSLContext] = tls,
        seconds: float = SECONDS,
    ) -> None:
        self._rules = rules or Rules()
        self._resolve = resolve
        self._tls = tls
        self._seconds = seconds

    async def get(self, url: str, most: int, accept: str = "*/*") -> Fetched:
        """Fetch up to `most` bytes; raises `NotFetched`."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._followed(target(url, self._rules), most, accept)
        except TimeoutError as error:
            msg = f"it did not come within {self._seconds:g} seconds"
            raise NotFetched(msg) from error
        except (OSError, UnicodeError) as error:
            msg = "the connection broke"
            raise NotFetched(msg) from error
        except h11.ProtocolError as error:
            msg = "the server there does not speak HTTP as it should"
            raise NotFetched(msg) from error

    async def _followed(self, wanted: Target, most: int, accept: str) -> Fetched:
        for _ in range(REDIRECTS + 1):
            reader, writer = await self._connected(wanted)
            try:
                exchange = _Exchange(reader, writer, wanted)
                head = await exchange.head(accept)
                location = exchange.header("location")
                if head.status_code not in _LEADS_ON or not location:
                    kind = exchange.header("content-type").partition(";")[0].strip().lower()
                    content = await exchange.body(most)
                    return Fetched(wanted.url, head.status_code, kind, content)
            finally:
                writer.transport.abort()
            wanted = redirected(wanted, location, self._rules)
        msg = f"it leads on more than {REDIRECTS} times"
        raise NotFetched(msg)

    async def _connected(self, wanted: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first of its addresses that is allowed, and answers."""
        failed: OSError | None = None
        for address in await self._addresses(wanted):
            try:
                async with asyncio.timeout(_CONNECT):
                    return await self._open(wanted, address)
            except OSError as error:  # a timeout is one as well
                failed = error
        msg = f"{wanted.host} cannot be reached"
        if isinstance(failed, ssl.SSLError):
            msg = f"{wanted.host} cannot prove that it is {wanted.host}"
        raise NotFetched(msg) from failed

    async def _addresses(self, wanted: Target) -> Sequence[str]:
        numbers = wanted.numbers
        try:
            found = [numbers] if numbers else await self._resolve(wanted.host)
        except OSError as error:
            msg = f"there is no {wanted.host}"
            raise NotFetched(msg) from error
        allowed = [each for each in found if self._rules.allow(each, wanted.port)]
        if not allowed:
            msg = f"{wanted.host} is not on the public internet"
            raise NotFetched(msg)
        return allowed[:_MOST_TRIED]

    async def _open(
        self, wanted: Target, address: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if wanted.scheme == "http":
            return await asyncio.open_connection(address, wanted.port)
        context = await asyncio.to_thread(self._tls)
        name = wanted.host.rstrip(".")
        return await asyncio.open_connection(
            address, wanted.port, ssl=context, server_hostname=name
        )


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wanted: Target
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._wanted = wanted
        self._http = h11.Connection(h11.CLIENT)
        self._headers: dict[bytes, bytes] = {}

    async def head(self, accept: str) -> h11.Response:
        """Ask, and read how the answer begins."""
        request = h11.Request(
            method="GET",
            target=self._wanted.path,
            headers=[
                ("Host", self._wanted.authority),
                ("User-Agent", "Holdfast"),
                ("Accept", accept),
                ("Accept-Encoding", "identity"),
                ("Connection", "close"),
            ],
        )
        for event in (request, h11.EndOfMessage()):
            self._writer.write(self._http.send(event) or b"")
        while not isinstance(answer := await self._next(), h11.Response):
            pass  # what only announces an answer
        self._headers = dict(answer.headers)
        return answer

    def header(self, name: str) -> str:
        """Give a header of the answer."""
        return self._headers.get(name.encode(), b"").decode("latin-1")

    async def body(self, most: int) -> bytes:
        """Read the rest; raises `NotFetched` as soon as it is known to be too much."""
        if self.header("content-encoding").strip().lower() not in {"", "identity"}:
            msg = "it is sent compressed, which was not asked for"
            raise NotFetched(msg)
        received = bytearray()
        length = self.header("content-length")
        expected = int(length) if length.isdecimal() else 0
        while expected <= most and len(received) <= most:
            event = await self._next()
            if not isinstance(event, h11.Data):
                return bytes(received)
            received += event.data
        msg = "it is too large"
        raise NotFetched(msg)

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_PIECE))
        return event
