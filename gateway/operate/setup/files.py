"""Writes several small files: each at once as a whole, and all of them or none."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextlib.contextmanager
def block_signals() -> Iterator[None]:
    """Have Ctrl-C and its like wait until the block is left."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


class _Original(Struct, frozen=True):
    """What was there."""

    path: Path
    data: bytes | None
    mode: int = 0


class FileTransaction:
    """Inside of its block files are put; left by an error, everything is as it was."""

    def __init__(self) -> None:
        self._originals: list[_Original] = []
        self._created_folders: list[Path] = []  # folders

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is not None:
            self._roll_back()

    def make_folder(self, path: Path, mode: int) -> None:
        """Have a folder."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=mode)
            self._created_folders.append(each)

    def write(self, path: Path, data: bytes, mode: int) -> None:
        """Write a file; whose name it takes keeps its rights and its owner."""
        before = _read_original(path)
        with self.temporary_file(path, data, before.mode or mode) as written:
            self._originals.append(before)
            written.replace(path)
        _sync_folder(path.parent)

    @contextlib.contextmanager
    def temporary_file(self, path: Path, data: bytes, mode: int) -> Iterator[Path]:
        """Have a file in the same folder; it is gone when the block is left."""
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        written = Path(name)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                os.fchmod(number, mode)
                _copy_owner(number, path)
                file.flush()
                os.fsync(number)
            yield written
        finally:
            written.unlink(missing_ok=True)

    def _roll_back(self) -> None:
        while self._originals:
            before = self._originals.pop()
            if before.data is None:
                before.path.unlink(missing_ok=True)
            else:
                with self.temporary_file(before.path, before.data, before.mode) as written:
                    written.replace(before.path)
        for folder in reversed(self._created_folders):
            with contextlib.suppress(OSError):  # somebody else has put something there
                folder.rmdir()


def _read_original(path: Path) -> _Original:
    try:
        return _Original(path, path.read_bytes(), path.stat().st_mode & 0o777)
    except FileNotFoundError:
        return _Original(path, None)


def _copy_owner(number: int, path: Path) -> None:
    """Whoever owned the file before goes on owning it; only root can see to that."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        was = path.stat()
        os.fchown(number, was.st_uid, was.st_gid)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
