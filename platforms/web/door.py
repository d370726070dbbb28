"""Sign-in: a one-time link is exchanged for a cookie; only hashes of both are stored.

The tokens are 256 random bits, so a plain hash is enough: the token cannot be guessed from the
hash.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

from platforms.core.contract import Shelf
from sessions.values.clock import Clock

LINK_LIFETIME_MS = 60 * 60 * 1000
VISIT_LIFETIME_MS = 90 * 24 * 60 * 60 * 1000
_MAX_LINKS = 16
_MAX_VISITS = 64
_SHELF = "door"
_SHELF_TIMEOUT_SECONDS = 10.0  # for one access to the stored record


class ExpiringToken(msgspec.Struct, frozen=True):
    """The hash of a token, and the time at which the token expires."""

    hash: str
    until: int


class LoginRecord(msgspec.Struct, frozen=True):
    """The stored links and visits.

    `name` makes the cookie's name unique to this installation, because a browser shares cookies
    between daemons on different ports of one machine.
    """

    name: str
    links: tuple[ExpiringToken, ...] = ()
    visits: tuple[ExpiringToken, ...] = ()


class WebLogin:
    """Creates links, exchanges each for one visit, and recognises visitors."""

    def __init__(
        self, clock: Clock, shelf: Shelf, make_token: Callable[[], str] = secrets.token_urlsafe
    ) -> None:
        self._clock = clock
        self._shelf = shelf
        self._make_token = make_token
        self._lock = asyncio.Lock()
        self._record: LoginRecord | None = None

    async def new_link(self) -> str:
        """Return the token of a link that works once, within an hour."""
        token = self._make_token()
        async with self._lock:
            record = await self._read()
            links = _add_token(record.links, _hash(token), self._clock.now(), LINK_LIFETIME_MS)
            await self._write(msgspec.structs.replace(record, links=links[-_MAX_LINKS:]))
        return token

    async def redeem_link(self, token: str) -> str | None:
        """Use up a link.

        Return the cookie's value, or None if the link is invalid or already used.
        """
        visit = self._make_token()
        spent = _hash(token)
        async with self._lock:
            record = await self._read()
            if not _is_valid(record.links, spent, self._clock.now()):
                return None
            visits = _add_token(record.visits, _hash(visit), self._clock.now(), VISIT_LIFETIME_MS)
            await self._write(
                msgspec.structs.replace(
                    record, links=_remove_token(record.links, spent), visits=visits[-_MAX_VISITS:]
                )
            )
        return visit

    async def is_signed_in(self, cookie: str) -> bool:
        """Return True if the cookie was issued here and has not expired."""
        if not cookie:
            return False
        shown = _hash(cookie)
        if self._record is not None and _is_valid(self._record.visits, shown, self._clock.now()):
            return True
        async with self._lock:  # another process may have signed this visitor in
            return _is_valid((await self._read()).visits, shown, self._clock.now())

    async def sign_out(self, cookie: str) -> None:
        """Invalidate a visitor's cookie."""
        async with self._lock:
            record = await self._read()
            visits = _remove_token(record.visits, _hash(cookie))
            await self._write(msgspec.structs.replace(record, visits=visits))

    async def cookie_name(self) -> str:
        """Return the cookie name of this installation."""
        async with self._lock:
            record = self._record or await self._read()
            if self._record is None:
                await self._write(record)  # the random name is chosen once and then kept
        return f"holdfast_{record.name}"

    async def _read(self) -> LoginRecord:
        async with asyncio.timeout(_SHELF_TIMEOUT_SECONDS):
            stored = await self._shelf.get(_SHELF)
        if stored is None:
            return LoginRecord(name=secrets.token_hex(4))
        try:
            self._record = msgspec.json.decode(stored, type=LoginRecord)
        except msgspec.DecodeError:  # damaged: all visitors must sign in with a new link
            return LoginRecord(name=secrets.token_hex(4))
        return self._record

    async def _write(self, record: LoginRecord) -> None:
        async with asyncio.timeout(_SHELF_TIMEOUT_SECONDS):
            await self._shelf.put(_SHELF, msgspec.json.encode(record).decode())
        self._record = record  # after the commit


def csrf_token(cookie: str) -> str:
    """Return the token that a request must carry to change something.

    Another site can make the browser send the cookie, but can neither read nor compute this token.
    """
    return _hash(f"csrf:{cookie}")


def is_same_secret(shown: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(shown.encode(), expected.encode())


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _is_valid(passes: tuple[ExpiringToken, ...], shown: str, now: int) -> bool:
    return sum(is_same_secret(shown, entry.hash) and now < entry.until for entry in passes) > 0


def _add_token(
    passes: tuple[ExpiringToken, ...], new: str, now: int, lifetime_ms: int
) -> tuple[ExpiringToken, ...]:
    return (
        *(entry for entry in passes if now < entry.until),
        ExpiringToken(new, now + lifetime_ms),
    )


def _remove_token(passes: tuple[ExpiringToken, ...], spent: str) -> tuple[ExpiringToken, ...]:
    return tuple(entry for entry in passes if not is_same_secret(spent, entry.hash))
