"""Events of people whose membership in a group is not known yet, kept until it is.

Telegram neither sends an update again nor lets a bot read the history, so the whole event is kept,
for at most a day.
"""

import asyncio
import logging
from collections.abc import Iterator

import msgspec

from platforms.core.contract import Inbound, Shelf
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_HELD_KEY = "undecided"
_MAX_HELD = 200
_MAX_AGE_MS = 86_400_000


class HeldEvent(msgspec.Struct, frozen=True):
    """An event, and the time since which it waits."""

    event: Inbound
    since: int


_read_events = msgspec.json.Decoder(list[HeldEvent]).decode


class HeldEvents:
    """The events that wait for a decision, oldest first."""

    def __init__(self, shelf: Shelf, clock: Clock) -> None:
        self._shelf = shelf
        self._clock = clock
        self._events: list[HeldEvent] = []
        self._filled = asyncio.Event()

    def __iter__(self) -> Iterator[HeldEvent]:
        """Iterate over the events as they are now."""
        return iter(tuple(self._events))

    def __len__(self) -> int:
        return len(self._events)

    async def wait(self) -> None:
        """Wait until there is an event."""
        await self._filled.wait()

    async def restore(self) -> None:
        """Load the events that an earlier run held; an unreadable value is logged."""
        stored = await self._shelf.get(_HELD_KEY)
        try:
            self._events = _read_events(stored) if stored else []
        except msgspec.DecodeError as error:
            log.warning("telegram: ignored unreadable undecided events: %s", error)
        if self._events:
            self._filled.set()

    def has_person(self, event: Inbound) -> bool:
        """True if an earlier event of the same person in the same chat waits."""
        return any(_person(event) == _person(held.event) for held in self._events)

    async def hold(self, event: Inbound) -> None:
        """Keep an event; return after the commit."""
        if len(self._events) >= _MAX_HELD:
            log.warning("telegram: too many undecided events; the oldest is dropped")
            del self._events[0]
        self._events.append(HeldEvent(event, self._clock.now()))
        self._filled.set()
        await self._save()

    async def release(self, held: HeldEvent) -> None:
        """Forget an event that is decided."""
        self._events = [other for other in self._events if other is not held]
        if not self._events:
            self._filled.clear()
        await self._save()

    def is_expired(self, held: HeldEvent) -> bool:
        """True if an event has waited too long; its sender then counts as no member."""
        return self._clock.now() - held.since > _MAX_AGE_MS

    async def _save(self) -> None:
        await self._shelf.put(_HELD_KEY, msgspec.json.encode(self._events).decode())


def _person(event: Inbound) -> tuple[str, str]:
    return event.address.chat, event.sender.id
