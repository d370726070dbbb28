"""Retries of idempotent calls that no other layer repeats.

Ops are never repeated here: the delivery of the core decides about them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from platforms.core.errors import Unavailable, Unconfirmed


async def retry_call(call: Callable[[], Awaitable[object]], pauses: Sequence[float]) -> None:
    """Make an idempotent call, with one retry after each pause; raises the last error.

    A longer wait that the platform asks for replaces the pause.
    """
    for pause in pauses:
        try:
            await call()
        except (Unavailable, Unconfirmed) as error:
            retry_after = error.retry_after if isinstance(error, Unavailable) else None
            await asyncio.sleep(max(pause, retry_after or 0.0))
        else:
            return
    await call()
