"""Catch-up: read messages that Slack did not deliver from the history of the chats in use.

Slack repeats an event for some minutes only, and a connection can be up and deliver nothing.
"""

import asyncio
import contextlib
import logging

from platforms.core.contract import Accepted
from platforms.core.errors import PlatformError, Rejected, Unavailable
from platforms.slack.read_marks import SlackPlace, parse_timestamp
from platforms.slack.receive import SlackReceiver
from platforms.slack.send import SlackSender
from platforms.slack.socket_mode import SocketModeConnection
from sessions.values.clock import Clock
from sessions.values.text import count_of

_log = logging.getLogger(__name__)

_SILENCE_SECONDS = 45.0
"""Silence on a connection after which the histories are read."""

_PLACES_CHECKED = 4
"""Places checked after a silence; several, because a channel's history does not show its threads."""

_OVERLAP_SECONDS = 60.0
"""Seconds read twice, in case an event came out of order."""

_MAX_READ_TRIES = 5
_MAX_CATCH_UP_MS = 7 * 86_400_000
_READ_BURST, _READ_PAUSE_SECONDS = 20, 1.5  # Slack answers such calls 50 times a minute


class CatchUp:
    """Hands missed messages to the receiver after each connect and after a silence."""

    def __init__(self, receiver: SlackReceiver, sender: SlackSender, clock: Clock) -> None:
        self._receiver = receiver
        self._sender = sender
        self._clock = clock
        self._wakeup = asyncio.Event()
        self._last_event_at = 0.0

    def note_event(self) -> None:
        """Record that Slack delivered something just now."""
        self._last_event_at = self._clock.monotonic()

    def note_connect(self) -> None:
        """Mark all recent places as incomplete and wake `run`."""
        self.note_event()
        now = self._clock.now()
        self._receiver.places.mark_gap(now, now - _MAX_CATCH_UP_MS)
        self._wakeup.set()

    def note_known_user(self) -> None:
        """Wake `run`, because access of another user can be decided now."""
        self._wakeup.set()

    async def run(self) -> None:
        """Submit held interactions and read the incomplete places, until cancelled.

        Both happen after each connect and after `note_known_user`.
        """
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            await self._receiver.submit_held()
            for number, (place, gaps) in enumerate(self._receiver.places.with_gaps()):
                if number >= _READ_BURST:
                    await asyncio.sleep(_READ_PAUSE_SECONDS)
                await self._read_with_retry(place, gaps)

    async def _read_with_retry(self, place: SlackPlace, gaps: int) -> None:
        for _ in range(_MAX_READ_TRIES):
            try:
                await self._read(place)
            except Unavailable as error:
                await asyncio.sleep(min(error.retry_after or 2.0, 60.0))
            except Rejected as error:
                _log.info("slack: %s is no longer read: %s", place.channel, error)
                self._receiver.places.forget(place.channel, place.thread)
                return
            else:
                self._receiver.places.close_gap(place, gaps)
                return
        _log.warning("slack: missed messages of %s cannot be read", place.channel)

    async def _read(self, place: SlackPlace) -> int:
        """Submit the messages since the place was last complete; return the number of new ones."""
        seconds, micros = parse_timestamp(place.missed or place.seen)
        if not seconds:
            return 0
        oldest = seconds + micros / 1e6 - _OVERLAP_SECONDS
        stored = 0
        async with self._receiver.lock(place.channel):
            messages = await self._sender.history(place.channel, place.thread, oldest)
            for message in messages:
                found = self._receiver.decoder().decode_event(
                    {"type": "message", **message, "channel": place.channel}
                )
                if found and found.is_in(place):
                    stored += await self._receiver.submit(found) is Accepted.STORED
        return stored

    async def watch_for_silence(self, socket_mode: SocketModeConnection) -> None:
        """Reconnect when the histories show messages that a silent connection did not deliver."""
        while True:
            await asyncio.sleep(_SILENCE_SECONDS / 3)
            if self._clock.monotonic() - self._last_event_at < _SILENCE_SECONDS:
                continue
            self.note_event()
            missed = 0
            for place in list(self._receiver.places)[:_PLACES_CHECKED]:
                with contextlib.suppress(PlatformError):
                    missed += await self._read(place)
            if missed:
                _log.warning("slack: missing %s; reconnecting", count_of(missed, "message"))
                await socket_mode.reconnect()
