"""Sans-IO: pacing of REST calls that keeps below Discord's rate limits.

Discord limits calls per route and channel, in windows announced by response headers, and all calls
of a bot together to 50 a second. After a global 429 no call goes out until the wait is over; the
429 of a single route is waited out by the delivery lane of its chat.
Times are seconds of one monotonic clock.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

PER_SECOND = 40.0
"""Global calls per second, below Discord's 50 because network delays can bunch calls together."""

_BURST = 4.0
"""Calls that may go out at once after an idle period."""

_ROUNDING = 1e-6  # tolerance, as a fraction of one call
_MAX_BUCKETS = 2_000


class RouteBucket:
    """Remaining calls of one route and channel, as last reported by Discord."""

    def __init__(self) -> None:
        self._remaining: int | None = None  # unknown before the first response of a window
        self._resets_at = 0.0

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until a call may go out."""
        if now >= self._resets_at:
            self._remaining = None
        return 0.0 if self._remaining is None or self._remaining > 0 else self._resets_at - now

    def take(self) -> None:
        """Count a call that goes out now."""
        if self._remaining is not None:
            self._remaining -= 1

    def update(self, remaining: int, reset_after: float, now: float) -> None:
        """Apply a response's headers; responses to concurrent calls may arrive in any order."""
        same_window = self._remaining is not None and now < self._resets_at
        self._remaining = (
            min(remaining, self._remaining)
            if same_window and self._remaining is not None
            else remaining
        )
        self._resets_at = now + reset_after


class RestRateLimit:
    """Global token bucket of one bot, the buckets of its routes, and the number of waiting calls."""

    def __init__(self, now: float) -> None:
        self._buckets: OrderedDict[str, RouteBucket] = OrderedDict()
        # Start empty, because the limiter of an earlier connection may just have used a full burst.
        self._tokens = 0.0
        self._refilled_at = now
        self._blocked_until = 0.0
        self._waiting = 0

    def bucket(self, key: str) -> RouteBucket:
        """Return the bucket of a route; the least recently used buckets are dropped."""
        bucket = self._buckets.setdefault(key, RouteBucket())
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return bucket

    def blocked_seconds(self, now: float) -> float:
        """Return the seconds left of a global 429."""
        return max(0.0, self._blocked_until - now)

    def block(self, seconds: float, now: float) -> None:
        """Block all calls after a global 429."""
        self._blocked_until = max(self._blocked_until, now + seconds)

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Count a waiting call for the duration of the block."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def queue_seconds(self) -> float:
        """Return the estimated seconds that a new call would wait."""
        return self._waiting / PER_SECOND

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until the first waiting call may go out.

        The caller asks again afterwards. Slots reserved in advance would all become due at once
        after the event loop was busy for a while.
        """
        missing = 1.0 - self._tokens_at(now)
        return missing / PER_SECOND if missing > _ROUNDING else 0.0

    def take(self, now: float) -> None:
        """Count a call that goes out now."""
        self._tokens, self._refilled_at = self._tokens_at(now) - 1.0, now

    def _tokens_at(self, now: float) -> float:
        return min(_BURST, self._tokens + (now - self._refilled_at) * PER_SECOND)
