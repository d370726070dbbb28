"""The lock that admits one daemon per state folder.

The kernel releases the lock when the process dies in any way, so a start never has to clean up a
stale lock.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import CannotStart
from gateway.process.state_swap import finish_moves


@contextlib.contextmanager
def hold_state_folder(home: Path, inherited_file: int | None = None) -> Iterator[int]:
    """Hold the lock of the state folder; yields the locked file descriptor.

    `inherited_file` is the descriptor of the previous process, still locked. Raises `CannotStart`
    if another daemon holds the lock.
    """
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
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CannotStart(_taken_message(home, file)) from error
        os.truncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        finish_moves(home)
        yield file
    finally:
        # Closing unlocks. The file stays: after a deletion two daemons could lock two files.
        os.close(file)


def _taken_message(home: Path, file: int) -> str:
    pid = os.pread(file, 20, 0).decode(errors="replace").strip()
    who = f"Another Holdfast (pid {pid})" if pid else "Another Holdfast"
    return (
        f"{who} is already running on {home}; stop it first, "
        "or set HOLDFAST_HOME to another folder for this one."
    )
