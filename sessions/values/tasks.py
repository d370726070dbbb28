"""Start of a task in a group that may be ending."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def start_task(
    group: asyncio.TaskGroup, work: Coroutine[Any, Any, Result], *, name: str | None = None
) -> asyncio.Task[Result] | None:
    """Start a task in a group; return None if the group is ending and accepts no more tasks.

    A group refuses tasks as soon as one of its tasks has failed. Then `work` is closed, because a
    coroutine that is never awaited leaves a warning.
    """
    try:
        return group.create_task(work, name=name)
    except RuntimeError:
        work.close()
        return None
