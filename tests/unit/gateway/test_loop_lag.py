"""Measurement of event loop lag."""

import asyncio
import time

from gateway.observe.loop_lag import measure_loop_lag


async def late(block: float) -> list[float]:
    """Return the reported lag while the loop is blocked for so many seconds."""
    told: list[float] = []
    heard = asyncio.Event()

    def hear(seconds: float) -> None:
        told.append(seconds)
        heard.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        feeling = group.create_task(measure_loop_lag(hear, 0.01))
        await asyncio.sleep(0)
        done = time.thread_time() + block
        while time.thread_time() < done:  # the tests' loop measures CPU time only
            pass
        await heard.wait()
        feeling.cancel()
    return told


async def test_blocked_loop_is_late_by_the_blocked_time() -> None:
    assert (await late(0.2))[0] >= 0.18


async def test_idle_loop_reports_a_small_lag() -> None:
    assert (await late(0))[0] >= 0
