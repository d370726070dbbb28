"""Deadlines for tools, without waiting for a tool that ignores its cancellation."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from agent.errors import ToolTimeout, ToolUnknownOutcome
from sessions.values.text import count_of

_GRACE_SECONDS = 3.0  # longest wait for a tool that was cancelled at the deadline
_STOP_GRACE_SECONDS = 0.1  # the same after `/stop`

_log = logging.getLogger(__name__)
_MAX_RENEWALS = 12
"""Longest duration of a call that reports progress, as a multiple of its time limit."""

_abandoned_tasks: set[asyncio.Task[str]] = set()

OnLateResult = Callable[[str], Awaitable[None]]
"""Receives a result that arrives after the deadline."""


class CallDeadline:
    """The time limit of one call; progress renews it, up to a longest duration."""

    def __init__(self, seconds: float, longest: float | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._started = self._loop.time()
        self._last = self._started + (seconds * _MAX_RENEWALS if longest is None else longest)
        self._at = min(self._started + seconds, self._last)
        self._pauses = 0
        self._paused_at = 0.0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the time within the block, because the call waits for a person."""
        if not self._pauses:
            self._paused_at = self._loop.time()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                seconds = self._loop.time() - self._paused_at
                self._at, self._last = self._at + seconds, self._last + seconds

    def renew(self) -> None:
        """Begin the time limit again."""
        self._at = min(self._loop.time() + self._seconds, self._last)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; 0 if it has passed."""
        now = self._paused_at if self._pauses else self._loop.time()
        return max(0.0, self._at - now)

    @property
    def total_seconds(self) -> float:
        """Seconds from the start to the present deadline."""
        return self._at - self._started


async def run_with_deadline(
    work: Awaitable[str], name: str, deadline: CallDeadline, on_late_result: OnLateResult
) -> str:
    """Return the result of a tool.

    A tool may still return a result after the deadline; this result goes to `on_late_result` only.

    Raises:
        ToolTimeout: The deadline passed.
        ToolUnknownOutcome: The tool cancelled itself.
    """
    timed_out = asyncio.Event()
    # Not in a task group, which would wait for the task without limit.
    task = asyncio.get_running_loop().create_task(
        _report_if_late(work, timed_out, on_late_result), name=f"tool {name}"
    )
    grace = _STOP_GRACE_SECONDS
    try:
        done, _ = await asyncio.wait({task}, timeout=deadline.seconds_left)
        while not done and (left := deadline.seconds_left):
            done, _ = await asyncio.wait({task}, timeout=left)
        if not done:
            grace = _GRACE_SECONDS
            timed_out.set()
    finally:
        if not task.done():
            await _cancel_task(task, grace)
    if not done:
        msg = f"{name} timed out after {deadline.total_seconds:.3g} s; its effect is unknown."
        raise ToolTimeout(msg)
    if task.cancelled():
        msg = f"{name} cancelled itself; its effect is unknown."
        raise ToolUnknownOutcome(msg)
    return task.result()


async def _report_if_late(
    work: Awaitable[str], timed_out: asyncio.Event, on_late_result: OnLateResult
) -> str:
    result = await work
    if timed_out.is_set():
        _log.warning("a tool returned %s after its deadline", count_of(len(result), "character"))
        await on_late_result(result)
    return result


async def _cancel_task(task: asyncio.Task[str], grace: float) -> None:
    task.cancel()
    _abandoned_tasks.add(task)
    task.add_done_callback(_on_abandoned_done)
    try:
        await asyncio.wait({task}, timeout=grace)
    finally:
        if not task.done():
            _log.warning("%s has not ended %.1f s after its cancellation", task.get_name(), grace)


def _on_abandoned_done(task: asyncio.Task[str]) -> None:
    _abandoned_tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s failed after its cancellation: %s", task.get_name(), error)
