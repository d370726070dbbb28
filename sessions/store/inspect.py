"""Looks at a database from outside, without the store: also when it is damaged, old or in use.

Nothing is written, not even the files that SQLite puts beside a database that somebody reads.
"""

import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

import msgspec
import sqlalchemy as sa

from sessions.errors import StoreError
from sessions.store.engine import Place, place, reader, translated
from sessions.store.migrations import HEAD, REVISIONS

_WAL_SAFE = (3, 51, 3)
_WAL_SINCE = (3, 7, 0)
_STEPS = 20_000  # of SQLite's machine between two looks at the clock


class Examined(msgspec.Struct, frozen=True):
    """What a database looks like."""

    name: str  # where it is, without password
    there: bool = True
    version: str | None = None  # of its tables; None where there are none of ours
    damage: str = ""  # what SQLite complains about
    unfinished: bool = False  # there was no time to look at all of it
    trouble: str = ""  # why it could not be looked at
    size: int = 0  # bytes, likewise below
    log_size: int = 0  # of the write-ahead log
    free: int = 0  # inside of the file

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of this program wrote it."""
        return self.version is not None and self.version not in REVISIONS

    @property
    def is_older(self) -> bool:
        """Whether it will be brought up to date at the next start."""
        return self.version in REVISIONS[:-1]

    @property
    def head(self) -> str:
        """The version that this program works with."""
        return HEAD


def can_damage_logs(version: tuple[int, ...]) -> bool:
    """Whether this SQLite can damage a write-ahead log that two connections write at once."""
    return _WAL_SINCE <= version < _WAL_SAFE


def examine(url: str, *, seconds: float) -> Examined:
    """Look at a database; whatever stands in the way is a part of the answer. Blocks."""
    try:
        where = place(url)
    except StoreError as error:
        return Examined("the database", trouble=str(error))
    if where.file is None:
        return _postgresql(where)
    try:
        return _sqlite(where.file, seconds)
    except (OSError, sqlite3.Error) as error:
        ours = error if isinstance(error, OSError) else translated(error, where.name)
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return Examined(where.name, damage=str(error))
        return Examined(where.name, trouble=str(ours))


def _sqlite(file: Path, seconds: float) -> Examined:
    if not file.exists():
        return Examined(str(file), there=False)
    log = file.with_name(f"{file.name}-wal")
    logged = log.stat().st_size if log.exists() else 0
    # Without a log nobody has it open, so nothing can change under our eyes.
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    deadline = time.monotonic() + seconds
    connection = sqlite3.connect(f"file:{quote(str(file))}?{how}", uri=True, timeout=seconds)
    try:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        found = Examined(
            str(file),
            version=_version(connection),
            size=pages * size,
            log_size=logged,
            free=free * size,
        )
        try:
            said = [row[0] for row in connection.execute("PRAGMA quick_check(5)")]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return msgspec.structs.replace(found, unfinished=True)
        damage = "" if said == ["ok"] else "; ".join(" ".join(each.split()) for each in said)
        return msgspec.structs.replace(found, damage=damage)
    finally:
        connection.close()


def _version(connection: sqlite3.Connection) -> str | None:
    tables = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
    )
    if tables.fetchone() is None:
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else None


def _postgresql(where: Place) -> Examined:
    try:
        engine = reader(where, alone=True)
    except StoreError as error:
        return Examined(where.name, trouble=str(error))
    try:
        with engine.connect() as connection, connection.begin():
            version = None
            if sa.inspect(connection).has_table("alembic_version"):
                version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
            size = connection.scalar(sa.text("SELECT pg_database_size(current_database())"))
            return Examined(where.name, version=version, size=int(size or 0))
    except sa.exc.SQLAlchemyError as error:
        return Examined(where.name, trouble=str(translated(error, where.name)))
    finally:
        engine.dispose()
