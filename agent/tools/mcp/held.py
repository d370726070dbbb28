"""Holds a context in a task of its own, so that nothing interrupts it while it is being left.

Whoever left it in its own task and was cancelled just then, a second time or while leaving for
another reason, would let go of a program that is still to be ended.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

LEAVE_SECONDS = 10.0
"""After which leaving is interrupted nevertheless."""

T = TypeVar("T")


@contextlib.asynccontextmanager
async def hold_context(
    context: AbstractAsyncContextManager[T], on_lost: Callable[[], None]
) -> AsyncIterator[T]:
    """Enter a context, and leave it with the block; being cancelled waits until it is left.

    `lost` is called when it ends by itself, as one does in which a task fails.
    """
    loop = asyncio.get_running_loop()
    inside: list[T] = []
    entered, enough = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        try:
            async with context as value:
                inside.append(value)
                entered.set()
                await enough.wait()
        finally:
            if inside and not enough.is_set():
                on_lost()
            entered.set()  # or never will be

    holder = loop.create_task(hold())
    try:
        await entered.wait()
        if inside:
            yield inside[0]
    finally:
        enough.set()
        if not inside:
            holder.cancel()
        limit = loop.call_later(LEAVE_SECONDS, holder.cancel)
        holder.add_done_callback(lambda _: limit.cancel())
        await _wait_until_done(holder)
    holder.result()


async def _wait_until_done(task: asyncio.Task[None]) -> None:
    """Wait until it has; only then be cancelled."""
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # is looked at, whatever became of the block
    if cancelled:
        raise cancelled
