"""Work before the gateway is ready, which a stop signal ends at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.errors import HoldfastError
from sessions.values.exceptions import first_error

Result = TypeVar("Result")


async def run_unless_stopped(
    work: Coroutine[Any, Any, Result], stopping: asyncio.Event
) -> Result | None:
    """Return the result of `work`; cancel `work` and return None if `stopping` is set first.

    Errors of `work` are raised as they are, without an exception group.
    """
    try:
        async with asyncio.TaskGroup() as both:
            working = both.create_task(work, name="start")
            stopped = both.create_task(stopping.wait(), name="stop during the start")
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            stopped.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group, prefer=HoldfastError) from None
    return None if working.cancelled() else working.result()
