"""A loop whose time runs faster than ours whenever everybody waits, with real sockets and threads.

Time stands still while there is something to do, so it does not matter how fast the machine is: for
what is computed, and while a thread works for the loop, the database's or another. Only who computes
or works for longer than a moment sees it pass as it does for us, for there may be a timer that is to
end him. What sockets and other processes take appears longer than it is by the factor.
"""

import asyncio
import contextlib
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from sqlalchemy import Connection

from sessions.store.database import Database
from sessions.values.clock import Clock, SystemClock
from tests.fakes.patient_time import PatientLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FACTOR = 32.0
_LONGEST = 0.1
"""Seconds that pass at most until the sockets are looked at again."""
_BUSY = 2.0
"""Seconds of computing without a rest that take no time at all."""
_WORKING = 1.0
"""Seconds that a thread may work without that any time passes."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.busy = 0  # threads that work for us
        self.waited = 0.0  # seconds, since one of them began or was done
        self._free_until = time.thread_time() + _BUSY

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            self._work()
            return events
        longest = _LONGEST if timeout is None else min(timeout, _LONGEST)
        factor = 1.0 if self.busy else FACTOR
        began = time.perf_counter()
        events = super().select(max(longest / factor, 0.001 if self.busy else 0.0))
        passed = time.perf_counter() - began
        self._free_until = time.thread_time() + _BUSY
        if self.busy:
            self.waited += passed
            passed = min(passed, max(self.waited - _WORKING, 0.0))
        self.now += min(longest, passed * factor)
        return events

    def _work(self) -> None:
        """Who is never at rest ages as he computes: it may be a timer that he waits for."""
        computed = time.thread_time()
        if computed > self._free_until:
            self.now += computed - self._free_until
            self._free_until = computed


class QuickLoop(asyncio.SelectorEventLoop):
    """The loop, and a clock that goes with it."""

    def __init__(self) -> None:
        self._quick = _Selector()
        self._began = SystemClock().now()
        super().__init__(self._quick)

    def time(self) -> float:
        return self._quick.now

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """A thread works for us."""
        self._quick.busy += 1
        self._quick.waited = 0.0
        try:
            yield
        finally:
            self._quick.busy -= 1
            self._quick.waited = 0.0

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        working = contextlib.ExitStack()
        working.enter_context(self.busy())
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: working.close())
        return future

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


def clock_here() -> Clock:
    """The clock of the loop that runs, or the machine's."""
    loop = asyncio.get_running_loop()
    return loop if isinstance(loop, QuickLoop | PatientLoop) else SystemClock()


class TimerClock(SystemClock):
    """The wall time of the machine, and the loop's time for waiting.

    Code that measures a wait by the machine and sleeps by a quick loop sleeps 32 times too briefly,
    so its deadline seems never to come.
    """

    def monotonic(self) -> float:
        """See `Clock`."""
        return clock_here().monotonic()


_done = Database._submit


async def _watched(self: Database, jobs: Any, work: Callable[[Connection], T]) -> T:
    loop = asyncio.get_running_loop()
    with loop.busy() if isinstance(loop, QuickLoop) else contextlib.nullcontext():
        return await _done(self, jobs, work)


Database._submit = _watched  # type: ignore[method-assign] # nobody else knows of its threads
