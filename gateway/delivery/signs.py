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

from gateway.delivery.link import AdapterLink
from gateway.delivery.pacing import OpPriority, Pace
from platforms.core.contract import React, Receipt
from platforms.core.errors import Unauthorized, Unavailable
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

REACTION_DEADLINE_SECONDS = 10.0
MAX_WAIT_SECONDS = 60.0
"""Seconds after which a sign that found no room is not worth showing any more."""

MAX_WAITING_REACTIONS = 16
"""Messages of a chat whose signs may wait; beyond that the oldest are dropped."""

PAUSE_SECONDS = 5.0
"""Seconds without signs after the platform could not take one and did not say for how long."""


class _WaitingReaction(msgspec.Struct, frozen=True):
    op: React
    expires_at: float


class ChatReactions:
    """The signs of one chat, the oldest first; a newer one takes the place of one that waits."""

    __slots__ = (
        "_clock",
        "_has_pending",
        "_link",
        "_not_before",
        "_on_idle",
        "_pace",
        "_showing",
        "_start",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        link: AdapterLink,
        pace: Pace,
        clock: Clock,
        *,
        has_pending: Callable[[], bool],
        start: Callable[[React, float], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._link = link
        self._pace = pace
        self._clock = clock
        self._has_pending = has_pending  # something must be shown first
        self._start = start  # begins `deliver` in a task
        self._on_idle = on_idle  # told when no sign waits any more
        self._waiting: dict[str, _WaitingReaction] = {}
        self._showing = False
        self._timer: asyncio.Handle | None = None  # of the next look
        self._not_before = 0.0

    @property
    def is_busy(self) -> bool:
        """Tell whether a sign waits, or is being shown."""
        return self._showing or bool(self._waiting)

    def add(self, op: React) -> None:
        """Take a sign."""
        self._waiting.pop(op.message, None)
        self._waiting[op.message] = _WaitingReaction(op, self._clock.monotonic() + MAX_WAIT_SECONDS)
        if len(self._waiting) > MAX_WAITING_REACTIONS:
            del self._waiting[next(iter(self._waiting))]
        self.wake()

    def clear(self) -> None:
        """Give up what waits: too many chats have signs that do."""
        self._waiting.clear()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not self._showing:
            self._on_idle()

    def wake(self) -> None:
        """Something is new, was shown, or the platform is back: there may be room now."""
        if self._showing or not self._waiting:
            return
        if self._timer:
            self._timer.cancel()
        # Not at once: what comes in the same moment may take the place of what waits.
        self._timer = asyncio.get_running_loop().call_soon(self._start_next)

    def _start_next(self) -> None:
        self._timer = None
        while self._waiting:
            now = self._clock.monotonic()
            oldest = next(iter(self._waiting.values()))
            if oldest.expires_at <= now or self._pace.is_tight(now):
                del self._waiting[oldest.op.message]
            elif (at := self._ready_at(oldest, now)) > now:
                later = asyncio.get_running_loop().call_later
                self._timer = later(min(at, oldest.expires_at) - now, self._start_next)
                return
            else:
                del self._waiting[oldest.op.message]
                self._showing = True
                self._start(oldest.op, self._pace.take(now, OpPriority.TRIVIAL) - now)
                return
        self._on_idle()

    def _ready_at(self, waiting: _WaitingReaction, now: float) -> float:
        if self._link.is_connected and not self._has_pending():
            return max(self._pace.ready_at(OpPriority.TRIVIAL, now), self._not_before)
        return waiting.expires_at

    async def deliver(self, op: React, wait: float) -> None:
        """Show a sign, as `show` was asked to; then it is the next one's turn."""
        try:
            await asyncio.sleep(wait)
            await self._deliver(op)
        finally:
            self._showing = False
        self.wake()
        if not self._waiting:
            self._on_idle()

    async def _deliver(self, op: React) -> None:
        outcome = await self._link.deliver(op, REACTION_DEADLINE_SECONDS)
        if isinstance(outcome, Receipt):
            return
        log.debug("%s in %s: no sign: %s", op.message, op.address.chat, outcome)
        if isinstance(outcome, Unauthorized):
            self._link.on_credentials_refused()
        elif isinstance(outcome, Unavailable):
            # Answers learn of a limit by themselves: that a sign met it must not hold them up.
            pause = PAUSE_SECONDS if outcome.retry_after is None else outcome.retry_after
            self._not_before = self._clock.monotonic() + pause
