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
from platforms.telegram.errors import translate_errors
from platforms.telegram.http import UpdatesRequest
from platforms.telegram.payloads import UPDATE_TYPES
from platforms.telegram.receive import update_number
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

POLL_TIMEOUT_SECONDS = 25.0
GRACE_SECONDS = 10.0
"""An answer that is so much late will not come: the connection is up, but deaf."""

CONFLICT_PAUSE_SECONDS, MAX_CONFLICT_PAUSE_SECONDS = 1.0, 8.0
"""Seconds until we ask again after another program took our place; it will do the same to us."""

CONFLICT_OVER_SECONDS = 30.0
"""Seconds without that after which the other program is believed to be gone."""

_OFFSET_KEY = "offset"
_SAVE_INTERVAL_SECONDS = 5.0
_UPDATE_RETENTION_MS = 86_400_000
"""Milliseconds after which Telegram has forgotten what it kept for us, and may count anew."""


class PollOffset(msgspec.Struct, frozen=True):
    """The update that comes next, as it stands on the shelf."""

    bot: int
    next: int
    at: int


class UpdatePoller:
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
        poll_seconds: float = POLL_TIMEOUT_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        conflict_pause_seconds: float = CONFLICT_PAUSE_SECONDS,
        conflict_over_seconds: float = CONFLICT_OVER_SECONDS,
    ) -> None:
        self._base = base
        self._bot = bot
        self._shelf = shelf
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._grace_seconds = grace_seconds
        self._trouble = trouble
        self._conflict_pause_seconds = self._next_pause_seconds = conflict_pause_seconds
        self._conflict_over_seconds = conflict_over_seconds
        self._conflict_at: float | None = None  # when another program last took our place
        self._connection = UpdatesRequest(trusted, clock.monotonic)
        self._next_offset = 0
        self._last_update_at = clock.now()  # when the last update came
        self._saved_offset = 0
        self._saved_at = clock.monotonic()

    async def run(
        self, on_updates: Callable[[Sequence[bytes]], Awaitable[None]], ready: Callable[[], None]
    ) -> None:
        """Receive until cancelled; raises `Unavailable` when the connection cannot be kept."""
        try:
            await self._load_offset()
            waiting = 0.0  # the first answer comes at once, and proves that all is well
            while True:
                updates = await self._poll_with_conflicts(waiting)
                if waiting == 0.0:
                    ready()
                waiting = self._poll_seconds
                await self._receive(updates, on_updates)
        finally:
            await self._connection.shutdown()
            await self._save_offset()

    async def _load_offset(self) -> None:
        written = await self._shelf.get(_OFFSET_KEY)
        try:
            mark = msgspec.json.decode(written, type=PollOffset) if written else None
        except msgspec.DecodeError as error:
            log.warning("the place in the updates cannot be read: %s", error)
            mark = None
        fresh = (
            mark and mark.bot == self._bot and self._clock.now() - mark.at < _UPDATE_RETENTION_MS
        )
        # Of another bot, or too old: it might pass over what is waiting. What comes again is known.
        self._next_offset = self._saved_offset = mark.next if mark and fresh else 0

    async def _poll_with_conflicts(self, seconds: float) -> Sequence[bytes]:
        """Ask; where another program asks too, take turns with it: what is sent still arrives."""
        try:
            found = await self._poll_with_retry(seconds)
        except PollConflict as error:
            self._conflict_at = self._clock.monotonic()
            self._trouble(str(error))
            await asyncio.sleep(self._next_pause_seconds)
            self._next_pause_seconds = min(self._next_pause_seconds * 2, MAX_CONFLICT_PAUSE_SECONDS)
            return ()
        if (
            self._conflict_at is not None
            and self._clock.monotonic() > self._conflict_at + self._conflict_over_seconds
        ):
            self._conflict_at, self._next_pause_seconds = None, self._conflict_pause_seconds
            self._trouble("")
        return found

    async def _poll_with_retry(self, seconds: float) -> Sequence[bytes]:
        """Ask; after a failure once more over a new connection, and at once."""
        try:
            return await self._poll(seconds)
        except (Unavailable, Unconfirmed) as error:
            if _is_retry_useless(error):
                raise _as_unavailable(error) from error
            log.info("Telegram: %s; asking again over a new connection", error)
        await self._connection.shutdown()
        await self._connection.initialize()
        try:
            return await self._poll(0.0)
        except (Unavailable, Unconfirmed) as error:
            raise _as_unavailable(error) from error

    async def _poll(self, seconds: float) -> Sequence[bytes]:
        asked = {
            "timeout": int(seconds),
            "allowed_updates": msgspec.json.encode(UPDATE_TYPES).decode(),
        }
        if self._next_offset:
            asked["offset"] = self._next_offset
        with translate_errors():
            found: Any = await self._connection.post(  # of our own reading, see `UpdatesRequest`
                f"{self._base}/getUpdates?{urlencode(asked)}",
                read_timeout=seconds + self._grace_seconds,
            )
        return tuple(found)

    async def _receive(
        self, updates: Sequence[bytes], on_updates: Callable[[Sequence[bytes]], Awaitable[None]]
    ) -> None:
        now = self._clock.now()
        if not updates:
            if now - self._last_update_at > _UPDATE_RETENTION_MS:
                self._next_offset = 0  # all is acknowledged, and the numbers may begin anew
            return
        self._last_update_at = now
        await on_updates(updates)
        numbers = [number for raw in updates if (number := update_number(raw)) is not None]
        if not numbers:
            msg = "Telegram sends updates without numbers"
            raise Unavailable(msg)
        self._next_offset = max(numbers) + 1
        if self._clock.monotonic() - self._saved_at >= _SAVE_INTERVAL_SECONDS:
            await self._save_offset()

    async def _save_offset(self) -> None:
        """Write the place down now and then: what comes twice for want of it is recognised."""
        if self._next_offset and self._next_offset != self._saved_offset:
            mark = PollOffset(self._bot, self._next_offset, self._last_update_at)
            await self._shelf.put(_OFFSET_KEY, msgspec.json.encode(mark).decode())
            self._saved_offset, self._saved_at = self._next_offset, self._clock.monotonic()


def _is_retry_useless(error: PlatformError) -> bool:
    """Tell whether asking again would only make it worse."""
    waits = isinstance(error, Unavailable) and error.retry_after is not None
    return waits or not isinstance(error.__cause__, NetworkError)


def _as_unavailable(error: PlatformError) -> Unavailable:
    if isinstance(error, Unavailable) and error.retry_after is not None:
        return Unavailable(str(error), error.retry_after)
    cause = error.__cause__
    if isinstance(cause, Conflict):
        left = "webhook" in str(cause).lower()
        return (WebhookStillSet if left else PollConflict)(str(error))
    silent = "Timeout" in str(error) and isinstance(error, Unconfirmed)
    return Unavailable("Telegram is silent although connected" if silent else str(error))


class PollConflict(Unavailable):
    """Another program asks for the same updates."""


class WebhookStillSet(Unavailable):
    """A webhook is set, so nothing can be asked for."""
