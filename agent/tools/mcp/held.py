"""A context manager in a task of its own, so that no cancellation interrupts the exit.

If the exit ran in the caller's task, a cancellation during the exit would leave the program of a
server running.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

LEAVE_SECONDS = 10.0
"""Time limit for the exit."""

T = TypeVar("T")


@contextlib.asynccontextmanager
async def hold_context(
    context: AbstractAsyncContextManager[T], on_lost: Callable[[], None]
) -> AsyncIterator[T]:
    """Enter a context, and exit with the block; a cancellation waits for the exit.

    `on_lost` is called when the context ends by itself, for instance because an inner task failed.
    """
    loop = asyncio.get_running_loop()
    values: list[T] = []
    entered, exiting = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        try:
            async with context as value:
                values.append(value)
                entered.set()
                await exiting.wait()
        finally:
            if values and not exiting.is_set():
                on_lost()
            entered.set()  # wakes the caller also after a failed entry

    holder = loop.create_task(hold())
    try:
        await entered.wait()
        if values:
            yield values[0]
    finally:
        exiting.set()
        if not values:
            holder.cancel()
        limit = loop.call_later(LEAVE_SECONDS, holder.cancel)
        holder.add_done_callback(lambda _: limit.cancel())
        await _wait_until_done(holder)
    holder.result()


async def _wait_until_done(task: asyncio.Task[None]) -> None:
    """Wait for the task, and only then raise a cancellation that arrived meanwhile."""
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # retrieved here, because the block may raise another exception
    if cancelled:
        raise cancelled
