"""Removes what people attached once it is old, and what was left half-way; blocks.

It looks only into folders that this daemon made and marked, goes through them by their
descriptors, and follows no link: tools and people work in the same workspace.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.tools.confine import TEMPORARY
from gateway.media.incoming import FOLDER, OF_A_MESSAGE

MARK = f"{TEMPORARY}received"
"""The name of the empty file by which a folder of received files is known to be ours."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def clear(workspace: Path, *, before: float | None, begun: float) -> int:
    """Remove files that were last changed before a moment, and folders that become empty by it.

    What was last written before `begun` and is not whole is not being fetched any more. Moments are
    seconds since 1970; without `before` everything that is whole is kept. Tells how many files
    were removed.
    """
    removed = 0
    with contextlib.suppress(OSError), _opened(workspace / FOLDER) as top:
        os.stat(MARK, dir_fd=top, follow_symlinks=False)
        for name in os.listdir(top):  # noqa: PTH208 - a descriptor
            if OF_A_MESSAGE.fullmatch(name):
                with contextlib.suppress(OSError):
                    removed += _clear_one(top, name, before, begun)
    return removed


def _clear_one(top: int, name: str, before: float | None, begun: float) -> int:
    removed = 0
    with _opened(name, top) as folder:
        used = os.fstat(folder).st_mtime
        for entry in os.listdir(folder):  # noqa: PTH208 - a descriptor
            state = os.stat(entry, dir_fd=folder, follow_symlinks=False)
            limit = begun if entry.startswith(TEMPORARY) else before
            if limit is not None and state.st_mtime < limit and not stat.S_ISDIR(state.st_mode):
                os.unlink(entry, dir_fd=folder)
                removed += 1
    if removed or used < begun:  # a new one that is empty may be about to be filled
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(name, dir_fd=top)
    return removed


@contextmanager
def _opened(path: Path | str, within: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _FOLDER, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
