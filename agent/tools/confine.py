"""File access confined to the workspace.

The kernel resolves each path beneath the workspace (`openat2` with `RESOLVE_BENEATH`). So neither
`..` nor a link leads outside, even if folders are swapped during the lookup. On systems without
`openat2` the path is opened component by component, and links are not followed at all. An opened
file is used only through the descriptor, never again through the path.

All functions block; tools call them in a thread.
"""

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import platform
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from agent.errors import ToolError

Opener = Callable[[int, str, int], int]
"""Opens a path beneath a folder, given as a descriptor, with the flags of `os.open`.

Raises `OSError`.
"""

TEMPORARY_PREFIX = ".holdfast-"
"""Prefix of temporary files; listings and searches hide them."""

_OPENAT2 = 437  # the same number on all machines that `choose_opener` accepts
_NO_MAGIC_LINKS, _BENEATH = 0x02, 0x08
_MAX_TRIES = 32  # the kernel aborts a lookup with EAGAIN when folders are moved during it
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STEP_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_PATH_BYTES = 4096
_MAX_NAME_BYTES = 255

_REASONS = {
    errno.ENOENT: "There is no {path!r} in the workspace.",
    errno.EXDEV: "{path!r} leads out of the workspace.",
    errno.ELOOP: "{path!r} leads through a link; links are not followed here.",
    errno.ENOTDIR: "{path!r}: a part of it is not a folder.",
    errno.EISDIR: "{path!r} is a folder.",
    errno.ENXIO: "{path!r} is not a regular file.",
    errno.EAGAIN: "{path!r} is being changed right now. Try again.",
    errno.ENOSPC: "The disk is full.",
    errno.EDQUOT: "The disk is full.",
}


@functools.cache
def _syscall() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open a path with `openat2`; the kernel rejects a path that leaves the folder."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS | _BENEATH)
    target = (ctypes.c_long(_OPENAT2), ctypes.c_int(folder), ctypes.c_char_p(os.fsencode(path)))
    options = (ctypes.c_char_p(how), ctypes.c_size_t(len(how)))
    code = 0
    for _ in range(_MAX_TRIES):
        opened = _syscall()(*target, *options)
        if opened >= 0:
            return opened
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


def open_by_steps(folder: int, path: str, flags: int) -> int:
    """Open a path component by component; a symbolic link is an error."""
    *steps, last = PurePosixPath(path).parts or (".",)
    at = os.dup(folder)
    try:
        for step in steps:
            beneath = os.open(step, _STEP_FLAGS, dir_fd=at)
            os.close(at)
            at = beneath
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


