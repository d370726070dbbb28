"""Removes old and unfinished received files; blocking.

Only folders with the marker file are cleaned. They are opened by descriptor and links are not
followed, because tools and people work in the same workspace.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.tools.confine import TEMPORARY_PREFIX
from agent.tools.received import MARKER_FILE
from sessions.values.file_names import MESSAGE_FOLDER_PATTERN, RECEIVED_FOLDER

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_old_files(workspace: Path, *, older_than: float | None, unfinished_before: float) -> int:
    """Remove old files and the folders that become empty; return the number of removed files.

    Complete files are removed if last changed before `older_than` (None: never), partial files if
    last written before `unfinished_before`. Times are seconds since 1970.
    """
    removed = 0
    with contextlib.suppress(OSError), _open_folder(workspace / RECEIVED_FOLDER) as top:
        os.stat(MARKER_FILE, dir_fd=top, follow_symlinks=False)
        for name in os.listdir(top):  # noqa: PTH208 - a descriptor
            if MESSAGE_FOLDER_PATTERN.fullmatch(name):
                with contextlib.suppress(OSError):
                    removed += _clear_message_folder(top, name, older_than, unfinished_before)
    return removed


def _clear_message_folder(
    top: int, name: str, older_than: float | None, unfinished_before: float
) -> int:
    removed = 0
    with _open_folder(name, top) as folder:
        used = os.fstat(folder).st_mtime
        for entry in os.listdir(folder):  # noqa: PTH208 - a descriptor
            state = os.stat(entry, dir_fd=folder, follow_symlinks=False)
            limit = unfinished_before if entry.startswith(TEMPORARY_PREFIX) else older_than
            if limit is not None and state.st_mtime < limit and not stat.S_ISDIR(state.st_mode):
                os.unlink(entry, dir_fd=folder)
                removed += 1
    if removed or used < unfinished_before:  # a new empty folder may be in use
        with contextlib.suppress(OSError):  # not empty
            os.rmdir(name, dir_fd=top)
    return removed


@contextmanager
def _open_folder(path: Path | str, dir_fd: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _FOLDER_FLAGS, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
