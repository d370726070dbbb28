"""Free space and free inodes on the disk of the state folder."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from gateway.observe.disk import DiskSpace, free_bytes
from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, fail, ok

_MIN_FREE_FILES = 100


async def check_disk(context: DoctorContext) -> Sequence[Finding]:
    """Compare the free space with `gateway.disk_low`."""
    folder = _nearest_existing(context.home)
    free, files = await asyncio.to_thread(lambda: (free_bytes(folder), _free_files(folder)))
    found = DiskSpace(free, context.settings.gateway.disk_low, folder)
    fix = f"Free some space on the disk of {folder}, or move HOLDFAST_HOME to a larger disk."
    if found.warning:
        return [fail("room", found.warning.removeprefix("disk: "), fix)]
    if files is not None and files < _MIN_FREE_FILES:
        return [fail("room", f"the disk of {folder} has room for only {files} more files", fix)]
    return [ok("room", f"{found.free_text} free in {folder}")]


def _nearest_existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing parent."""
    return next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))


def _free_files(folder: Path) -> int | None:
    """Return the number of free inodes; None if the file system does not count them."""
    found = os.statvfs(folder)
    return found.f_favail if found.f_files else None