@functools.cache
def choose_opener() -> Opener:
    """Return `open_beneath` if this system supports `openat2`, else `open_by_steps`."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return open_by_steps
    try:
        os.close(open_beneath(-100, ".", _STEP_FLAGS))  # -100 is AT_FDCWD
    except OSError:  # an older kernel, or a seccomp filter
        return open_by_steps
    return open_beneath


def relative_path(root: Path, path: str) -> str:
    """Return a path relative to the workspace; raises `ToolError` for a path that leads outside."""
    if "\0" in path:
        msg = "A path cannot contain a NUL character."
        raise ToolError(msg)
    parts = PurePosixPath(path)
    if parts.is_absolute():
        roots = (root.absolute(), root.resolve())
        inside = next((base for base in roots if parts.is_relative_to(base)), None)
        if inside is None:
            raise ToolError(_REASONS[errno.EXDEV].format(path=_shorten(path)))
        parts = parts.relative_to(inside)
    if ".." in parts.parts:
        msg = (
            f"{_shorten(path)!r}: a path must not contain '..'; use a path from the workspace root."
        )
        raise ToolError(msg)
    name = str(parts)
    try:
        encoded = [os.fsencode(part) for part in (name, *parts.parts)]
    except UnicodeEncodeError:
        msg = "The path contains an unpaired surrogate."
        raise ToolError(msg) from None
    if len(encoded[0]) >= _MAX_PATH_BYTES or any(
        len(part) > _MAX_NAME_BYTES for part in encoded[1:]
    ):
        msg = f"{_shorten(path)!r} is too long for a path."
        raise ToolError(msg)
    return name


def _shorten(path: str) -> str:
    return path if len(path) <= _MAX_NAME_BYTES else f"{path[:_MAX_NAME_BYTES]}…"


class Workspace:
    """The open workspace folder; see `open_workspace`."""

    def __init__(self, root: Path, descriptor: int, opener: Opener) -> None:
        self._root = root
        self._descriptor = descriptor
        self._opener = opener

    def relative_name(self, path: str) -> str:
        """Return the path relative to the workspace root."""
        return relative_path(self._root, path)

    def open(self, path: str) -> int:
        """Open a regular file or a folder for reading; the caller closes the descriptor."""
        with _translate_os_errors(path):
            descriptor = self._opener(self._descriptor, self.relative_name(path), _FILE_FLAGS)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            return descriptor
        os.close(descriptor)
        raise ToolError(_REASONS[errno.ENXIO].format(path=_shorten(path)))

    def read(self, path: str, max_bytes: int) -> tuple[bytes, os.stat_result]:
        """Read a file of at most `max_bytes`; return its content and state."""
        descriptor = self.open(path)
        state = os.fstat(descriptor)
        if stat.S_ISDIR(state.st_mode):
            os.close(descriptor)
            raise ToolError(_REASONS[errno.EISDIR].format(path=_shorten(path)))
        with open(descriptor, "rb") as file, _translate_os_errors(path):  # noqa: PTH123 - a descriptor
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            msg = (
                f"{_shorten(path)!r} has {state.st_size:,} bytes; the limit is {max_bytes:,} bytes."
            )
            raise ToolError(msg)
        return content, state

    def write(
        self,
        path: str,
        content: bytes,
        token: str,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
        expected_state: os.stat_result | None = None,
    ) -> bool:
        """Write a file atomically; return True if a file was replaced.

        A failed or cancelled write leaves nothing behind. `token` must be unique to this write.
        With `expected_state` the write replaces only a file that is unchanged since that state.
        """
        name = PurePosixPath(self.relative_name(path))
        if path.endswith("/") or not name.name:
            raise ToolError(_REASONS[errno.EISDIR].format(path=_shorten(path)))
        with _translate_os_errors(path):
            folder = self._open_or_create_folder(name.parent)
            try:
                old = _target_state(folder, name.name, path)
                if expected_state is not None and (
                    old is None or _fingerprint(old) != _fingerprint(expected_state)
                ):
                    msg = f"{_shorten(path)!r} has changed since it was read. Read it again."
                    raise ToolError(msg)
                _write_and_rename(folder, name.name, content, token, is_cancelled, old)
            finally:
                os.close(folder)
        return old is not None

    def receive(self, path: str, token: str) -> "IncomingFile":
        """Start a file that arrives in pieces and appears at the path only when complete.

        The temporary file of an earlier attempt with the same token is removed, so two transfers
        must not share a token.
        """
        name = PurePosixPath(self.relative_name(path))
        with _translate_os_errors(path):
            folder = self._open_or_create_folder(name.parent)
            with contextlib.ExitStack() as on_failure:
                on_failure.callback(os.close, folder)
                _target_state(folder, name.name, path)
                temporary = _temporary_name(token)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                descriptor = os.open(temporary, _NEW_FILE_FLAGS, 0o666, dir_fd=folder)
                on_failure.pop_all()
        return IncomingFile(path, folder, temporary, descriptor)

    def make_marked_folder(self, name: str, mark: str) -> None:
        """Create a missing folder in the workspace root, containing an empty file `mark`."""
        with _translate_os_errors(name), contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._descriptor)
            folder = self._opener(self._descriptor, name, _FOLDER_FLAGS)
            try:
                os.close(os.open(mark, _NEW_FILE_FLAGS, 0o666, dir_fd=folder))
            finally:
                os.close(folder)

    def read_beginning(self, path: str, max_bytes: int) -> bytes:
        """Read the first bytes of a file."""
        descriptor = self.open(path)
        with open(descriptor, "rb") as file, _translate_os_errors(path):  # noqa: PTH123 - a descriptor
            return file.read(max_bytes)

    def file_size(self, path: str) -> int | None:
        """Return the size of a regular file in bytes; None if there is none."""
        try:
            descriptor = self._opener(self._descriptor, self.relative_name(path), _FILE_FLAGS)
        except OSError:
            return None
        state = os.fstat(descriptor)
        os.close(descriptor)
        return state.st_size if stat.S_ISREG(state.st_mode) else None

    def free_bytes(self) -> int:
        """Return the free disk space in bytes."""
        state = os.fstatvfs(self._descriptor)
        return state.f_bavail * state.f_frsize

    def _open_or_create_folder(self, name: PurePosixPath) -> int:
        """Open a folder; create missing folders on the path."""
        with contextlib.suppress(FileNotFoundError):
            return self._opener(self._descriptor, str(name), _FOLDER_FLAGS)
        parent = self._open_or_create_folder(name.parent)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name.name, dir_fd=parent)
            os.fsync(parent)
        finally:
            os.close(parent)
        return self._opener(self._descriptor, str(name), _FOLDER_FLAGS)


class IncomingFile:
    """A file that is being received into the workspace; see `Workspace.receive`."""

    def __init__(self, path: str, folder: int, temporary: str, descriptor: int) -> None:
        self._path = path
        self._folder = folder
        self._temporary = temporary
        self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 - a descriptor

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        with _translate_os_errors(self._path):
            rest = memoryview(piece)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]

    def restart(self) -> None:
        """Drop the received pieces, because the transfer starts over."""
        self._file.seek(0)
        self._file.truncate()

    def finish(self) -> None:
        """Move the complete file to its path, atomically and durably."""
        name = PurePosixPath(self._path).name
        with _translate_os_errors(self._path):
            os.fsync(self._file.fileno())
            _target_state(self._folder, name, self._path)
            os.rename(self._temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._temporary = ""
            os.fsync(self._folder)

    def close(self) -> None:
        """Close the file; remove the temporary file unless `finish` has succeeded."""
        if self._file.closed:
            return
        if self._temporary:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._folder)
        self._file.close()
        os.close(self._folder)


@contextmanager
def open_workspace(
    root: Path, *, create: bool = False, opener: Opener | None = None
) -> Iterator[Workspace]:
    """Open the workspace; create a missing one with `create`, else raise `ToolError`."""
    try:
        if create:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(root, _FOLDER_FLAGS)
    except FileNotFoundError:
        msg = "The workspace is still empty."
        raise ToolError(msg) from None
    except OSError as error:
        msg = f"The workspace cannot be opened: {error.strerror}."
        raise ToolError(msg) from None
    try:
        yield Workspace(root, descriptor, opener or choose_opener())
    finally:
        os.close(descriptor)


@contextmanager
def _translate_os_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, "{path!r}: {error}.")
        raise ToolError(reason.format(path=_shorten(path), error=error.strerror)) from None


def _fingerprint(state: os.stat_result) -> tuple[int, ...]:
    return (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)


def _target_state(folder: int, name: str, path: str) -> os.stat_result | None:
    """Return the state of the file at a target path; None if there is none.

    Raises `ToolError` for anything but a regular file, which must not be replaced.
    """
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(state.st_mode):
        msg = f"{_shorten(path)!r} is a link; files cannot be written through links."
        raise ToolError(msg)
    if not stat.S_ISREG(state.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(state.st_mode) else errno.ENXIO
        raise ToolError(_REASONS[code].format(path=_shorten(path)))
    return state


def _write_and_rename(
    folder: int,
    name: str,
    content: bytes,
    token: str,
    is_cancelled: Callable[[], bool],
    old: os.stat_result | None,
) -> None:
    temporary, descriptor = _create_temporary(folder, token)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(os.unlink, temporary, dir_fd=folder)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            if old is not None:
                _copy_owner_and_mode(descriptor, old)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        if is_cancelled():
            msg = "Nothing was written: the call was stopped."
            raise ToolError(msg)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        on_failure.pop_all()
    os.fsync(folder)


def _temporary_name(token: str, number: int = 0) -> str:
    mark = hashlib.sha256(f"{token}\0{number}".encode()).hexdigest()[:16]
    return f"{TEMPORARY_PREFIX}{mark}.tmp"


def _create_temporary(folder: int, token: str) -> tuple[str, int]:
    """Create a new temporary file; skip names left behind by a crash."""
    number = 0
    while True:
        name = _temporary_name(token, number)
        try:
            return name, os.open(name, _NEW_FILE_FLAGS, 0o666, dir_fd=folder)
        except FileExistsError:
            number += 1


def _copy_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    """Copy owner and mode of the replaced file to the new one."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
