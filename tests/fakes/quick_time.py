"""A loop whose time runs faster than ours whenever everybody waits, with real sockets and threads.

Time stands still while there is something to do, so it does not matter how fast the machine is;
what sockets, threads and the disk take appears longer than it is by the same factor.
"""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from sessions.values.clock import SystemClock

T = TypeVar("T")

FACTOR = 32.0
_LONGEST = 0.1
"""Seconds that pass at most until the sockets are looked at again."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        longest = _LONGEST if timeout is None else min(timeout, _LONGEST)
        began = time.perf_counter()
        events = super().select(longest / FACTOR)
        self.now += min(longest, (time.perf_counter() - began) * FACTOR)
        return events


class QuickLoop(asyncio.SelectorEventLoop):
    """The loop, and a clock that goes with it."""

    def __init__(self) -> None:
        self._quick = _Selector()
        self._began = SystemClock().now()
        super().__init__(self._quick)

    def time(self) -> float:
        return self._quick.now

    def now(self) -> int:
        """See `Clock`."""
        return self._began + round(self._quick.now * 1000)

    def monotonic(self) -> float:
        """See `Clock`."""
        return self._quick.now


def quickly(work: Coroutine[Any, Any, T]) -> T:
    """Run something in a loop of its own."""
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(work)


def clock() -> QuickLoop:
    """The clock of the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuickLoop)
    return loop
