"""Writes several small files atomically, and all of them or none."""

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
    """Delay Ctrl-C and similar signals until the end of the block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


class _Original(Struct, frozen=True):
    """State of a file before the transaction."""

    path: Path
    data: bytes | None
    mode: int = 0


class FileTransaction:
    """Transaction over files: leaving the block with an error restores every file."""

    def __init__(self) -> None:
        self._originals: list[_Original] = []
        self._created_folders: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is not None:
            self._roll_back()

    def make_folder(self, path: Path, mode: int) -> None:
        """Create a folder and all missing parents."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=mode)
            self._created_folders.append(folder)

    def write(self, path: Path, data: bytes, mode: int) -> None:
        """Write a file; an existing file keeps mode and owner."""
        before = _read_original(path)
        with self.temporary_file(path, data, before.mode or mode) as written:
            self._originals.append(before)
            written.replace(path)
        _sync_folder(path.parent)

    @contextlib.contextmanager
    def temporary_file(self, path: Path, data: bytes, mode: int) -> Iterator[Path]:
        """Yield a temporary file in the folder of `path`, deleted at the end of the block."""
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        written = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(descriptor, mode)
                _copy_owner(descriptor, path)
                file.flush()
                os.fsync(descriptor)
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
            with contextlib.suppress(OSError):  # no longer empty
                folder.rmdir()


def _read_original(path: Path) -> _Original:
    try:
        return _Original(path, path.read_bytes(), path.stat().st_mode & 0o777)
    except FileNotFoundError:
        return _Original(path, None)


def _copy_owner(descriptor: int, path: Path) -> None:
    """Keep the owner of an existing file, which only root can change."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        state = path.stat()
        os.fchown(descriptor, state.st_uid, state.st_gid)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
