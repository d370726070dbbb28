"""Restores a backup: unpack, upgrade and check first, then swap the state in one step."""

import datetime as dt
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from gateway.errors import CannotStart, ConfigError
from gateway.operate.backup.contents import (
    DATABASE_NAME,
    STATE_PREFIX,
    is_excluded,
    is_process_record,
    is_secret,
)
from gateway.operate.backup.manifest import InvalidBackup, Manifest
from gateway.operate.backup.reading import unpack
from gateway.operate.progress import Progress
from gateway.process.state_swap import ASIDE_PREFIX, Move, apply_moves, has_plan, work_folder
from sessions.errors import StoreCorrupt, StoreTooNew
from sessions.store import copy as copying
from sessions.store import prepare as opening
from sessions.store.after_restore import (
    ClosedWork,
    close_open_work,
    remove_writer_rows,
    rewrite_upload_paths,
)
from sessions.store.engine import (
    SQLITE_FILE_SUFFIXES,
    DatabaseLocation,
    is_database_file,
    migration_engine,
    parse_url,
)
from sessions.store.migrations import REVISIONS


class PreparedRestore(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that is unpacked, checked and ready to replace the current state."""

    manifest: Manifest
    ended_work: ClosedWork
    home: Path
    location: DatabaseLocation
    aside_name: str  # new name of the current state
    replaces_state: bool  # the state folder or database is not empty

    @property
    def database(self) -> Path:
        """Database file of the unpacked backup."""
        return work_folder(self.home) / "new" / DATABASE_NAME

    @property
    def aside_location(self) -> str:
        """Destination of the current state, for messages."""
        if self.location.file is None:
            return f"{self.home / self.aside_name} and the schema {self.schema} of {self.location.name}"
        return str(self.home / self.aside_name)

    @property
    def schema(self) -> str:
        """PostgreSQL schema that keeps the current tables."""
        return self.aside_name.replace("-", "_").lower()


def prepare_restore(
    file: Path,
    home: Path,
    store_url: str,
    now: int,
    *,
    moved: bool,
    progress: Progress | None = None,
) -> PreparedRestore:
    """Unpack and check a backup without touching the current state; the caller holds the lock.

    With `moved`, nothing ran since the backup was made, so unfinished work continues. Raises
    `InvalidBackup`, `CannotStart`, or `ConfigError` if a newer version made the backup.
    """
    location = parse_url(store_url)
    work = work_folder(home)
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(mode=0o700)
    except OSError as error:
        msg = f"The state folder {home} cannot be used: {error.strerror}."
        raise CannotStart(msg) from error
    ready = False
    try:
        manifest = unpack(file, work / "new", progress)
        database = work / "new" / DATABASE_NAME
        if progress:
            progress.begin("Checking and upgrading the database", database.stat().st_size)
        _check_version(file, manifest)
        ended_work = _upgrade_database(file, database, manifest, home, now, moved=moved)
        if location.file is None:
            copying.check_unused(location)
        aside = _choose_aside_name(home, now)
        ready = True
        return PreparedRestore(
            manifest=manifest,
            ended_work=ended_work,
            home=home,
            location=location,
            aside_name=aside,
            replaces_state=_has_state(home, location),
        )
    finally:
        if not ready:
            discard_prepared(home)


def _check_version(file: Path, manifest: Manifest) -> None:
    if manifest.schema not in REVISIONS:
        msg = (
            f"{file} was made by a newer version of Holdfast ({manifest.version}, schema "
            f"{manifest.schema}); install that version."
        )
        raise ConfigError(msg)


def discard_prepared(home: Path) -> None:
    """Delete the unpacked files, unless a restore needs them: the next start finishes that."""
    if not has_plan(home):
        shutil.rmtree(work_folder(home), ignore_errors=True)


def apply_restore(prepared: PreparedRestore) -> None:
    """Move the current state aside and the prepared state into its place."""
    home, location = prepared.home, prepared.location
    try:
        moves = list(_database_moves(location.file, prepared)) if location.file else []
        moves += _folder_moves(prepared)
        if location.file:
            apply_moves(home, moves)
        else:
            replace = partial(
                copying.replace_contents, location, prepared.database, prepared.schema
            )
            apply_moves(home, moves, replace)
    except OSError as error:
        msg = f"The backup cannot be moved to {home}: {error.strerror} ({error.filename})."
        raise CannotStart(msg) from error


def _upgrade_database(
    file: Path, database: Path, manifest: Manifest, home: Path, now: int, *, moved: bool
) -> ClosedWork:
    """Check and upgrade the unpacked database, and adapt paths and unfinished work."""
    copy = copying.sqlite_location(database)
    try:
        copying.check_integrity(database)
        opening.prepare(copy)
    except StoreCorrupt as error:
        msg = f"{file} cannot be restored: {error}."
        raise InvalidBackup(msg) from error
    except StoreTooNew as error:
        raise ConfigError(str(error)) from error
    with opening.connect(copy, migration_engine(copy)) as connection, connection.begin():
        remove_writer_rows(connection)
        if manifest.home != str(home):
            rewrite_upload_paths(connection, f"{manifest.home}/", f"{home}/")
        ended_work = ClosedWork() if moved else close_open_work(connection, now)
    copying.merge_wal(database)
    return ended_work


def _choose_aside_name(home: Path, now: int) -> str:
    moment = dt.datetime.fromtimestamp(now / 1000, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    name, number = f"{ASIDE_PREFIX}{moment}", 1
    while (home / name).exists():
        number += 1
        name = f"{ASIDE_PREFIX}{moment}-{number}"
    return name


def _has_state(home: Path, location: DatabaseLocation) -> bool:
    if any(not is_excluded(name) for name in os.listdir(home)):  # noqa: PTH208 - names only
        return True
    return location.file.exists() if location.file else copying.has_tables(location)


def _database_moves(file: Path, prepared: PreparedRestore) -> Iterator[Move]:
    is_inside = file.parent == prepared.home
    for ending in SQLITE_FILE_SUFFIXES:
        existing = file.with_name(file.name + ending)
        if not existing.exists():
            continue
        if is_inside:
            aside = prepared.home / prepared.aside_name / existing.name
        else:
            aside = file.with_name(f"{file.name}.{prepared.aside_name}{ending}")
        yield Move(str(existing), str(aside))
    new = prepared.database
    if not is_inside:  # may be on another disk, but the swap must be a rename
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = file.with_name(f".{file.name}.restoring")
        staged.unlink(missing_ok=True)
        shutil.copy2(new, staged)
        descriptor = os.open(staged, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        new = staged
    yield Move(str(new), str(file))


def _folder_moves(prepared: PreparedRestore) -> Iterator[Move]:
    home, new = prepared.home, work_folder(prepared.home) / "new" / STATE_PREFIX
    for name in sorted(os.listdir(home)):  # noqa: PTH208 - names only
        # A backup without secrets leaves the current secrets in place.
        if is_excluded(name) or is_process_record(name):
            continue
        if is_secret(name) and not prepared.manifest.secrets:
            continue
        if is_database_file(home / name, prepared.location.file):
            continue
        yield Move(str(home / name), str(home / prepared.aside_name / name))
    for name in sorted(os.listdir(new)) if new.is_dir() else ():  # noqa: PTH208 - names only
        if is_process_record(name):
            continue
        yield Move(str(new / name), str(home / name))
