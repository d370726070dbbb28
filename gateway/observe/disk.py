"""How much room is left where the daemon keeps what must survive."""

import asyncio
import errno
import os
from pathlib import Path

import msgspec

from sessions.values.size import in_words

PATIENCE = 2.0
"""Seconds in which a disk must say how full it is: one that hangs, as over a network, is named."""

_MORE = 1.1
"""By how much more than is wanted must be left until a disk that was low counts as well again."""


class Room(msgspec.Struct, frozen=True):
    """How much is left, and how much there should be."""

    free: int
    wanted: int
    folder: Path

    @property
    def complaint(self) -> str:
        """Say that the disk is nearly full; empty when it is not."""
        if self.free >= self.wanted:
            return ""
        return (
            f"disk: nearly full, {self.left} left in {self.folder} "
            f"(gateway.disk_low is {in_words(self.wanted)})"
        )

    @property
    def left(self) -> str:
        """How much is left, for people."""
        return in_words(self.free)

    def is_low(self, *, before: bool) -> bool:
        """Whether there is too little; what is said once does not change with every byte."""
        return self.free < self.wanted * (_MORE if before else 1)


class Gauge:
    """Asks a disk, never twice at the same time: one that hangs would hold a thread for each."""

    def __init__(self, folder: Path, wanted: int) -> None:
        self.folder = folder
        self._wanted = wanted
        self._asked: asyncio.Future[int] | None = None

    async def read(self) -> Room:
        """Give how it stands; raises `OSError`, also when the disk does not say."""
        if self._asked is None or self._asked.done():
            loop = asyncio.get_running_loop()
            self._asked = loop.run_in_executor(None, room, self.folder)
        asked = self._asked
        answered, _ = await asyncio.wait({asked}, timeout=PATIENCE)
        if not answered:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {PATIENCE:g} s")
        return Room(asked.result(), self._wanted, self.folder)


def room(folder: Path) -> int:
    """Bytes that may still be written there; raises `OSError`."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
