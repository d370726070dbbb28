"""The loop's lateness."""

import asyncio
import time

from gateway.observe.loop_lag import measure_loop_lag


async def late(block: float) -> list[float]:
    """What is told while the loop is held up for so long."""
    told: list[float] = []
    heard = asyncio.Event()

    def hear(seconds: float) -> None:
        told.append(seconds)
        heard.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        feeling = group.create_task(measure_loop_lag(hear, 0.01))
        await asyncio.sleep(0)
        done = time.thread_time() + block
        while time.thread_time() < done:  # the loop of tests does not count what it did not compute
            pass
        await heard.wait()
        feeling.cancel()
    return told


async def test_a_loop_that_is_held_up_is_late_by_that() -> None:
    assert (await late(0.2))[0] >= 0.18


async def test_a_loop_that_is_not_held_up_is_told_of_too() -> None:
    assert (await late(0))[0] >= 0
