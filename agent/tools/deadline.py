"""Runs a tool under a deadline, and never waits for one that does not end when it is told to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from agent.errors import ToolTimeout, ToolUnknownOutcome

_GRACE_SECONDS = 3.0  # seconds a tool has to end after its time was up
_STOP_GRACE_SECONDS = 0.1  # the same when somebody waits for the stop

_log = logging.getLogger(__name__)
_abandoned_tasks: set[asyncio.Task[str]] = set()

OnLateResult = Callable[[str], Awaitable[None]]
"""Is given a result that came after the tool's time was up."""


async def run_with_deadline(
    work: Awaitable[str], name: str, seconds: float, on_late_result: OnLateResult
) -> str:
    """Give the tool's result, or raise what became of it.

    A tool that timed out may still come to a result; whatever it is, the turn has gone on without
    it, and only `late` hears of it.
    """
    timed_out = asyncio.Event()
    # A task of its own and of no group: a group would wait for it for ever.
    task = asyncio.get_running_loop().create_task(
        _report_if_late(work, timed_out, on_late_result), name=f"tool {name}"
    )
    grace = _STOP_GRACE_SECONDS
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            grace = _GRACE_SECONDS
            timed_out.set()
    finally:
        if not task.done():
            await _cancel_task(task, grace)
    if not done:
        msg = f"{name} timed out after {seconds:g} s; its effect is unknown."
        raise ToolTimeout(msg)
    if task.cancelled():
        msg = f"{name} broke off by itself; its effect is unknown."
        raise ToolUnknownOutcome(msg)
    return task.result()


async def _report_if_late(
    work: Awaitable[str], timed_out: asyncio.Event, on_late_result: OnLateResult
) -> str:
    result = await work
    if timed_out.is_set():
        _log.warning("a result came after the tool's time was up (%d characters)", len(result))
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
            _log.warning("%s does not end although it was cancelled", task.get_name())


def _on_abandoned_done(task: asyncio.Task[str]) -> None:
    _abandoned_tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s failed after it was given up: %s", task.get_name(), error)
