"""Calls that nothing repeats by itself: tried again a few times, with pauses."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from platforms.core.errors import Unavailable, Unconfirmed


async def retry_call(call: Callable[[], Awaitable[object]], pauses: Sequence[float]) -> None:
    """Make a call that may be repeated, once more after each pause; raises the last error."""
    for pause in pauses:
        try:
            await call()
        except (Unavailable, Unconfirmed) as error:
            told = error.retry_after if isinstance(error, Unavailable) else None
            await asyncio.sleep(max(pause, told or 0.0))
        else:
            return
    await call()
