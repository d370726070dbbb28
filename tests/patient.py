"""Loops for tests whose clock does not depend on what else the machine does.

Timers that a test has made short must fire because nothing happened, not because another process had
the processor. So the clock of a `PatientLoop` counts what was slept, never more than was asked for,
and what was computed. That of a `QuickLoop` leaps, besides: when nothing is left to do but to wait
for a timer, that timer's moment has come. What the loop's clock says is also what the gateway under
test is told (`PatientClock`).
"""

import asyncio
import selectors
import threading
import time
from pathlib import Path

from sessions.values.clock import SystemClock

_SPARE = 0.002  # seconds that a sleep or a step may take longer and is believed
_GLANCE = 0.001  # seconds in which a thread that has work shows that it has
_NOTHING = 20_000  # nanoseconds, between two readings of one and the same clock
_THREADS = Path("/proc/self/task")

_Ready = list[tuple[selectors.SelectorKey, int]]


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

    def select(self, timeout: float | None = None) -> _Ready:
        self._thread = threading.get_ident()
        self._counted = self.now()
        began = time.monotonic()
        try:
            return self._sleep(timeout)
        finally:
            self._woken_at, self._used = time.monotonic(), time.thread_time()
            slept = self._woken_at - began
            self._counted += slept if timeout is None else min(slept, max(timeout, 0.0) + _SPARE)

    def _sleep(self, timeout: float | None) -> _Ready:
        return super().select(timeout)


class _Leaping(_Watched):
    """Does not sleep until a timer when no thread of this process has anything left to do."""

    def _sleep(self, timeout: float | None) -> _Ready:
        if timeout is None or timeout <= _GLANCE:
            return super()._sleep(timeout)
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            before = _used_by_others()
            if ready := super()._sleep(min(_GLANCE, left)):
                return ready
            if _used_by_others() - before < _NOTHING and _others_sleep():
                if ready := super()._sleep(0):
                    return ready
                self._counted += left
                break
        return []


def _used_by_others() -> int:
    """Nanoseconds that the other threads of this process have computed; they write the files."""
    return time.process_time_ns() - time.thread_time_ns()


def _others_sleep() -> bool:
    own = str(threading.get_native_id())
    return all(_sleeps(each) for each in _THREADS.iterdir() if each.name != own)


def _sleeps(thread: Path) -> bool:
    try:
        said = (thread / "stat").read_bytes()
    except OSError:
        return True  # it has ended
    return said.rpartition(b") ")[2][:1] == b"S"


class PatientLoop(asyncio.SelectorEventLoop):
    """A busy machine does not hurry it."""

    def __init__(self, watched: _Watched | None = None) -> None:
        self._watched = watched or _Watched()
        super().__init__(self._watched)

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop`."""
        return self._watched.now()


class QuickLoop(PatientLoop):
    """Nothing is waited for in vain. Only for tests whose every part lives in this process."""

    def __init__(self) -> None:
        super().__init__(_Leaping())


class PatientClock(SystemClock):
    """The machine's hour, and the seconds of the loop that it was made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def monotonic(self) -> float:
        """See `Clock`."""
        return self._loop.time()
