"""Feels the pulse of the event loop: how late it is with what was to happen now."""

import asyncio
from collections.abc import Callable

PAUSE = 1.0


async def feel(late: Callable[[float], None], pause: float = PAUSE) -> None:
    """Tell every so often by how many seconds the loop was late; until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + pause
        await asyncio.sleep(pause)
        late(loop.time() - due)
