"""Room: on the disk of the state folder, and in its table of files."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from gateway.observe.disk import Room, room
from gateway.operate.doctor.context import Case
from sessions.values.finding import Finding, fail, ok

_FEW_FILES = 100


async def disk(case: Case) -> Sequence[Finding]:
    """Compare with `gateway.disk_low`."""
    folder = _nearest(case.home)
    free, files = await asyncio.to_thread(lambda: (room(folder), _files(folder)))
    found = Room(free, case.settings.gateway.disk_low, folder)
    free_it = f"Free some room on the disk of {folder}, or move HOLDFAST_HOME to a larger one."
    if found.complaint:
        return [fail("room", found.complaint.removeprefix("disk: "), free_it)]
    if files is not None and files < _FEW_FILES:
        return [fail("room", f"the disk of {folder} takes only {files} more files", free_it)]
    return [ok("room", f"{found.left} left in {folder}")]


def _nearest(folder: Path) -> Path:
    """The folder itself, or what it will be made in."""
    return next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))


def _files(folder: Path) -> int | None:
    """How many more files there may be; None where nobody counts them."""
    found = os.statvfs(folder)
    return found.f_favail if found.f_files else None
