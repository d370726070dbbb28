"""Long polling of Telegram's getUpdates; an update is acknowledged only after it is stored."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from ssl import SSLContext
from typing import Any
from urllib.parse import urlencode

import msgspec
from telegram.error import Conflict, NetworkError

from platforms.core.contract import Surroundings
from platforms.core.errors import PlatformError, Unavailable, Unconfirmed
from platforms.telegram.errors import translate_errors
from platforms.telegram.http import UpdatesRequest
from platforms.telegram.payloads import UPDATE_TYPES
from platforms.telegram.receive import update_number

log = logging.getLogger(__name__)

_MAX_CONFLICT_PAUSE_SECONDS = 8.0

_OFFSET_KEY = "offset"
_SAVE_INTERVAL_SECONDS = 5.0
_FIRST_EMPTY_PAUSE_SECONDS, _MAX_EMPTY_PAUSE_SECONDS = 0.05, 1.0
"""Shortest time between polls that bring nothing new: it doubles with each of them."""

_UPDATE_RETENTION_MS = 86_400_000
"""Telegram keeps updates for 24 hours; later it may restart their numbering."""


class PollTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of the polling loop, in seconds."""

    poll: float = 25.0
    grace: float = 10.0
    """Time beyond the poll timeout after which an open connection counts as dead."""

    conflict_pause: float = 1.0
    """First pause after a conflict with another poller, which retries as well; it doubles."""

    conflict_over: float = 30.0
    """Time without a conflict after which the other poller counts as stopped."""


class PollOffset(msgspec.Struct, frozen=True):
    """The number of the next expected update, as stored on the shelf."""

    bot: int
    next: int
    at: int


class EmptyPollPause:
    """Spaces the polls of a server that answers at once although it has nothing new."""

    def __init__(self) -> None:
        self._interval_seconds = 0.0

    def next_pause(self, *, is_new: bool, took_seconds: float) -> float:
        """Return the pause after a poll; none after new updates or a poll that took its time."""
        if is_new or took_seconds >= _MAX_EMPTY_PAUSE_SECONDS:
            self._interval_seconds = 0.0
            return 0.0
        self._interval_seconds = min(
            max(self._interval_seconds * 2, _FIRST_EMPTY_PAUSE_SECONDS), _MAX_EMPTY_PAUSE_SECONDS
        )
        return max(0.0, self._interval_seconds - took_seconds)


