"""Commands and presses of buttons by people whose membership is not known yet, kept until it is.

Slack sends neither again, and neither is in a history, so the whole event is kept, for at most a
day.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec

from platforms.core.contract import Accepted, Shelf
from platforms.slack.decode import SlackEvent

log = logging.getLogger(__name__)

_HELD_KEY = "held presses"
_MAX_HELD = 100
_MAX_AGE_MS = 86_400_000


class HeldInteractions:
    """The commands and presses that wait for a decision, oldest first."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._held: dict[str, SlackEvent] = {}  # by event id

    async def restore(self, now: int) -> None:
        """Load the events that an earlier process held, except old ones."""
        stored = await self._shelf.get(_HELD_KEY)
        events = msgspec.json.decode(stored, type=list[SlackEvent]) if stored else []
        self._held = {
            found.event.id: found for found in events if now - found.event.at < _MAX_AGE_MS
        }

    async def hold(self, found: SlackEvent) -> None:
        """Keep an event until `submit_all` finds it decided; return after the commit."""
        if found.event.id not in self._held:
            self._held[found.event.id] = found
            while len(self._held) > _MAX_HELD:
                oldest = next(iter(self._held))
                log.warning(
                    "slack: dropped an event of a person with unknown membership: %s", oldest
                )
                del self._held[oldest]
            await self._save()

    async def submit_all(self, submit: Callable[[SlackEvent], Awaitable[Accepted]]) -> None:
        """Submit all events again, and forget those that are decided."""
        for id_, found in tuple(self._held.items()):
            if await submit(found) is not Accepted.UNDECIDED:
                self._held.pop(id_, None)
                await self._save()

    async def _save(self) -> None:
        stored = msgspec.json.encode(list(self._held.values())).decode()
        await self._shelf.put(_HELD_KEY, stored)
