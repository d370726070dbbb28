"""Work that blocks, done in a thread."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

StopEvent = threading.Event
"""Set when nobody wants the result any more: the work then ends soon, and leaves nothing behind."""


async def run_in_thread(work: Callable[[StopEvent], T], stop: StopEvent | None = None) -> T:
    """Run `work` in a thread; whoever is cancelled meanwhile still waits until it has ended.

    So no thread goes on writing after its caller is gone. Being cancelled a second time ends the
    wait, too.
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
    """Look at how it ended, so that nobody complains that nobody did."""
    if not thread.cancelled():
        thread.exception()
