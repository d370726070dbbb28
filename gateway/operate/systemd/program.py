"""Where the program lies, and what a service of the machine can see of it."""

import shutil
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

import gateway
from gateway.errors import CannotStart

HIDDEN_ROOTS = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - nothing is written there
"""What a service of the machine sees an empty folder in place of."""


def find_program() -> Path:
    """The command as it was started: the one of this environment."""
    beside = Path(sys.executable).with_name("holdfast")
    found = str(beside) if beside.is_file() else shutil.which("holdfast")
    if found is None:
        msg = "The command holdfast is not installed beside this Python, so no service can run it."
        raise CannotStart(msg)
    return Path(found).absolute()


def program_folders() -> tuple[Path, ...]:
    """All folders the program is read from."""
    source = Path(gateway.__file__).parents[1]
    return tuple(map(Path, dict.fromkeys((sys.prefix, sys.base_prefix, str(source)))))


def hidden_folders(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Those that lie where a service of the machine sees nothing; one inside another is left out."""
    covered = sorted({each for each in paths if any(map(each.is_relative_to, HIDDEN_ROOTS))})
    return tuple(
        each
        for each in covered
        if not any(each != other and each.is_relative_to(other) for other in covered)
    )


def first_private_path(paths: Iterable[Path]) -> Path | None:
    """The first of them that only its owner may read: no service under another user could."""
    for place in paths:
        mode = place.stat().st_mode
        needed = (
            stat.S_IROTH | stat.S_IXOTH
            if stat.S_ISDIR(mode) or _is_executable(mode)
            else stat.S_IROTH
        )
        if mode & needed != needed:
            return place
    return None


def _is_executable(mode: int) -> bool:
    return bool(mode & stat.S_IXUSR)
