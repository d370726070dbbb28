"""Sans-IO: when a chat may take another op.

Every op of a chat draws on one budget. A platform's 429 makes the budget smaller, and it comes back
slowly. Moments are seconds of one monotonic clock.
"""

import enum

_SMALLEST_SHARE = 1 / 16
_RECOVERY_SECONDS = 600.0  # from nothing to the documented pace
_SHARED_BY_THREE = 3.0  # a smaller budget has no room to set some of it aside for urgent ops
_SHARED_BY_TWO = 2.0
_ROUNDING = 1e-9


class Weight(enum.Enum):
    """How much an op matters: what matters less leaves room for what matters more."""

    URGENT = enum.auto()  # the answer to /stop
    FINAL = enum.auto()  # must be shown, can wait
    COSMETIC = enum.auto()  # can be left out: live updates, drafts, typing


class Pace:
    """The budget of one chat: `burst` ops at once, growing back by `per_second`."""

    def __init__(self, burst: int, per_second: float, now: float) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._share = 1.0  # of the documented pace, learnt from 429s
        self._left = self._burst
        self._at = now
        self._blocked_until = now

    @property
    def blocked_until(self) -> float:
        """When the platform's own Retry-After ends."""
        return self._blocked_until

    def ready_at(self, weight: Weight, now: float) -> float:
        """Say when an op may go; now, or a later moment at which to ask again."""
        self._refill(now)
        if now < self._blocked_until:
            return self._blocked_until
        missing = 1.0 + self._reserve(weight) - self._left
        if missing <= _ROUNDING:
            return now
        return now + missing / (self._per_second * self._share)

    def tight(self, now: float) -> bool:
        """Tell whether the budget is so small that any op makes the next one wait."""
        self._refill(now)
        return self._ceiling() < _SHARED_BY_TWO

    def take(self, now: float) -> None:
        """Count an op that goes now."""
        self._refill(now)
        self._left -= 1.0

    def block(self, until: float) -> None:
        """Wait out a platform's Retry-After."""
        self._blocked_until = max(self._blocked_until, until)

    def limited(self, now: float, retry_after: float) -> None:
        """Learn from a 429: it was too fast, so the budget is cut to half."""
        self._refill(now)
        self._share = max(self._share / 2, _SMALLEST_SHARE)
        # A final op may go right at the end of the wait; the rest grows back.
        self._left = min(self._left, 1.0 + self._reserve(Weight.FINAL))
        self.block(now + retry_after)

    def rested(self, now: float) -> bool:
        """Tell whether nothing is remembered that a new budget would not know."""
        self._refill(now)
        return self._share >= 1.0 and self._left >= self._burst and now >= self._blocked_until

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._at)
        self._at = max(now, self._at)
        grown = passed * self._per_second * self._share
        self._share = min(1.0, self._share + passed / _RECOVERY_SECONDS)
        self._left = min(self._ceiling(), self._left + grown)

    def _ceiling(self) -> float:
        return max(1.0, self._burst * self._share)

    def _reserve(self, weight: Weight) -> float:
        """How much must be left over for what matters more."""
        ceiling = self._ceiling()
        final = 1.0 if ceiling >= _SHARED_BY_THREE else 0.0
        match weight:
            case Weight.URGENT:
                return 0.0
            case Weight.FINAL:
                return final
            case Weight.COSMETIC:
                return min(ceiling - 1.0, final + max(1.0, ceiling // 4))
