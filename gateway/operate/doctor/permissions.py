"""File permissions of the state folder and the stored secrets."""

import asyncio
import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.config import credentials
from gateway.operate.doctor.context import DoctorContext
from gateway.process.control_socket import socket_path
from sessions.values.finding import Finding, fail, ok, warn

PERMISSIONS_FIX = "modes"
_OTHERS_MASK = 0o077
_PRIVATE_NAMES = ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "api_key", "lock")


async def check_permissions(context: DoctorContext) -> Sequence[Finding]:
    """Check the state folder; loading checks the configuration file."""
    return await asyncio.to_thread(lambda: [*_findings(context)])


def _findings(context: DoctorContext) -> Iterator[Finding]:
    home = context.home
    try:
        folder = home.stat()
    except FileNotFoundError:
        yield ok("state folder", f"{home} is created at the first start")
        return
    except OSError as error:
        yield fail(
            "state folder",
            f"{home} cannot be read: {error.strerror}",
            "Run this as the user who runs Holdfast.",
        )
        return
    if not stat.S_ISDIR(folder.st_mode):
        yield fail(
            "state folder",
            f"{home} is not a folder",
            "Move it away, or set HOLDFAST_HOME to a folder.",
        )
        return
    open_ones = [
        path
        for path in (*_private_paths(context), *_secret_paths(context))
        if _is_open_to_others(path)
    ]
    foreign_paths = [
        path for path in _private_paths(context) if path.lstat().st_uid != folder.st_uid
    ]
    for path in open_ones:
        mode = stat.S_IMODE(path.stat().st_mode)
        yield warn(
            "modes",
            f"{path} is accessible to other users (mode {mode:04o})",
            f"Run `chmod {_private_mode(path):o} {path}`, or `holdfast doctor --fix`.",
            mend=PERMISSIONS_FIX,
        )
    if foreign_paths:
        owner = _user_name(folder.st_uid)
        yield fail(
            "owner",
            f"{', '.join(path.name for path in foreign_paths)} in {home} do not belong to {owner}, "
            "the owner of the folder",
            f"Run `chown -R {owner} {home}` as root, and start Holdfast only as {owner}.",
        )
    if not os.access(home, os.W_OK | os.X_OK):
        yield fail(
            "state folder",
            f"{_user_name(os.geteuid())} cannot write to {home}",
            f"Run this as {_user_name(folder.st_uid)}, or make the folder writable.",
        )
    if not open_ones and not foreign_paths:
        yield ok("modes", f"only {_user_name(folder.st_uid)} has access to {home}")


def fix_permissions(context: DoctorContext) -> Iterator[tuple[bool, str]]:
    """Remove the access of other users; yield the result for each path."""
    paths = [
        path
        for path in (*_private_paths(context), *_secret_paths(context))
        if _is_open_to_others(path)
    ]
    for path in paths:
        yield _change_mode(path, _private_mode(path))
    if (
        context.config_path
        and context.loaded
        and any("chmod 600" in warning for warning in context.loaded.warnings)
    ):
        yield _change_mode(context.config_path, *_config_mode(context.config_path))


def _change_mode(path: Path, mode: int, remark: str = "") -> tuple[bool, str]:
    try:
        path.chmod(mode)
    except OSError as error:
        return False, f"{path} could not be changed: {error.strerror}"
    return True, f"{path} now has mode {mode:04o}{remark}"


def _config_mode(path: Path) -> tuple[int, str]:
    """Return the new mode of a configuration file; a group chosen on purpose keeps access."""
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode) & ~_OTHERS_MASK
    if found.st_mode & stat.S_IRGRP and found.st_gid != _primary_group(found.st_uid):
        group = _group_name(found.st_gid)
        remark = f"; the group {group} may still read it (chmod 600 revokes that)"
        return mode | stat.S_IRGRP, remark
    return mode, ""


def _private_paths(context: DoctorContext) -> Iterator[Path]:
    paths = [context.home, *(context.home / name for name in _PRIVATE_NAMES)]
    for path in (*paths, socket_path(context.home, context.environ)):
        if path.exists() and not path.is_symlink():
            yield path


def _secret_paths(context: DoctorContext) -> Iterator[Path]:
    """Yield the credentials folder and the files in it; systemd protects its own copies."""
    places = {name: value for name, value in context.environ.items() if name == "HOME"}
    folder = credentials.find_folder(places)
    if folder is None:
        return
    yield folder
    with contextlib.suppress(OSError):
        yield from sorted(path for path in folder.iterdir() if path.is_file())


def _is_open_to_others(path: Path) -> bool:
    return bool(path.stat().st_mode & _OTHERS_MASK)


def _private_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) & ~_OTHERS_MASK


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _primary_group(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return -1
