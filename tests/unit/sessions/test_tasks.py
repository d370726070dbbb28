"""Starting tasks in groups that are open, ending or over."""

import asyncio
import contextlib
import gc

from sessions.values.tasks import start_task


async def answer() -> int:
    return 42


async def fail() -> None:
    raise ValueError


async def test_a_task_starts_in_an_open_group_under_its_name() -> None:
    async with asyncio.TaskGroup() as group:
        task = start_task(group, answer(), name="the answer")
    assert task
    assert (task.get_name(), task.result()) == ("the answer", 42)


async def test_a_group_that_is_over_takes_no_task_and_leaves_no_coroutine_behind() -> None:
    async with asyncio.TaskGroup() as group:
        pass
    assert start_task(group, answer()) is None
    gc.collect()  # a coroutine that is never awaited would be reported here


async def test_a_group_whose_task_has_failed_takes_no_task() -> None:
    started: list[asyncio.Task[int] | None] = []
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            failing = group.create_task(fail())
            # The group adds its own callback first, so it is ending by then.
            failing.add_done_callback(lambda _: started.append(start_task(group, answer())))
    assert started == [None]
    gc.collect()
