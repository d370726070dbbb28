"""How much room is left where the daemon keeps what must survive."""

import asyncio
import errno
import os
from pathlib import Path

import msgspec

from sessions.values.size import format_size

READ_TIMEOUT_SECONDS = 2.0
"""Seconds in which a disk must say how full it is: one that hangs, as over a network, is named."""

_RECOVERY_FACTOR = 1.1
"""By how much more than is wanted must be left until a disk that was low counts as well again."""


class DiskSpace(msgspec.Struct, frozen=True):
    """How much is left, and how much there should be."""

    free_bytes: int
    required_bytes: int
    folder: Path

    @property
    def warning(self) -> str:
        """Say that the disk is nearly full; empty when it is not."""
        if self.free_bytes >= self.required_bytes:
            return ""
        return (
            f"disk: nearly full, {self.free_text} left in {self.folder} "
            f"(gateway.disk_low is {format_size(self.required_bytes)})"
        )

    @property
    def free_text(self) -> str:
        """How much is left, for people."""
        return format_size(self.free_bytes)

    def is_low(self, *, was_low: bool) -> bool:
        """Whether there is too little; what is said once does not change with every byte."""
        return self.free_bytes < self.required_bytes * (_RECOVERY_FACTOR if was_low else 1)


class DiskGauge:
    """Asks a disk, never twice at the same time: one that hangs would hold a thread for each."""

    def __init__(self, folder: Path, required_bytes: int) -> None:
        self.folder = folder
        self._required_bytes = required_bytes
        self._pending_read: asyncio.Future[int] | None = None

    async def read(self) -> DiskSpace:
        """Give how it stands; raises `OSError`, also when the disk does not say."""
        if self._pending_read is None or self._pending_read.done():
            loop = asyncio.get_running_loop()
            self._pending_read = loop.run_in_executor(None, free_bytes, self.folder)
        asked = self._pending_read
        answered, _ = await asyncio.wait({asked}, timeout=READ_TIMEOUT_SECONDS)
        if not answered:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {READ_TIMEOUT_SECONDS:g} s")
        return DiskSpace(asked.result(), self._required_bytes, self.folder)


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written there; raises `OSError`."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
