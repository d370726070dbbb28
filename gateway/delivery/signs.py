"""Signs on people's messages in one chat: nice to have, so they give way to everything else.

Each is shown by a task of its own, because a platform that is slow to take a sign must not hold up
an answer, and they only use what is left of the chat's budget. What finds no room soon is dropped.
A sign that waits is no more than an entry and a timer: when many chats are answered at once, most
of them have one that waits.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from gateway.delivery.link import Link
from gateway.delivery.pacing import Pace, Weight
from platforms.core.contract import React, Receipt
from platforms.core.errors import Unauthorized, Unavailable
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

SIGN_DEADLINE = 10.0
PATIENCE = 60.0
"""Seconds after which a sign that found no room is not worth showing any more."""

MOST_SIGNS = 16
"""Messages of a chat whose signs may wait; beyond that the oldest are dropped."""

PAUSE = 5.0
"""Seconds without signs after the platform could not take one and did not say for how long."""


class _Waiting(msgspec.Struct, frozen=True):
    op: React
    until: float


class Signs:
    """The signs of one chat, the oldest first; a newer one takes the place of one that waits."""

    __slots__ = (
        "_clock",
        "_link",
        "_not_before",
        "_owes",
        "_pace",
        "_rested",
        "_show",
        "_showing",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        link: Link,
        pace: Pace,
        clock: Clock,
        *,
        owes: Callable[[], bool],
        show: Callable[[React, float], None],
        rested: Callable[[], None],
    ) -> None:
        self._link = link
        self._pace = pace
        self._clock = clock
        self._owes = owes  # something must be shown first
        self._show = show  # begins `deliver` in a task
        self._rested = rested  # told when no sign waits any more
        self._waiting: dict[str, _Waiting] = {}
        self._showing = False
        self._timer: asyncio.Handle | None = None  # of the next look
        self._not_before = 0.0

    @property
    def busy(self) -> bool:
        """Tell whether a sign waits, or is being shown."""
        return self._showing or bool(self._waiting)

    def put(self, op: React) -> None:
        """Take a sign."""
        self._waiting.pop(op.message, None)
        self._waiting[op.message] = _Waiting(op, self._clock.monotonic() + PATIENCE)
        if len(self._waiting) > MOST_SIGNS:
            del self._waiting[next(iter(self._waiting))]
        self.look_again()

    def drop(self) -> None:
        """Give up what waits: too many chats have signs that do."""
        self._waiting.clear()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not self._showing:
            self._rested()

    def look_again(self) -> None:
        """Something is new, was shown, or the platform is back: there may be room now."""
        if self._showing or not self._waiting:
            return
        if self._timer:
            self._timer.cancel()
        # Not at once: what comes in the same moment may take the place of what waits.
        self._timer = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._timer = None
        while self._waiting:
            now = self._clock.monotonic()
            oldest = next(iter(self._waiting.values()))
            if oldest.until <= now or self._pace.tight(now):
                del self._waiting[oldest.op.message]
            elif (at := self._room_at(oldest, now)) > now:
                later = asyncio.get_running_loop().call_later
                self._timer = later(min(at, oldest.until) - now, self._look)
                return
            else:
                del self._waiting[oldest.op.message]
                self._showing = True
                self._show(oldest.op, self._pace.take(now, Weight.TRIFLE) - now)
                return
        self._rested()

    def _room_at(self, waiting: _Waiting, now: float) -> float:
        if self._link.up and not self._owes():
            return max(self._pace.ready_at(Weight.TRIFLE, now), self._not_before)
        return waiting.until

    async def deliver(self, op: React, wait: float) -> None:
        """Show a sign, as `show` was asked to; then it is the next one's turn."""
        try:
            await asyncio.sleep(wait)
            await self._deliver(op)
        finally:
            self._showing = False
        self.look_again()
        if not self._waiting:
            self._rested()

    async def _deliver(self, op: React) -> None:
        outcome = await self._link.deliver(op, SIGN_DEADLINE)
        if isinstance(outcome, Receipt):
            return
        log.debug("%s in %s: no sign: %s", op.message, op.address.chat, outcome)
        if isinstance(outcome, Unauthorized):
            self._link.refused()
        elif isinstance(outcome, Unavailable):
            # Answers learn of a limit by themselves: that a sign met it must not hold them up.
            pause = PAUSE if outcome.retry_after is None else outcome.retry_after
            self._not_before = self._clock.monotonic() + pause
