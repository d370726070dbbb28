"""The paths of the program, and which of them the machine's service can read."""

import shutil
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

import gateway
from gateway.errors import CannotStart

_HIDDEN_ROOTS = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - only compared
"""Folders that appear empty to the machine's service."""


def find_program() -> Path:
    """Return the absolute path of this environment's `holdfast` command."""
    same_environment = Path(sys.executable).with_name("holdfast")
    found = str(same_environment) if same_environment.is_file() else shutil.which("holdfast")
    if found is None:
        msg = (
            "No service can run Holdfast: the command holdfast is not installed beside this Python."
        )
        raise CannotStart(msg)
    return Path(found).absolute()


def program_folders() -> tuple[Path, ...]:
    """Return all folders from which the program is loaded."""
    source = Path(gateway.__file__).parents[1]
    return tuple(map(Path, dict.fromkeys((sys.prefix, sys.base_prefix, str(source)))))


def hidden_folders(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths below `HIDDEN_ROOTS`, without those inside another returned path."""
    covered = sorted({path for path in paths if any(map(path.is_relative_to, _HIDDEN_ROOTS))})
    return tuple(
        path
        for path in covered
        if not any(path != other and path.is_relative_to(other) for other in covered)
    )


def first_private_path(paths: Iterable[Path]) -> Path | None:
    """Return the first path that other users cannot read; None if all are readable."""
    for path in paths:
        mode = path.stat().st_mode
        needed = (
            stat.S_IROTH | stat.S_IXOTH
            if stat.S_ISDIR(mode) or _is_executable(mode)
            else stat.S_IROTH
        )
        if mode & needed != needed:
            return path
    return None


def _is_executable(mode: int) -> bool:
    return bool(mode & stat.S_IXUSR)
