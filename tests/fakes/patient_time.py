"""A loop for tests whose clock does not depend on what else the machine does.

Timers that a test has made short must fire because nothing happened, not because another process had
the processor. So the clock counts what was slept, never more than was asked for, and what was
computed. Tests that need not wait at all have the loop of `tests.fakes.quick_time`.
"""

import asyncio
import selectors
import threading
import time

from sessions.values.clock import SystemClock

_SPARE = 0.002  # seconds that a sleep or a step may take longer and is believed


class _Watched(selectors.DefaultSelector):
    """Tells the loop's clock when the loop sleeps and when it has slept."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._counted = time.monotonic()
        self._woken_at, self._used = self._counted, time.thread_time()

    def now(self) -> float:
        """Seconds that have passed for this loop."""
        if threading.get_ident() != self._thread:
            return self._counted
        passed = time.monotonic() - self._woken_at
        return self._counted + min(passed, time.thread_time() - self._used + _SPARE)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._thread = threading.get_ident()
        self._counted = self.now()
        began = time.monotonic()
        try:
            return super().select(timeout)
        finally:
            self._woken_at, self._used = time.monotonic(), time.thread_time()
            slept = self._woken_at - began
            self._counted += slept if timeout is None else min(slept, max(timeout, 0.0) + _SPARE)


class PatientLoop(asyncio.SelectorEventLoop):
    """The loop, and a clock that goes with it."""

    def __init__(self) -> None:
        self._watched = _Watched()
        super().__init__(self._watched)

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop`."""
        return self._watched.now()

    def now(self) -> int:
        """See `Clock`."""
        return SystemClock().now()

    def monotonic(self) -> float:
        """See `Clock`."""
        return self._watched.now()