class UpdatePoller:
    """Loop that polls for updates, with its own connection and the persisted offset."""

    def __init__(
        self,
        base: str,
        bot: int,
        surroundings: Surroundings,
        trusted: SSLContext | bool,
        timing: PollTiming,
    ) -> None:
        self._base = base
        self._bot = bot
        self._shelf = surroundings.shelf
        self._clock = surroundings.clock
        self._trouble = surroundings.trouble
        self._timing = timing
        self._next_pause_seconds = timing.conflict_pause
        self._conflict_at: float | None = None  # time of the last conflict
        self._connection = UpdatesRequest(trusted, self._clock.monotonic)
        self._next_offset = 0
        self._last_update_at = self._clock.now()
        self._saved_offset = 0
        self._saved_at = self._clock.monotonic()
        self._empty_poll_pause = EmptyPollPause()

    async def run(
        self, on_updates: Callable[[Sequence[bytes]], Awaitable[None]], ready: Callable[[], None]
    ) -> None:
        """Receive until cancelled; raises `Unavailable` when the connection cannot be kept."""
        try:
            await self._load_offset()
            poll_seconds = 0.0  # the first poll returns at once, which proves the connection
            while True:
                began, offset = self._clock.monotonic(), self._next_offset
                updates = await self._poll_with_conflicts(poll_seconds)
                took = self._clock.monotonic() - began
                is_first, poll_seconds = poll_seconds == 0.0, self._timing.poll
                if is_first:
                    ready()
                await self._receive(updates, on_updates)
                is_new = self._next_offset != offset
                if not is_first:
                    await asyncio.sleep(
                        self._empty_poll_pause.next_pause(is_new=is_new, took_seconds=took)
                    )
        finally:
            await self._connection.shutdown()
            await self._save_offset()

    async def _load_offset(self) -> None:
        written = await self._shelf.get(_OFFSET_KEY)
        try:
            mark = msgspec.json.decode(written, type=PollOffset) if written else None
        except msgspec.DecodeError as error:
            log.warning("telegram: the stored update offset is unreadable: %s", error)
            mark = None
        fresh = (
            mark and mark.bot == self._bot and self._clock.now() - mark.at < _UPDATE_RETENTION_MS
        )
        # An offset of another bot, or an old one, could skip pending updates. Repeated updates
        # are harmless, because the inbox recognizes duplicates.
        self._next_offset = self._saved_offset = mark.next if mark and fresh else 0

    async def _poll_with_conflicts(self, seconds: float) -> Sequence[bytes]:
        """Poll; after a conflict report it, pause and return nothing.

        Two programs polling the same bot alternate this way, so messages still arrive.
        """
        try:
            updates = await self._poll_with_retry(seconds)
        except PollConflict as error:
            self._conflict_at = self._clock.monotonic()
            self._trouble(str(error))
            await asyncio.sleep(self._next_pause_seconds)
            self._next_pause_seconds = min(
                self._next_pause_seconds * 2, _MAX_CONFLICT_PAUSE_SECONDS
            )
            return ()
        if (
            self._conflict_at is not None
            and self._clock.monotonic() > self._conflict_at + self._timing.conflict_over
        ):
            self._conflict_at, self._next_pause_seconds = None, self._timing.conflict_pause
            self._trouble("")
        return updates

    async def _poll_with_retry(self, seconds: float) -> Sequence[bytes]:
        """Poll; after a failure poll once more, at once and over a new connection."""
        try:
            return await self._poll(seconds)
        except (Unavailable, Unconfirmed) as error:
            if _is_retry_useless(error):
                raise _as_unavailable(error) from error
            log.info("telegram: %s; polling again over a new connection", error)
        await self._connection.shutdown()
        await self._connection.initialize()
        try:
            return await self._poll(0.0)
        except (Unavailable, Unconfirmed) as error:
            raise _as_unavailable(error) from error

    async def _poll(self, seconds: float) -> Sequence[bytes]:
        query = {
            "timeout": int(seconds),
            "allowed_updates": msgspec.json.encode(UPDATE_TYPES).decode(),
        }
        if self._next_offset:
            query["offset"] = self._next_offset
        with translate_errors():
            updates: Any = await self._connection.post(  # undecoded, see `UpdatesRequest`
                f"{self._base}/getUpdates?{urlencode(query)}",
                read_timeout=seconds + self._timing.grace,
            )
        return tuple(updates)

    async def _receive(
        self, updates: Sequence[bytes], on_updates: Callable[[Sequence[bytes]], Awaitable[None]]
    ) -> None:
        now = self._clock.now()
        if not updates:
            if now - self._last_update_at > _UPDATE_RETENTION_MS:
                self._next_offset = 0  # nothing is pending, and the numbering may have restarted
            return
        self._last_update_at = now
        await on_updates(updates)
        numbers = [number for raw in updates if (number := update_number(raw)) is not None]
        if not numbers:
            msg = "Telegram sent updates without numbers"
            raise Unavailable(msg)
        self._next_offset = max(numbers) + 1
        if self._clock.monotonic() - self._saved_at >= _SAVE_INTERVAL_SECONDS:
            await self._save_offset()

    async def _save_offset(self) -> None:
        """Store the offset on the shelf if it changed.

        Saving only every few seconds is safe, because the inbox recognizes repeated updates.
        """
        if self._next_offset and self._next_offset != self._saved_offset:
            mark = PollOffset(self._bot, self._next_offset, self._last_update_at)
            await self._shelf.put(_OFFSET_KEY, msgspec.json.encode(mark).decode())
            self._saved_offset, self._saved_at = self._next_offset, self._clock.monotonic()


def _is_retry_useless(error: PlatformError) -> bool:
    """Return True for errors that a new connection does not cure, such as a rate limit."""
    is_rate_limit = isinstance(error, Unavailable) and error.retry_after is not None
    return is_rate_limit or not isinstance(error.__cause__, NetworkError)


def _as_unavailable(error: PlatformError) -> Unavailable:
    if isinstance(error, Unavailable) and error.retry_after is not None:
        return Unavailable(str(error), error.retry_after)
    cause = error.__cause__
    if isinstance(cause, Conflict):
        is_webhook = "webhook" in str(cause).lower()
        return (WebhookStillSet if is_webhook else PollConflict)(str(error))
    is_silent = "Timeout" in str(error) and isinstance(error, Unconfirmed)
    return Unavailable("Telegram is connected but does not respond" if is_silent else str(error))


class PollConflict(Unavailable):
    """Another program is polling for the same bot's updates."""


class WebhookStillSet(Unavailable):
    """A webhook is set, which makes Telegram refuse polling."""
