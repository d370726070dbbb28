"""One daemon on one state folder: whoever holds the lock may use it.

The kernel lets go of the lock when the process dies, however it dies, so nothing is left behind
that a start would have to clean up.
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
    """Hold the state folder; gives the file that is locked.

    `handed` is that file as the process before has left it, still locked. Raises `CannotStart` when
    another daemon holds the folder.
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
        os.close(file)  # which also unlocks; the file stays, or two could hold two of one name


def _taken_message(home: Path, file: int) -> str:
    pid = os.pread(file, 20, 0).decode(errors="replace").strip()
    who = f"Another Holdfast (pid {pid})" if pid else "Another Holdfast"
    return (
        f"{who} already runs on {home}; stop it first, "
        "or give this one a folder of its own with HOLDFAST_HOME."
    )
