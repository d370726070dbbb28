"""Free disk space of the state folder."""

import asyncio
import errno
import os
from pathlib import Path

import msgspec

from sessions.values.size import format_size

READ_TIMEOUT_SECONDS = 2.0
"""Timeout for reading the free space; a disk that hangs, such as a network mount, is reported."""

_RECOVERY_FACTOR = 1.1
"""Hysteresis: a low disk has recovered at 1.1 times the limit."""


class DiskSpace(msgspec.Struct, frozen=True):
    """Free and required bytes of a folder's file system."""

    free_bytes: int
    required_bytes: int
    folder: Path

    @property
    def warning(self) -> str:
        """Warning that the disk is nearly full; empty if there is enough space."""
        if self.free_bytes >= self.required_bytes:
            return ""
        return (
            f"disk: nearly full, {self.free_text} left in {self.folder} "
            f"(gateway.disk_low is {format_size(self.required_bytes)})"
        )

    @property
    def free_text(self) -> str:
        """Free space for people, such as "1.5 GB"."""
        return format_size(self.free_bytes)

    def is_low(self, *, was_low: bool) -> bool:
        """Return True if the space is low, with hysteresis so that alerts do not flap."""
        return self.free_bytes < self.required_bytes * (_RECOVERY_FACTOR if was_low else 1)


class DiskGauge:
    """Reader of free disk space; one read at a time, because each read of a hanging disk holds a thread."""

    def __init__(self, folder: Path, required_bytes: int) -> None:
        self.folder = folder
        self._required_bytes = required_bytes
        self._pending_read: asyncio.Future[int] | None = None

    async def read(self) -> DiskSpace:
        """Return the free space; raises `OSError`, including `TimeoutError` if the disk hangs."""
        if self._pending_read is None or self._pending_read.done():
            loop = asyncio.get_running_loop()
            self._pending_read = loop.run_in_executor(None, free_bytes, self.folder)
        asked = self._pending_read
        answered, _ = await asyncio.wait({asked}, timeout=READ_TIMEOUT_SECONDS)
        if not answered:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {READ_TIMEOUT_SECONDS:g} s")
        return DiskSpace(asked.result(), self._required_bytes, self.folder)


def free_bytes(folder: Path) -> int:
    """Return the bytes that can still be written in a folder; raises `OSError`."""
    stats = os.statvfs(folder)
    return stats.f_bavail * stats.f_frsize
