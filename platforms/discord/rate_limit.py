"""Sans-IO: when a REST call may go, so that Discord need not say 429.

Discord counts calls per route and channel in windows that it announces in headers, and all calls
of a bot together (50 a second). What everything was refused for waits until its time is over; one
route that was refused waits in the lane of its chat.
Moments are seconds of one monotonic clock.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

PER_SECOND = 40.0
"""Calls a second over everything. Discord allows 50, and some may come late and be counted with others."""

_BURST = 4.0
"""Calls that may go together after a silence."""

_ROUNDING = 1e-6  # of a call
_MAX_BUCKETS = 2_000


class RouteBucket:
    """The calls of one route in one channel, as far as Discord has told."""

    def __init__(self) -> None:
        self._remaining: int | None = None  # unknown until Discord has answered once
        self._resets_at = 0.0

    def wait_seconds(self, now: float) -> float:
        """Seconds until a call may go."""
        if now >= self._resets_at:
            self._remaining = None
        return 0.0 if self._remaining is None or self._remaining > 0 else self._resets_at - now

    def take(self) -> None:
        """Count a call that goes now."""
        if self._remaining is not None:
            self._remaining -= 1

    def update(self, remaining: int, reset_after: float, now: float) -> None:
        """Take over what an answer said; answers of calls side by side come in any order."""
        same_window = self._remaining is not None and now < self._resets_at
        self._remaining = (
            min(remaining, self._remaining)
            if same_window and self._remaining is not None
            else remaining
        )
        self._resets_at = now + reset_after


class RestRateLimit:
    """All calls of one bot: those that go, in their order, and those that stand in line."""

    def __init__(self, now: float) -> None:
        self._buckets: OrderedDict[str, RouteBucket] = OrderedDict()
        self._tokens = (
            0.0  # calls that could go at `_at`: the gate before us may have let as many by
        )
        self._refilled_at = now
        self._blocked_until = 0.0
        self._waiting = 0

    def bucket(self, key: str) -> RouteBucket:
        """The bucket that a call draws from; the longest unused are forgotten."""
        found = self._buckets.setdefault(key, RouteBucket())
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return found

    def blocked_seconds(self, now: float) -> float:
        """Seconds for which Discord has refused everything."""
        return max(0.0, self._blocked_until - now)

    def block(self, seconds: float, now: float) -> None:
        """Wait out a 429 that is about everything."""
        self._blocked_until = max(self._blocked_until, now + seconds)

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Count a call that stands in line."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def queue_seconds(self) -> float:
        """Seconds that a new call would have to wait."""
        return self._waiting / PER_SECOND

    def wait_seconds(self, now: float) -> float:
        """Seconds until the first in line may go.

        To be asked again once they are over. Places given away beforehand would all be due at once
        when our loop was busy for a while.
        """
        missing = 1.0 - self._tokens_at(now)
        return missing / PER_SECOND if missing > _ROUNDING else 0.0

    def take(self, now: float) -> None:
        """Count a call that goes now."""
        self._tokens, self._refilled_at = self._tokens_at(now) - 1.0, now

    def _tokens_at(self, now: float) -> float:
        return min(_BURST, self._tokens + (now - self._refilled_at) * PER_SECOND)
