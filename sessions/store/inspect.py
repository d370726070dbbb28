"""Inspects a database without the store, even if it is damaged, outdated or in use.

Nothing is written, not even the files that SQLite creates next to a database being read.
"""

import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

import msgspec
import sqlalchemy as sa

from sessions.errors import StoreError
from sessions.store.engine import DatabaseLocation, parse_url, reader_engine, translate_error
from sessions.store.migrations import HEAD, REVISIONS

_WAL_BUG_FIXED_IN = (3, 51, 3)
_WAL_BUG_SINCE = (3, 7, 0)
_PROGRESS_STEPS = 20_000  # SQLite VM instructions between two looks at the clock


class DatabaseInspection(msgspec.Struct, frozen=True, kw_only=True):
    """State of a database as seen from outside."""

    name: str  # display name, without password
    exists: bool = True
    version: str | None = None  # revision of the tables; None: no tables of this program
    damage: str = ""  # complaint of SQLite
    incomplete: bool = False  # the time was too short for a complete check
    error: str = ""  # reason why the inspection failed
    size_bytes: int = 0  # bytes
    wal_bytes: int = 0  # bytes of the write-ahead log
    free_bytes: int = 0  # unused bytes inside the file

    @property
    def is_newer(self) -> bool:
        """True if a newer version of the program wrote the database."""
        return self.version is not None and self.version not in REVISIONS

    @property
    def is_older(self) -> bool:
        """True if the next start will migrate the database."""
        return self.version in REVISIONS[:-1]

    @property
    def expected_version(self) -> str:
        """Revision that this program works with."""
        return HEAD


def has_wal_bug(version: tuple[int, ...]) -> bool:
    """Return True if this SQLite can damage a WAL file that two connections write at once."""
    return _WAL_BUG_SINCE <= version < _WAL_BUG_FIXED_IN


def inspect_database(url: str, *, timeout_seconds: float) -> DatabaseInspection:
    """Inspect a database; problems are part of the result. Blocks."""
    try:
        where = parse_url(url)
    except StoreError as error:
        return DatabaseInspection(name="the database", error=str(error))
    if where.file is None:
        return _inspect_postgresql(where)
    try:
        return _inspect_sqlite(where.file, timeout_seconds)
    except (OSError, sqlite3.Error) as error:
        reason = error if isinstance(error, OSError) else translate_error(error, where.name)
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return DatabaseInspection(name=where.name, damage=str(error))
        return DatabaseInspection(name=where.name, error=str(reason))


def _inspect_sqlite(file: Path, timeout_seconds: float) -> DatabaseInspection:
    if not file.exists():
        return DatabaseInspection(name=str(file), exists=False)
    log = file.with_name(f"{file.name}-wal")
    logged = log.stat().st_size if log.exists() else 0
    # Without a WAL file no process has the database open, so nothing changes during the check.
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    deadline = time.monotonic() + timeout_seconds
    connection = sqlite3.connect(
        f"file:{quote(str(file))}?{how}", uri=True, timeout=timeout_seconds
    )
    try:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _PROGRESS_STEPS)
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        found = DatabaseInspection(
            name=str(file),
            version=_read_version(connection),
            size_bytes=pages * size,
            wal_bytes=logged,
            free_bytes=free * size,
        )
        try:
            report = [row[0] for row in connection.execute("PRAGMA quick_check(5)")]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return msgspec.structs.replace(found, incomplete=True)
        damage = "" if report == ["ok"] else "; ".join(" ".join(line.split()) for line in report)
        return msgspec.structs.replace(found, damage=damage)
    finally:
        connection.close()


def _read_version(connection: sqlite3.Connection) -> str | None:
    tables = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
    )
    if tables.fetchone() is None:
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else None


def _inspect_postgresql(where: DatabaseLocation) -> DatabaseInspection:
    try:
        engine = reader_engine(where, without_writer=True)
    except StoreError as error:
        return DatabaseInspection(name=where.name, error=str(error))
    try:
        with engine.connect() as connection, connection.begin():
            version = None
            if sa.inspect(connection).has_table("alembic_version"):
                version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
            size = connection.scalar(sa.text("SELECT pg_database_size(current_database())"))
            return DatabaseInspection(name=where.name, version=version, size_bytes=int(size or 0))
    except sa.exc.SQLAlchemyError as error:
        return DatabaseInspection(name=where.name, error=str(translate_error(error, where.name)))
    finally:
        engine.dispose()
