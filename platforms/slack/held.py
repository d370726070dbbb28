"""Presses of buttons by people whose membership is not known yet, kept until it is.

Slack does not send a press again, and a press is in no history. A press has no text, so it can be
stored before the decision.
"""

from collections.abc import Awaitable, Callable

import msgspec

from platforms.core.contract import Accepted, Shelf
from platforms.slack.decode import SlackEvent

_HELD_KEY = "held presses"
_MAX_HELD = 100
_MAX_AGE_MS = 86_400_000


class HeldPresses:
    """The presses that wait for a decision, oldest first."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._held: dict[str, SlackEvent] = {}  # by event id

    async def restore(self, now: int) -> None:
        """Load the presses that an earlier process held, except old ones."""
        stored = await self._shelf.get(_HELD_KEY)
        presses = msgspec.json.decode(stored, type=list[SlackEvent]) if stored else []
        self._held = {
            press.event.id: press for press in presses if now - press.event.at < _MAX_AGE_MS
        }

    async def hold(self, press: SlackEvent) -> None:
        """Keep a press until `submit_all` finds it decided; return after the commit."""
        if press.event.id not in self._held:
            self._held[press.event.id] = press
            while len(self._held) > _MAX_HELD:
                del self._held[next(iter(self._held))]
            await self._save()

    async def submit_all(self, submit: Callable[[SlackEvent], Awaitable[Accepted]]) -> None:
        """Submit all presses again, and forget those that are decided."""
        for id_, press in tuple(self._held.items()):
            if await submit(press) is not Accepted.UNDECIDED:
                self._held.pop(id_, None)
                await self._save()

    async def _save(self) -> None:
        stored = msgspec.json.encode(list(self._held.values())).decode()
        await self._shelf.put(_HELD_KEY, stored)
