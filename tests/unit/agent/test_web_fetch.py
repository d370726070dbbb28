"""Fetching from a real server on loopback, which the rules allow as an extra address."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.web.errors import FetchError
from agent.web.fetch import Fetcher
from agent.web.urls import FetchRules
from tests.fakes.certificates import certified
from tests.fakes.shelf import PNG, Shelf, answer, leads_to

MOST = 1_000_000
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: image/png; x=y\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
)


class Names:
    """A resolver with scripted answers that records its queries."""

    def __init__(self, **known: Sequence[str]) -> None:
        self.known = known
        self.asked: list[str] = []

    async def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        try:
            return self.known[name]
        except KeyError:
            raise socket.gaierror(socket.EAI_NONAME, "unknown") from None


def fetcher(shelf: Shelf, names: Names | None = None, seconds: float = 5.0) -> Fetcher:
    rules = FetchRules(extra_addresses={("127.0.0.1", shelf.port)})
    return Fetcher(rules, resolve=names or Names(pictures=("127.0.0.1",)), seconds=seconds)


async def test_a_fetch_returns_the_content_and_sends_few_headers() -> None:
    async with Shelf({"/a.png?b": answer(PNG, "image/PNG; x=y")}).open() as shelf:
        found = await fetcher(shelf).get(f"http://pictures:{shelf.port}/a.png?b#c", MOST, "image/*")
        assert (found.status, found.media_type, found.content) == (200, "image/png", PNG)
        assert found.url == f"http://pictures:{shelf.port}/a.png?b"
        (head,) = shelf.asked
        first, *headers = head.strip().split("\r\n")
        assert first == "GET /a.png?b HTTP/1.1"
        assert dict(each.split(": ") for each in headers) == {
            "Host": f"pictures:{shelf.port}",
            "User-Agent": "Holdfast",
            "Accept": "image/*",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }


BODIES = {
    "in chunks": (CHUNKED, b"abc"),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\nabc", b"abc"),
    "behind a hint": (b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer(b"abc"), b"abc"),
    "empty": (answer(), b""),
    "from an old server": (b"HTTP/1.0 200 OK\r\n\r\nabc", b"abc"),
}


@pytest.mark.parametrize(("lying", "content"), BODIES.values(), ids=BODIES)
async def test_each_kind_of_body_is_read(lying: bytes, content: bytes) -> None:
    async with Shelf({"/": lying}).open() as shelf:
        found = await fetcher(shelf).get(f"http://pictures:{shelf.port}/", MOST)
        assert found.content == content


async def test_the_status_of_the_response_is_returned() -> None:
    async with Shelf({}).open() as shelf:
        found = await fetcher(shelf).get(f"http://pictures:{shelf.port}/nothing", MOST)
        assert found.status == 404


# --- forbidden addresses ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "pictures", "127.1", "2130706433", "0x7f.0.0.1", "localhost", "[::1]"]
)
async def test_loopback_is_refused_unless_it_is_configured(host: str) -> None:
    """Uses the resolver of this machine and a generally allowed port."""
    async with Shelf({"/": answer(PNG)}).open() as shelf:
        open_port = FetchRules(ports=(shelf.port,))
        judged = Fetcher(open_port) if host != "pictures" else None
        named = Fetcher(open_port, resolve=Names(pictures=("127.0.0.1", "::1")))
        with pytest.raises(FetchError, match=r"not on the public internet|there is no"):
            await (judged or named).get(f"http://{host}:{shelf.port}/", MOST)
        assert shelf.met == 0


async def test_a_configured_address_allows_only_its_own_port() -> None:
    async with Shelf({"/": answer(PNG)}).open() as named, Shelf({"/": answer(PNG)}).open() as other:
        with pytest.raises(FetchError, match="nothing is fetched from port"):
            await fetcher(named).get(f"http://127.0.0.1:{other.port}/", MOST)
        assert other.met == 0


async def test_a_host_is_resolved_once_and_the_checked_address_is_used() -> None:
    """A second lookup could return another address, so there is none."""
    async with Shelf({"/": answer(PNG)}).open() as shelf:
        names = Names(pictures=("10.0.0.1", "fd00::1", "127.0.0.1"))
        found = await fetcher(shelf, names).get(f"http://pictures:{shelf.port}/", MOST)
        assert found.content == PNG
        assert names.asked == ["pictures"]


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async with Shelf({"/": answer(PNG)}).open() as shelf:
        rules = FetchRules(extra_addresses={("127.0.0.1", shelf.port), ("127.0.0.2", shelf.port)})
        names = Names(pictures=("127.0.0.2", "127.0.0.1"))
        found = await Fetcher(rules, resolve=names).get(f"http://pictures:{shelf.port}/", MOST)
        assert found.content == PNG


async def test_an_unknown_or_unreachable_host_is_an_error() -> None:
    async with Shelf({}).open() as shelf:
        names = Names(nowhere=(), gone=("127.0.0.1",))
        place = shelf.port
        for name, why in (
            ("other", "the host other does not exist"),
            ("nowhere", "not on the public"),
        ):
            with pytest.raises(FetchError, match=why):
                await fetcher(shelf, names).get(f"http://{name}:{place}/", MOST)
    with pytest.raises(FetchError, match="gone cannot be reached"):
        await fetcher(shelf, names).get(f"http://gone:{place}/", MOST)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Shelf({"/": answer(PNG)}).open() as shelf, Shelf({}).open() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy.place()}")
        found = await fetcher(shelf).get(f"http://pictures:{shelf.port}/", MOST)
        assert (found.content, proxy.met) == (PNG, 0)


# --- redirects -------------------------------------------------------------------------------


async def test_redirects_are_followed_three_times() -> None:
    held = {f"/{number}": leads_to(f"/{number + 1}") for number in range(4)}
    async with Shelf(held | {"/4": answer(PNG)}).open() as shelf:
        found = await fetcher(shelf).get(f"http://pictures:{shelf.port}/1", MOST)
        assert (found.content, found.url) == (PNG, f"http://pictures:{shelf.port}/4")
        with pytest.raises(FetchError, match="more than 3 times"):
            await fetcher(shelf).get(f"http://pictures:{shelf.port}/0", MOST)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://inside/", "inside is not on the public internet"),
        ("http://169.254.169.254/latest/meta-data", "not on the public internet"),
        ("http://[::ffff:127.0.0.1]/", "not on the public internet"),
        ("http://127.0.0.1/", "not on the public internet"),
        ("https://127.0.0.1:8420/", "port 8420"),
        ("http://me:pw@pictures/", "user name or password"),
        ("file:///etc/passwd", "only http and https"),
    ],
)
async def test_a_redirect_to_a_forbidden_address_is_refused(location: str, why: str) -> None:
    async with Shelf({"/": leads_to(location)}).open() as shelf:
        names = Names(pictures=("127.0.0.1",), inside=("10.0.0.1",))
        with pytest.raises(FetchError, match=why):
            await fetcher(shelf, names).get(f"http://pictures:{shelf.port}/", MOST)
        assert shelf.met == 1


async def test_a_host_is_checked_again_at_each_redirect() -> None:
    async with Shelf({"/": leads_to("/b"), "/b": answer(PNG)}).open() as shelf:
        turns = [("127.0.0.1",), ("10.0.0.1",)]

        async def changing(_: str) -> Sequence[str]:
            return turns.pop(0)

        rules = FetchRules(extra_addresses={("127.0.0.1", shelf.port)})
        with pytest.raises(FetchError, match="not on the public internet"):
            await Fetcher(rules, resolve=changing).get(f"http://pictures:{shelf.port}/", MOST)
        assert shelf.met == 1


# --- limits ----------------------------------------------------------------------------------

ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(3_000_000)


@pytest.mark.parametrize(
    "lying",
    [answer(bytes(1_001)), b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n", ENDLESS],
    ids=["one byte too many", "content-length too large", "endless"],
)
async def test_a_body_that_is_too_large_is_not_read_to_its_end(lying: bytes) -> None:
    async with Shelf({"/": lying, "/fits": answer(bytes(1_000))}).open() as shelf:
        with pytest.raises(FetchError, match="too large"):
            await fetcher(shelf).get(f"http://pictures:{shelf.port}/", 1_000)
        found = await fetcher(shelf).get(f"http://pictures:{shelf.port}/fits", 1_000)
        assert len(found.content) == 1_000


BROKEN = {
    "no HTTP": (b"hello\r\n\r\n", "violates the HTTP protocol"),
    "cut": (answer(PNG)[:-5], "violates the HTTP protocol"),
    "an end at once": (b"HTTP/1.1 200", "violates the HTTP protocol"),
    "headers without end": (
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,
        "violates the HTTP protocol",
    ),
    "compressed": (answer(b"abc", content_encoding="gzip"), "compressed"),
}


@pytest.mark.parametrize(("lying", "why"), BROKEN.values(), ids=BROKEN)
async def test_a_malformed_response_is_an_error(lying: bytes, why: str) -> None:
    async with Shelf({"/": lying}).open() as shelf:
        with pytest.raises(FetchError, match=why):
            await fetcher(shelf).get(f"http://pictures:{shelf.port}/", MOST)


async def test_a_silent_server_is_a_timeout() -> None:
    async with Shelf({"/": b""}).open() as shelf:
        with pytest.raises(FetchError, match=r"within 0\.1 seconds"):
            await fetcher(shelf, seconds=0.1).get(f"http://pictures:{shelf.port}/", MOST)


async def test_a_silent_resolver_is_a_timeout() -> None:
    async def silent(_: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    with pytest.raises(FetchError, match=r"within 0\.1 seconds"):
        await Fetcher(resolve=silent, seconds=0.1).get("http://pictures/", MOST)


BROKEN_CONNECTIONS = {
    "before an answer": b"",
    "inside a head": b"HTTP/1.1 200 OK\r\nContent-",
    "inside a body": answer(PNG)[:-5],
}


@pytest.mark.parametrize("sent", BROKEN_CONNECTIONS.values(), ids=BROKEN_CONNECTIONS)
async def test_a_reset_connection_is_reported_as_broken(sent: bytes) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await writer.drain()
        linger = struct.pack("ii", 1, 0)  # the socket closes with RST
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        rules = FetchRules(extra_addresses={("127.0.0.1", port)})
        with pytest.raises(FetchError, match="the connection broke"):
            await Fetcher(rules).get(f"http://127.0.0.1:{port}/", MOST)


async def test_an_answer_that_switches_protocols_is_refused() -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    async with Shelf({"/": switching}).open() as shelf:
        with pytest.raises(FetchError, match="violates the HTTP protocol"):
            await fetcher(shelf).get(f"http://pictures:{shelf.port}/", MOST)


async def test_a_redirect_carries_no_cookies() -> None:
    leading = answer(status="302 Found", location="/b", set_cookie="a=b; Path=/")
    async with Shelf({"/": leading, "/b": answer(PNG)}).open() as shelf:
        await fetcher(shelf).get(f"http://pictures:{shelf.port}/", MOST)
        assert "cookie" not in shelf.asked[1].lower()


async def test_every_connection_is_closed_after_its_answer() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(PNG))  # and keeps the connection open
        await reader.read()
        writer.close()
        closed.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        rules = FetchRules(extra_addresses={("127.0.0.1", port)})
        found = await Fetcher(rules).get(f"http://127.0.0.1:{port}/", MOST)
        assert found.content == PNG
        async with asyncio.timeout(5):
            await closed.wait()


async def test_a_fetch_that_is_cancelled_closes_its_connection() -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()
        closed.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        rules = FetchRules(extra_addresses={("127.0.0.1", port)})
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(5):
            getting = tasks.create_task(Fetcher(rules).get(f"http://127.0.0.1:{port}/", MOST))
            await asked.wait()
            getting.cancel()
            await closed.wait()


# --- TLS -------------------------------------------------------------------------------------


async def test_the_certificate_must_match_the_host_name(tmp_path: Path) -> None:
    """The connection goes to an IP address, but TLS verifies the host name."""
    server, client = certified(tmp_path, "pictures.example")
    async with Shelf({"/": answer(PNG)}).open(server) as shelf:
        names = Names(**{"pictures.example": ("127.0.0.1",), "other.example": ("127.0.0.1",)})
        rules = FetchRules(extra_addresses={("127.0.0.1", shelf.port)})
        believing = Fetcher(rules, resolve=names, tls=lambda: client)
        found = await believing.get(f"https://pictures.example:{shelf.port}/", MOST)
        assert found.content == PNG
        for name, trusting in (
            ("other.example", believing),
            ("pictures.example", Fetcher(rules, resolve=names, tls=ssl.create_default_context)),
        ):
            with pytest.raises(FetchError, match="no valid certificate"):
                await trusting.get(f"https://{name}:{shelf.port}/", MOST)


async def test_a_dot_behind_a_name_is_not_part_of_its_certificate(tmp_path: Path) -> None:
    server, client = certified(tmp_path, "pictures.example")
    async with Shelf({"/": answer(PNG)}).open(server) as shelf:
        names = Names(**{"pictures.example.": ("127.0.0.1",)})
        rules = FetchRules(extra_addresses={("127.0.0.1", shelf.port)})
        fetching = Fetcher(rules, resolve=names, tls=lambda: client)
        found = await fetching.get(f"https://pictures.example.:{shelf.port}/", MOST)
        assert found.content == PNG


async def test_a_server_without_tls_is_reported_as_unproven(tmp_path: Path) -> None:
    _, client = certified(tmp_path, "pictures.example")
    async with await asyncio.start_server(_speak_plainly, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        rules = FetchRules(extra_addresses={("127.0.0.1", port)})
        names = Names(**{"pictures.example": ("127.0.0.1",)})
        fetching = Fetcher(rules, resolve=names, tls=lambda: client)
        with pytest.raises(FetchError, match="no valid certificate"):
            await fetching.get(f"https://pictures.example:{port}/", MOST)


async def _speak_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(answer(PNG))
    writer.close()
