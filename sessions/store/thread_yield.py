"""Lets other threads run when the event loop leaves them no chance.

A thread that comes back from the disk must wait until the loop's thread lets go of the interpreter.
A loop that always has something to do lets go at every pass, but for a microsecond: too short for
another thread to wake up. Measured, a commit of 0.3 ms then took up to 16 seconds, whatever
`sys.setswitchinterval` said. So a loop that has waited long enough for its threads stands still for
a moment, until one of them is done; the same commits then took at most 20 ms.
"""

import threading
from collections.abc import Callable

LATE_AFTER_SECONDS = 0.004
"""Seconds without an answer of any thread after which the loop stands still."""
YIELD_SECONDS = 0.001
"""Seconds for which it does so at most."""
MAX_FRUITLESS_YIELDS = 50
"""How often: after that it is the disk that is slow, and standing still does not help."""


class ThreadYielder:
    """Watches over the jobs that a loop has given to its threads."""

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
        """A thread has got a job; called in the loop."""
        self._pending_jobs += 1
        if not self._watching:
            self._schedule_check()

    def on_jobs_done(self) -> None:
        """A thread has done jobs; called there."""
        self._answered.set()

    def on_results_seen(self, jobs: int) -> None:
        """The loop has seen these answers."""
        self._pending_jobs -= jobs
        self._fruitless_yields = 0

    def _schedule_check(self) -> None:
        self._watching = True
        self._answered.clear()
        self._call_later(LATE_AFTER_SECONDS, self._check)

    def _check(self) -> None:
        self._watching = False
        if not self._pending_jobs:
            return
        if not self._answered.is_set() and self._fruitless_yields < MAX_FRUITLESS_YIELDS:
            self._fruitless_yields += 1
            self._answered.wait(YIELD_SECONDS)
        self._schedule_check()
