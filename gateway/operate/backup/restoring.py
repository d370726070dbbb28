"""Restores a backup: everything is unpacked, brought up to date and checked before it counts."""

import datetime as dt
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gateway.errors import CannotStart, ConfigError
from gateway.operate.backup.contents import ASIDE, DATABASE, STATE, is_secret, stays
from gateway.operate.backup.manifest import BadBackup, Manifest
from gateway.operate.backup.reading import unpack
from gateway.process.state_swap import Move, carry_out, work_folder
from sessions.errors import StoreCorrupt, StoreTooNew
from sessions.store import copy as copying
from sessions.store import prepare as opening
from sessions.store.after_restore import Over, end_what_was_open, move_paths, tidy
from sessions.store.engine import FAMILY, Place, is_of_database, migrator, place
from sessions.store.migrations import REVISIONS


class Prepared(msgspec.Struct, frozen=True):
    """A backup that is unpacked, sound and ready to take the place of what is there."""

    manifest: Manifest
    over: Over
    home: Path
    where: Place
    aside: str  # the name under which what is there is kept
    replaces: bool  # there is something

    @property
    def database(self) -> Path:
        """The file with its database."""
        return work_folder(self.home) / "new" / DATABASE

    @property
    def kept(self) -> str:
        """Where what is there goes, for people."""
        if self.where.file is None:
            return f"{self.home / self.aside} and the schema {self.schema} of {self.where.name}"
        return str(self.home / self.aside)

    @property
    def schema(self) -> str:
        """Where the tables of PostgreSQL go."""
        return self.aside.replace("-", "_").lower()


def prepare(file: Path, home: Path, store: str, now: int, *, moved: bool) -> Prepared:
    """Unpack and check a backup; nothing that is in use is touched. The caller holds the lock.

    `moved`: nothing ran since it was made, so what was open in it goes on. Raises `BadBackup`,
    `CannotStart`, or `ConfigError` when a newer version made it.
    """
    where = place(store)
    work = work_folder(home)
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(mode=0o700)
    except OSError as error:
        msg = f"The state folder {home} cannot be used: {error.strerror}."
        raise CannotStart(msg) from error
    ready = False
    try:
        manifest = unpack(file, work / "new")
        database = work / "new" / DATABASE
        _check_version(file, manifest)
        over = _made_ready(file, database, manifest, home, now, moved=moved)
        if where.file is None:
            copying.check_unused(where)
        aside = _aside(home, now)
        ready = True
        return Prepared(manifest, over, home, where, aside, _replaces(home, where))
    finally:
        if not ready:
            discard(home)


def _check_version(file: Path, manifest: Manifest) -> None:
    if manifest.schema not in REVISIONS:
        msg = (
            f"{file} was made by a newer version of Holdfast ({manifest.version}, schema "
            f"{manifest.schema}); install that version."
        )
        raise ConfigError(msg)


def discard(home: Path) -> None:
    """Forget what was prepared."""
    shutil.rmtree(work_folder(home), ignore_errors=True)


def put_in_place(prepared: Prepared) -> None:
    """Let it take the place of what is there, which is moved aside."""
    home, where = prepared.home, prepared.where
    try:
        if where.file:
            moves = list(_database_moves(where.file, prepared))
        else:
            copying.fill(where, prepared.database, prepared.schema)
            moves = []
        carry_out(home, [*moves, *_folder_moves(prepared)])
    except OSError as error:
        msg = f"The backup cannot be put into {home}: {error.strerror} ({error.filename})."
        raise CannotStart(msg) from error


def _made_ready(
    file: Path, database: Path, manifest: Manifest, home: Path, now: int, *, moved: bool
) -> Over:
    """Check the database and bring it to this version, this place and this moment."""
    copy = copying.as_place(database)
    try:
        copying.check_sound(database)
        opening.prepare(copy)
    except StoreCorrupt as error:
        msg = f"{file} cannot be restored: {error}."
        raise BadBackup(msg) from error
    except StoreTooNew as error:
        raise ConfigError(str(error)) from error
    with opening.connected(copy, migrator(copy)) as connection, connection.begin():
        tidy(connection)
        if manifest.home != str(home):
            move_paths(connection, f"{manifest.home}/", f"{home}/")
        over = Over() if moved else end_what_was_open(connection, now)
    copying.as_one_file(database)
    return over


def _aside(home: Path, now: int) -> str:
    moment = dt.datetime.fromtimestamp(now / 1000, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    name, number = f"{ASIDE}{moment}", 1
    while (home / name).exists():
        number += 1
        name = f"{ASIDE}{moment}-{number}"
    return name


def _replaces(home: Path, where: Place) -> bool:
    if any(not stays(name) for name in os.listdir(home)):  # noqa: PTH208 - names only
        return True
    return where.file.exists() if where.file else copying.is_there(where)


def _database_moves(file: Path, prepared: Prepared) -> Iterator[Move]:
    inside = file.parent == prepared.home
    for ending in FAMILY:
        there = file.with_name(file.name + ending)
        if not there.exists():
            continue
        if inside:
            aside = prepared.home / prepared.aside / there.name
        else:
            aside = file.with_name(f"{file.name}.{prepared.aside}{ending}")
        yield Move(str(there), str(aside))
    new = prepared.database
    if not inside:  # it may be on another disk, and must come in by a rename
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.restoring")
        beside.unlink(missing_ok=True)
        shutil.copy2(new, beside)
        descriptor = os.open(beside, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        new = beside
    yield Move(str(new), str(file))


def _folder_moves(prepared: Prepared) -> Iterator[Move]:
    home, new = prepared.home, work_folder(prepared.home) / "new" / STATE
    for name in sorted(os.listdir(home)):  # noqa: PTH208 - names only
        # A secret that the backup does not hold stays.
        if stays(name) or (is_secret(name) and not prepared.manifest.secrets):
            continue
        if is_of_database(home / name, prepared.where.file):
            continue
        yield Move(str(home / name), str(home / prepared.aside / name))
    for name in sorted(os.listdir(new)) if new.is_dir() else ():  # noqa: PTH208 - names only
        yield Move(str(new / name), str(home / name))
