"""Gives starved threads a chance to run while the event loop is busy.

A thread that returns from the disk waits until the loop's thread releases the GIL. A loop that is
never idle releases the GIL on every pass, but only for a microsecond, too short for another thread
to wake up. Measured: a commit of 0.3 ms then took up to 16 seconds, whatever
`sys.setswitchinterval` was set to. So a loop that has waited too long for threads blocks for a
moment, until one of them has finished a job; the same commits then took at most 20 ms.
"""

import threading
from collections.abc import Callable

_LATE_AFTER_SECONDS = 0.004
"""Seconds without a finished job after which the loop blocks."""
YIELD_SECONDS = 0.001
"""Seconds for which the loop blocks at most."""
MAX_FRUITLESS_YIELDS = 50
"""Blocks without effect, after which the disk must be the slow part and blocking does not help."""


class ThreadYielder:
    """Watches the jobs that a loop has submitted to its threads."""

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], object],
        answered: threading.Event | None = None,
    ) -> None:
        self._call_later = call_later
        self._answered = answered or threading.Event()
        self._pending_jobs = 0
        self._fruitless_yields = 0
        self._watching = False

    def on_job_submitted(self) -> None:
        """Count a submitted job; called in the loop."""
        self._pending_jobs += 1
        if not self._watching:
            self._schedule_check()

    def on_jobs_done(self) -> None:
        """Note that a thread has finished jobs; called in that thread."""
        self._answered.set()

    def on_results_seen(self, jobs: int) -> None:
        """Count the results received; called in the loop."""
        self._pending_jobs -= jobs
        self._fruitless_yields = 0

    def _schedule_check(self) -> None:
        self._watching = True
        self._answered.clear()
        self._call_later(_LATE_AFTER_SECONDS, self._check)

    def _check(self) -> None:
        self._watching = False
        if not self._pending_jobs:
            return
        if not self._answered.is_set() and self._fruitless_yields < MAX_FRUITLESS_YIELDS:
            self._fruitless_yields += 1
            self._answered.wait(YIELD_SECONDS)
        self._schedule_check()
