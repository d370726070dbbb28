"""Receives by asking again and again: nothing is acknowledged before it is stored."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from ssl import SSLContext
from typing import Any
from urllib.parse import urlencode

import msgspec
from telegram.error import Conflict, NetworkError

from platforms.core.contract import Shelf
from platforms.core.errors import PlatformError, Unavailable, Unconfirmed
from platforms.telegram.errors import mapped
from platforms.telegram.http import Updates
from platforms.telegram.payloads import KINDS
from platforms.telegram.receive import number_of
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

POLL_SECONDS = 25.0
GRACE_SECONDS = 10.0
"""An answer that is so much late will not come: the connection is up, but deaf."""

RIVAL_PAUSE, LONGEST_RIVAL_PAUSE = 1.0, 8.0
"""Seconds until we ask again after another program took our place; it will do the same to us."""

CALM_SECONDS = 30.0
"""Seconds without that after which the other program is believed to be gone."""

_OFFSET = "offset"
_SHELVED_EVERY = 5.0
_FORGOTTEN_AFTER = 86_400_000
"""Milliseconds after which Telegram has forgotten what it kept for us, and may count anew."""


class Mark(msgspec.Struct, frozen=True):
    """The update that comes next, as it stands on the shelf."""

    bot: int
    next: int
    at: int


class Poller:
    """Asks for updates."""

    def __init__(
        self,
        base: str,
        bot: int,
        shelf: Shelf,
        clock: Clock,
        trusted: SSLContext | bool,
        *,
        trouble: Callable[[str], None],
        patience: float = POLL_SECONDS,
        grace: float = GRACE_SECONDS,
        rival_pause: float = RIVAL_PAUSE,
        calm: float = CALM_SECONDS,
    ) -> None:
        self._base = base
        self._bot = bot
        self._shelf = shelf
        self._clock = clock
        self._patience = patience
        self._grace = grace
        self._trouble = trouble
        self._rival_pause = self._pause = rival_pause
        self._calm = calm
        self._met_at: float | None = None  # when another program last took our place
        self._connection = Updates(trusted, clock.monotonic)
        self._next = 0
        self._at = clock.now()  # when the last update came
        self._shelved = 0
        self._shelved_at = clock.monotonic()

    async def run(
        self, take: Callable[[Sequence[bytes]], Awaitable[None]], ready: Callable[[], None]
    ) -> None:
        """Receive until cancelled; raises `Unavailable` when the connection cannot be kept."""
        try:
            await self._begin()
            waiting = 0.0  # the first answer comes at once, and proves that all is well
            while True:
                updates = await self._ask_or_yield(waiting)
                if waiting == 0.0:
                    ready()
                waiting = self._patience
                await self._receive(updates, take)
        finally:
            await self._connection.shutdown()
            await self._keep_place()

    async def _begin(self) -> None:
        written = await self._shelf.get(_OFFSET)
        try:
            mark = msgspec.json.decode(written, type=Mark) if written else None
        except msgspec.DecodeError as error:
            log.warning("the place in the updates cannot be read: %s", error)
            mark = None
        fresh = mark and mark.bot == self._bot and self._clock.now() - mark.at < _FORGOTTEN_AFTER
        # Of another bot, or too old: it might pass over what is waiting. What comes again is known.
        self._next = self._shelved = mark.next if mark and fresh else 0

    async def _ask_or_yield(self, seconds: float) -> Sequence[bytes]:
        """Ask; where another program asks too, take turns with it: what is sent still arrives."""
        try:
            found = await self._ask_twice(seconds)
        except Rival as error:
            self._met_at = self._clock.monotonic()
            self._trouble(str(error))
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, LONGEST_RIVAL_PAUSE)
            return ()
        if self._met_at is not None and self._clock.monotonic() > self._met_at + self._calm:
            self._met_at, self._pause = None, self._rival_pause
            self._trouble("")
        return found

    async def _ask_twice(self, seconds: float) -> Sequence[bytes]:
        """Ask; after a failure once more over a new connection, and at once."""
        try:
            return await self._ask(seconds)
        except (Unavailable, Unconfirmed) as error:
            if _is_final(error):
                raise _plain(error) from error
            log.info("Telegram: %s; asking again over a new connection", error)
        await self._connection.shutdown()
        await self._connection.initialize()
        try:
            return await self._ask(0.0)
        except (Unavailable, Unconfirmed) as error:
            raise _plain(error) from error

    async def _ask(self, seconds: float) -> Sequence[bytes]:
        asked = {"timeout": int(seconds), "allowed_updates": msgspec.json.encode(KINDS).decode()}
        if self._next:
            asked["offset"] = self._next
        with mapped():
            found: Any = await self._connection.post(  # of our own reading, see `Updates`
                f"{self._base}/getUpdates?{urlencode(asked)}", read_timeout=seconds + self._grace
            )
        return tuple(found)

    async def _receive(
        self, updates: Sequence[bytes], take: Callable[[Sequence[bytes]], Awaitable[None]]
    ) -> None:
        now = self._clock.now()
        if not updates:
            if now - self._at > _FORGOTTEN_AFTER:
                self._next = 0  # all is acknowledged, and the numbers may begin anew
            return
        self._at = now
        await take(updates)
        numbers = [number for raw in updates if (number := number_of(raw)) is not None]
        if not numbers:
            msg = "Telegram sends updates without numbers"
            raise Unavailable(msg)
        self._next = max(numbers) + 1
        if self._clock.monotonic() - self._shelved_at >= _SHELVED_EVERY:
            await self._keep_place()

    async def _keep_place(self) -> None:
        """Write the place down now and then: what comes twice for want of it is recognised."""
        if self._next and self._next != self._shelved:
            mark = Mark(self._bot, self._next, self._at)
            await self._shelf.put(_OFFSET, msgspec.json.encode(mark).decode())
            self._shelved, self._shelved_at = self._next, self._clock.monotonic()


def _is_final(error: PlatformError) -> bool:
    """Tell whether asking again would only make it worse."""
    waits = isinstance(error, Unavailable) and error.retry_after is not None
    return waits or not isinstance(error.__cause__, NetworkError)


def _plain(error: PlatformError) -> Unavailable:
    if isinstance(error, Unavailable) and error.retry_after is not None:
        return Unavailable(str(error), error.retry_after)
    cause = error.__cause__
    if isinstance(cause, Conflict):
        left = "webhook" in str(cause).lower()
        return (WebhookLeft if left else Rival)(str(error))
    silent = "Timeout" in str(error) and isinstance(error, Unconfirmed)
    return Unavailable("Telegram is silent although connected" if silent else str(error))


class Rival(Unavailable):
    """Another program asks for the same updates."""


class WebhookLeft(Unavailable):
    """A webhook is set, so nothing can be asked for."""
