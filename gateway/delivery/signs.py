"""Reactions on people's messages in one chat; they yield to everything else.

Each reaction has its own task, because a slow platform must not delay an answer, and uses only
spare budget. A reaction without budget is dropped after a while. A waiting reaction is just an
entry and a timer, because most chats have one when many are answered at once.
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
"""Seconds after which a waiting reaction is dropped."""

MAX_WAITING_REACTIONS = 16
"""Messages of a chat with waiting reactions; beyond that the oldest are dropped."""

_PAUSE_SECONDS = 5.0
"""Pause after the platform refused a reaction without a Retry-After."""


class _WaitingReaction(msgspec.Struct, frozen=True):
    op: React
    expires_at: float


class ChatReactions:
    """The reactions of one chat, oldest first; a new one replaces a waiting one."""

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
        self._has_pending = has_pending  # final items go first
        self._start = start  # runs `deliver` in a task
        self._on_idle = on_idle  # called when no reaction is left
        self._waiting: dict[str, _WaitingReaction] = {}
        self._showing = False
        self._timer: asyncio.Handle | None = None
        self._not_before = 0.0

    @property
    def is_busy(self) -> bool:
        """True while a reaction waits or is being sent."""
        return self._showing or bool(self._waiting)

    def add(self, op: React) -> None:
        """Queue a reaction."""
        self._waiting.pop(op.message, None)
        self._waiting[op.message] = _WaitingReaction(op, self._clock.monotonic() + MAX_WAIT_SECONDS)
        if len(self._waiting) > MAX_WAITING_REACTIONS:
            del self._waiting[next(iter(self._waiting))]
        self.wake()

    def clear(self) -> None:
        """Drop the waiting reactions, because too many chats have some."""
        self._waiting.clear()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not self._showing:
            self._on_idle()

    def wake(self) -> None:
        """Check for budget again after a change."""
        if self._showing or not self._waiting:
            return
        if self._timer:
            self._timer.cancel()
        # Wait one loop iteration, because a newer reaction may replace the waiting one.
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
        """Send a reaction after `wait` seconds, then start the next one."""
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
        log.debug("no reaction on %s in %s: %s", op.message, op.address.chat, outcome)
        if isinstance(outcome, Unauthorized):
            self._link.on_credentials_refused(outcome)
        elif isinstance(outcome, Unavailable):
            # Delay reactions only: answers detect a rate limit themselves.
            pause = _PAUSE_SECONDS if outcome.retry_after is None else outcome.retry_after
            self._not_before = self._clock.monotonic() + pause
