"""Signs on people's messages in one chat: nice to have, so they give way to everything else.

They have a task of their own, because a platform that is slow to take a sign must not hold up an
answer, and they only use what is left of the chat's budget. What finds no room soon is dropped.
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

    def __init__(self, link: Link, pace: Pace, clock: Clock, owes: Callable[[], bool]) -> None:
        self._link = link
        self._pace = pace
        self._clock = clock
        self._owes = owes  # something must be shown first
        self._waiting: dict[str, _Waiting] = {}
        self._news = asyncio.Event()
        self._running = False
        self._not_before = 0.0

    @property
    def busy(self) -> bool:
        """Tell whether `pump` is under way."""
        return self._running

    def put(self, op: React) -> bool:
        """Take a sign; tells whether `pump` must be started."""
        self._waiting.pop(op.message, None)
        self._waiting[op.message] = _Waiting(op, self._clock.monotonic() + PATIENCE)
        if len(self._waiting) > MOST_SIGNS:
            del self._waiting[next(iter(self._waiting))]
        self._news.set()
        start, self._running = not self._running, True
        return start

    def look_again(self) -> None:
        """Something was shown, or the platform is back: there may be room now."""
        self._news.set()

    async def pump(self) -> None:
        """Show what waits, until nothing does."""
        try:
            while self._waiting:
                await self._next()
        finally:
            self._running = False

    async def _next(self) -> None:
        self._news.clear()
        now = self._clock.monotonic()
        oldest = next(iter(self._waiting.values()))
        if oldest.until <= now or self._pace.tight(now):
            del self._waiting[oldest.op.message]
            return
        at = oldest.until
        if self._link.up and not self._owes():
            at = max(self._pace.ready_at(Weight.TRIFLE, now), self._not_before)
        if at > now:
            await self._wait(min(at, oldest.until) - now)
            return
        del self._waiting[oldest.op.message]
        if (goes := self._pace.take(now, Weight.TRIFLE)) > now:
            await asyncio.sleep(goes - now)
        await self._show(oldest.op)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _show(self, op: React) -> None:
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
