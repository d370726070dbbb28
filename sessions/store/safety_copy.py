"""Keeps a copy of a SQLite database before its tables are changed; nobody else can read it."""

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

MAX_COPIES = 3
MIN_FREE_BYTES = 10_000_000
"""Bytes of the disk that a copy must leave."""


def copy_before_migration(folder: Path | None, now: int) -> Callable[[DatabaseLocation, str], None]:
    """Make what is to be done before a database is brought up to date; None: no copy is wanted."""

    def keep(where: DatabaseLocation, found: str) -> None:
        if folder is None:
            return
        if where.file is None:
            log.info(
                "%s goes from step %s to %s; before that no copy of it is made here: "
                "your own backup of PostgreSQL counts",
                where.name,
                found,
                HEAD,
            )
            return
        copy = keep_copy(where.file, folder, now)
        log.info("before step %s the database was copied to %s", HEAD, copy)

    return keep


def keep_copy(file: Path, folder: Path, now: int) -> Path:
    """Copy a database; of earlier copies the newest stay. Raises `StoreUnavailable`."""
    moment = dt.datetime.fromtimestamp(now / 1000, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    target = folder / f"before-{HEAD}-{moment}.db"
    unfinished = folder / f".{target.name}.part"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(".before-*.part*"):  # by a process that died
            left.unlink()
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < file.stat().st_size + MIN_FREE_BYTES:
            msg = f"There is no room in {folder} for a copy of {file}"
            raise StoreUnavailable(msg)  # noqa: TRY301 - it gets the same end as one met later
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            vacuum_into(file, unfinished)
            _fsync(unfinished)
            unfinished.replace(target)
            _fsync(folder)
        finally:
            unfinished.unlink(missing_ok=True)
        for old in sorted(folder.glob("before-*.db"), key=_copy_time)[:-MAX_COPIES]:
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


_ADVICE = (
    "it is not brought up to date without a copy; "
    "make room, or run: holdfast db upgrade --no-backup"
)


def _fsync(path: Path) -> None:
    """Let it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
