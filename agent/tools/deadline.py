"""Runs a tool under a deadline, and never waits for one that does not end when it is told to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from agent.errors import ToolTimeout, ToolUnknownOutcome

_GRACE = 3.0  # seconds a tool has to end after its time was up
_STOP_GRACE = 0.1  # the same when somebody waits for the stop

_log = logging.getLogger(__name__)
_let_go: set[asyncio.Task[str]] = set()

Late = Callable[[str], Awaitable[None]]
"""Is given a result that came after the tool's time was up."""


async def bounded(work: Awaitable[str], name: str, seconds: float, late: Late) -> str:
    """Give the tool's result, or raise what became of it.

    A tool that timed out may still come to a result; whatever it is, the turn has gone on without
    it, and only `late` hears of it.
    """
    timed_out = asyncio.Event()
    # A task of its own and of no group: a group would wait for it for ever.
    task = asyncio.get_running_loop().create_task(
        _watched(work, timed_out, late), name=f"tool {name}"
    )
    grace = _STOP_GRACE
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            grace = _GRACE
            timed_out.set()
    finally:
        if not task.done():
            await _end(task, grace)
    if not done:
        msg = f"{name} timed out after {seconds:g} s; its effect is unknown."
        raise ToolTimeout(msg)
    if task.cancelled():
        msg = f"{name} broke off by itself; its effect is unknown."
        raise ToolUnknownOutcome(msg)
    return task.result()


async def _watched(work: Awaitable[str], timed_out: asyncio.Event, late: Late) -> str:
    result = await work
    if timed_out.is_set():
        _log.warning("a result came after the tool's time was up (%d characters)", len(result))
        await late(result)
    return result


async def _end(task: asyncio.Task[str], grace: float) -> None:
    task.cancel()
    _let_go.add(task)
    task.add_done_callback(_forget)
    try:
        await asyncio.wait({task}, timeout=grace)
    finally:
        if not task.done():
            _log.warning("%s does not end although it was cancelled", task.get_name())


def _forget(task: asyncio.Task[str]) -> None:
    _let_go.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s failed after it was given up: %s", task.get_name(), error)
