"""Who may come in: a one-time link becomes a cookie; both are kept only as hashes.

The tokens are 256 random bits, so a plain hash is enough: nobody can guess what it was made from.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

from platforms.core.contract import Shelf
from sessions.values.clock import Clock

LINK_LIFE = 60 * 60 * 1000  # milliseconds
VISIT_LIFE = 90 * 24 * 60 * 60 * 1000
_MOST_LINKS = 16
_MOST_VISITS = 64
_SHELF = "door"
_PATIENCE = 10.0  # seconds for one look at the shelf


class Pass(msgspec.Struct, frozen=True):
    """The hash of a token and the moment from which it opens nothing any more."""

    hash: str
    until: int


class Book(msgspec.Struct, frozen=True):
    """What the door knows.

    `name` makes the cookie's name this installation's own: a browser does not tell apart two
    daemons on different ports of one machine.
    """

    name: str
    links: tuple[Pass, ...] = ()
    visits: tuple[Pass, ...] = ()


class Door:
    """Makes links, turns each into one visit, and knows a visitor again."""

    def __init__(
        self, clock: Clock, shelf: Shelf, token: Callable[[], str] = secrets.token_urlsafe
    ) -> None:
        self._clock = clock
        self._shelf = shelf
        self._token = token
        self._lock = asyncio.Lock()
        self._book: Book | None = None

    async def new_link(self) -> str:
        """Make the token of a link that opens once, within an hour."""
        token = self._token()
        async with self._lock:
            book = await self._read()
            links = _added(book.links, _hash(token), self._clock.now(), LINK_LIFE)
            await self._write(msgspec.structs.replace(book, links=links[-_MOST_LINKS:]))
        return token

    async def enter(self, token: str) -> str | None:
        """Spend a link; gives the cookie's value, or None when the link opens nothing (more)."""
        visit = self._token()
        spent = _hash(token)
        async with self._lock:
            book = await self._read()
            if not _opens(book.links, spent, self._clock.now()):
                return None
            visits = _added(book.visits, _hash(visit), self._clock.now(), VISIT_LIFE)
            await self._write(
                msgspec.structs.replace(
                    book, links=_without(book.links, spent), visits=visits[-_MOST_VISITS:]
                )
            )
        return visit

    async def admits(self, cookie: str) -> bool:
        """Say whether this cookie was given out by us and is still good."""
        if not cookie:
            return False
        shown = _hash(cookie)
        if self._book is not None and _opens(self._book.visits, shown, self._clock.now()):
            return True
        async with self._lock:  # another process may have let this visitor in
            return _opens((await self._read()).visits, shown, self._clock.now())

    async def leave(self, cookie: str) -> None:
        """Forget a visitor."""
        async with self._lock:
            book = await self._read()
            visits = _without(book.visits, _hash(cookie))
            await self._write(msgspec.structs.replace(book, visits=visits))

    async def cookie_name(self) -> str:
        """Name the cookie of this installation."""
        async with self._lock:
            book = self._book or await self._read()
            if self._book is None:
                await self._write(book)  # the name is made up once and then stays
        return f"holdfast_{book.name}"

    async def _read(self) -> Book:
        async with asyncio.timeout(_PATIENCE):
            stored = await self._shelf.get(_SHELF)
        if stored is None:
            return Book(name=secrets.token_hex(4))
        try:
            self._book = msgspec.json.decode(stored, type=Book)
        except msgspec.DecodeError:  # damaged: nobody is known any more, a new link helps
            return Book(name=secrets.token_hex(4))
        return self._book

    async def _write(self, book: Book) -> None:
        async with asyncio.timeout(_PATIENCE):
            await self._shelf.put(_SHELF, msgspec.json.encode(book).decode())
        self._book = book  # only what is committed counts


def csrf_token(cookie: str) -> str:
    """Give the word that a request must carry to change something.

    Another site can make the browser send the cookie, but can neither read nor compute this.
    """
    return _hash(f"csrf:{cookie}")


def same(shown: str, expected: str) -> bool:
    """Compare without telling by the time taken how much was right."""
    return hmac.compare_digest(shown.encode(), expected.encode())


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _opens(passes: tuple[Pass, ...], shown: str, now: int) -> bool:
    return sum(same(shown, entry.hash) and now < entry.until for entry in passes) > 0


def _added(passes: tuple[Pass, ...], new: str, now: int, life: int) -> tuple[Pass, ...]:
    return (*(entry for entry in passes if now < entry.until), Pass(new, now + life))


def _without(passes: tuple[Pass, ...], spent: str) -> tuple[Pass, ...]:
    return tuple(entry for entry in passes if not same(spent, entry.hash))
