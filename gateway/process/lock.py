"""The lock that admits one daemon per state folder.

The kernel releases the lock when the process dies in any way, so a start never has to clean up a
stale lock.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from gateway.errors import CannotStart
from gateway.process.state_swap import finish_moves
from sessions.errors import StoreUnavailable

_UMASK = 0o077
_WAIT_SECONDS = 2.0
"""Time to wait for the lock: commands that change the store without a daemon hold it for a moment."""

_POLL_SECONDS = 0.05


class HeldFolder(msgspec.Struct, frozen=True):
    """A state folder whose lock this process holds."""

    home: Path
    lock: int
    """Descriptor of the locked file."""


@contextlib.contextmanager
def hold_state_folder(
    home: Path, inherited_file: int | None = None, *, store_url: str = ""
) -> Iterator[HeldFolder]:
    """Hold the lock of the state folder during the block.

    `inherited_file` is the descriptor of the previous process, still locked. Files created inside
    the block, also by tools, belong to this user alone. `store_url` is the database of the state, to
    finish an interrupted restore. Raises `CannotStart` if another daemon holds the lock.
    """
    umask = os.umask(_UMASK)
    try:
        with _hold_lock(home, inherited_file, store_url) as folder:
            yield folder
    finally:
        os.umask(umask)


@contextlib.contextmanager
def _hold_lock(home: Path, inherited_file: int | None, store_url: str) -> Iterator[HeldFolder]:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if inherited_file is not None:
            same = os.path.samestat(os.fstat(inherited_file), os.fstat(file))
            os.close(file if same else inherited_file)
            file = inherited_file if same else file
    except OSError as error:
        msg = f"The state folder {home} cannot be used: {error.strerror}."
        raise CannotStart(msg) from error
    try:
        _take_lock(home, file)
        os.truncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        finish_moves(home, partial(_has_restore_mark, store_url))
        yield HeldFolder(home, file)
    finally:
        # Closing unlocks. The file stays: after a deletion two daemons could lock two files.
        os.close(file)


def _take_lock(home: Path, file: int) -> None:
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() > until:
                raise CannotStart(_taken_message(home, file)) from error
        else:
            return
        time.sleep(_POLL_SECONDS)


def _has_restore_mark(store_url: str, mark: str) -> bool:
    from sessions.store.after_restore import has_mark  # noqa: PLC0415 - rarely needed
    from sessions.store.engine import parse_url  # noqa: PLC0415 - as above

    if not store_url:
        msg = "it needs the database; `holdfast run` knows it"
        raise StoreUnavailable(msg)
    return has_mark(parse_url(store_url), mark)


def _taken_message(home: Path, file: int) -> str:
    pid = os.pread(file, 20, 0).decode(errors="replace").strip()
    who = f"Another Holdfast (pid {pid})" if pid else "Another Holdfast"
    return (
        f"{who} is already running on {home}; stop it first, "
        "or use another state folder (HOLDFAST_HOME)."
    )


def find_lock_holder(home: Path, proc_locks: Path = Path("/proc/locks")) -> tuple[bool, str]:
    """Return whether the state folder is locked, and by which process, without taking the lock.

    Taking the lock even for a moment would turn away a daemon that starts at that moment.
    """
    try:
        lock, written = (home / "lock").stat(), (home / "lock").read_text(errors="replace").strip()
        lines = proc_locks.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False, ""
    for line in lines:
        match line.split():
            case [_, "FLOCK", _, _, process, place, *_] if _is_same_file(
                place, lock, process == written
            ):
                return True, process if process.isdigit() and process != "0" else written
            case _:
                pass
    return False, ""


def _is_same_file(device_and_inode: str, file: os.stat_result, same_process: bool) -> bool:
    """Return True if MAJOR:MINOR:INODE is `file`; some file systems number devices differently."""
    major, minor, number = device_and_inode.split(":")
    here = (int(major, 16), int(minor, 16)) == (os.major(file.st_dev), os.minor(file.st_dev))
    return number == str(file.st_ino) and (here or same_process)
