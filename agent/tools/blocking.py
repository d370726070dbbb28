"""Blocking work in threads."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

StopEvent = threading.Event
"""Set when the result is no longer needed; the work then ends soon and cleans up."""


async def run_in_thread(work: Callable[[StopEvent], T], stop: StopEvent | None = None) -> T:
    """Run `work` in a thread and return its result.

    A cancellation sets `stop` and waits for the thread, so that no thread keeps writing after the
    caller has ended. A second cancellation ends this wait, too.
    """
    stop = stop or StopEvent()
    thread = asyncio.get_running_loop().create_task(asyncio.to_thread(work, stop))
    thread.add_done_callback(_consume_exception)
    try:
        await asyncio.wait({thread})
    finally:
        if not thread.done():
            stop.set()
            await asyncio.wait({thread})
    return thread.result()


def _consume_exception(thread: asyncio.Task[T]) -> None:
    """Retrieve the exception, because asyncio reports exceptions that are never retrieved."""
    if not thread.cancelled():
        thread.exception()
