"""How much room is left where the daemon keeps what must survive."""

import os
from pathlib import Path

from sessions.values.size import in_words


def room(folder: Path) -> int:
    """Bytes that may still be written there; raises `OSError`."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def complaint(free: int, wanted: int, folder: Path) -> str:
    """Say that the disk is nearly full; empty when it is not."""
    if free >= wanted:
        return ""
    return f"disk: nearly full, {in_words(free)} left in {folder} (gateway.disk_low is {in_words(wanted)})"
