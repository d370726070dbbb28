"""Copies a SQLite database before a migration; only the owner can read the copy."""

import datetime as dt
import logging
import os
from collections.abc import Callable
from pathlib import Path

from sessions.errors import StoreUnavailable
from sessions.store.copy import vacuum_into
from sessions.store.engine import DatabaseLocation
from sessions.store.migrations import HEAD

log = logging.getLogger(__name__)

_MAX_COPIES = 3
MIN_FREE_BYTES = 10_000_000
"""Bytes that must stay free on the disk after a copy."""

_ADVICE = (
    "the database is not migrated without a copy; "
    "free some space, or run: holdfast db upgrade --no-backup"
)


def copy_before_migration(folder: Path | None, now: int) -> Callable[[DatabaseLocation, str], None]:
    """Return the `before_migration` callback; without a folder, no copy is made."""

    def keep(where: DatabaseLocation, found: str) -> None:
        if folder is None:
            return
        if where.file is None:
            log.info(
                "the database %s is migrated from %s to %s without a copy; "
                "use your own PostgreSQL backup to go back",
                where.name,
                found,
                HEAD,
            )
            return
        copy = keep_copy(where.file, folder, now)
        log.info("copied the database to %s before the migration to %s", copy, HEAD)

    return keep


def keep_copy(file: Path, folder: Path, now: int) -> Path:
    """Copy a database and delete the oldest copies. Raises `StoreUnavailable`."""
    moment = dt.datetime.fromtimestamp(now / 1000, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    target = folder / f"before-{HEAD}-{moment}.db"
    unfinished = folder / f".{target.name}.part"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(".before-*.part*"):  # left by a process that died
            left.unlink()
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < file.stat().st_size + MIN_FREE_BYTES:
            msg = f"There is no room in {folder} for a copy of {file}"
            raise StoreUnavailable(msg)  # noqa: TRY301 - handled like later ones
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            vacuum_into(file, unfinished)
            _fsync(unfinished)
            unfinished.replace(target)
            _fsync(folder)
        finally:
            unfinished.unlink(missing_ok=True)
        for old in sorted(folder.glob("before-*.db"), key=_copy_time)[:-_MAX_COPIES]:
            old.unlink()
    except StoreUnavailable as error:
        msg = f"{error}; {_ADVICE}"
        raise StoreUnavailable(msg) from error
    except OSError as error:
        msg = f"The database {file} cannot be copied to {folder}: {error.strerror}; {_ADVICE}"
        raise StoreUnavailable(msg) from error
    return target


def _copy_time(file: Path) -> str:
    return file.stem.rpartition("-")[2]


def _fsync(path: Path) -> None:
    """Flush a file or folder to disk, so that the content survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
