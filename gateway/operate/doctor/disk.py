"""Room: on the disk of the state folder, and in its table of files."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from gateway.observe.disk import DiskSpace, free_bytes
from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, fail, ok

_MIN_FREE_FILES = 100


async def check_disk(context: DoctorContext) -> Sequence[Finding]:
    """Compare with `gateway.disk_low`."""
    folder = _nearest_existing(context.home)
    free, files = await asyncio.to_thread(lambda: (free_bytes(folder), _free_files(folder)))
    found = DiskSpace(free, context.settings.gateway.disk_low, folder)
    free_it = f"Free some room on the disk of {folder}, or move HOLDFAST_HOME to a larger one."
    if found.warning:
        return [fail("room", found.warning.removeprefix("disk: "), free_it)]
    if files is not None and files < _MIN_FREE_FILES:
        return [fail("room", f"the disk of {folder} takes only {files} more files", free_it)]
    return [ok("room", f"{found.free_text} left in {folder}")]


def _nearest_existing(folder: Path) -> Path:
    """The folder itself, or what it will be made in."""
    return next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))


def _free_files(folder: Path) -> int | None:
    """How many more files there may be; None where nobody counts them."""
    found = os.statvfs(folder)
    return found.f_favail if found.f_files else None
