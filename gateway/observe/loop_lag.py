"""Measurement of event loop lag."""

import asyncio
from collections.abc import Callable

_INTERVAL_SECONDS = 1.0


async def measure_loop_lag(
    on_lag: Callable[[float], None], interval_seconds: float = _INTERVAL_SECONDS
) -> None:
    """Report the lag of the event loop in seconds at each interval, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + interval_seconds
        await asyncio.sleep(interval_seconds)
        on_lag(loop.time() - due)
