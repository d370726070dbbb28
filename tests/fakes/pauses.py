"""The pause after a 429, which a client has to keep."""

import asyncio
import time


class Pause:
    """Over when the loop's clock says so, or the machine's.

    The loop's clock may stand still while other processes have the processor, and a client in a
    process of its own then waits by the machine's. It may also run ahead, with the client in it.
    """

    def __init__(self, seconds: float = 0.0, on_the_way: float = 0.0) -> None:
        self._began = asyncio.get_running_loop().time(), time.monotonic()
        self._seconds = seconds
        self._on_the_way = on_the_way  # calls of so many seconds are no violation

    def left(self) -> float:
        """Seconds that are left; 0 while a call may have been on its way."""
        now = asyncio.get_running_loop().time(), time.monotonic()
        passed = max(at - began for at, began in zip(now, self._began, strict=True))
        return self._seconds - passed if passed >= self._on_the_way else 0.0
