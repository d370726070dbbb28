"""Database URLs, connections and error translation.

SQLite runs in WAL mode with `synchronous=FULL`, so a commit survives a power cut. Exactly one
connection of one process writes, because SQLite before 3.51.3 can damage a WAL file written by
two; for the same reason no memory mapping is used. Programs next to the daemon open the file with
`mode=ro`, and neither write nor take part in checkpoints. Checkpoints are left to SQLite's default:
the writer runs one after a thousand pages.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.pool import NullPool

from sessions.errors import (
    CommitOutcomeUnknown,
    Conflict,
    RecordNotFound,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)

LOCK_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the lock of another connection."""

_LOCK_POLL_SECONDS = 0.01
_MIGRATION_LOCK_TIMEOUT_SECONDS = 60.0
"""The same while another process migrates the database."""

_CACHED_STATEMENTS = 128  # of a connection, the driver's default
_READER_PRAGMAS = ("temp_store=MEMORY", "query_only=ON", "cache_size=-1000")  # kilobytes
_WRITER_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "temp_store=MEMORY",
    "cache_size=-2000",
    "secure_delete=ON",  # overwrite deleted data; the default depends on the build
    f"journal_size_limit={64 * 1024 * 1024}",
)

_POSTGRESQL_ARGUMENTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,  # notice a vanished server, even during a query
    "application_name": "holdfast",
}

SQLITE_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files of one SQLite database."""


class DatabaseLocation(msgspec.Struct, frozen=True):
    """A database, as named by a URL."""

    url: sa.URL
    file: Path | None
    """The file, for SQLite."""

    @property
    def name(self) -> str:
        """Display name for messages, without the password."""
        if self.file:
            return str(self.file)
        shown = self.url.set(drivername="postgresql", query={})
        return shown.render_as_string(hide_password=True)


def parse_url(url: str) -> DatabaseLocation:
    """Parse `sqlite:///FILE` (four slashes for an absolute path) or `postgresql://…`."""
    scheme, _, rest = url.partition(":///")
    if scheme == "sqlite" and rest:  # everything after the slashes is the path, unescaped
        return DatabaseLocation(sa.URL.create("sqlite"), Path(rest).expanduser().absolute())
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = sa.URL.create("")
    if parsed.drivername == "postgresql" and parsed.database:
        return DatabaseLocation(parsed.set(drivername="postgresql+psycopg"), None)
    msg = "The database URL cannot be used; write sqlite:///FILE or postgresql://USER@HOST/NAME"
    raise StoreError(msg)


def is_database_file(path: Path, file: Path | None) -> bool:
    """Return True if the path is one of the files of a SQLite database."""
    return file is not None and any(
        path == file.with_name(file.name + end) for end in SQLITE_FILE_SUFFIXES
    )


def create_file(file: Path) -> None:
    """Create an empty database file readable only by its owner; leave an existing file unchanged."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        msg = f"The database {file} cannot be opened: {error.strerror}"
        raise StoreUnavailable(msg) from error


def writer_engine(where: DatabaseLocation) -> Engine:
    """Return an engine whose transactions take the write lock at BEGIN."""
    if where.file:
        pragmas = (*_WRITER_PRAGMAS, "foreign_keys=ON")
        return _sqlite(where.file, "rw", pragmas, "BEGIN IMMEDIATE")
    return _postgresql(where, LOCK_TIMEOUT_SECONDS)


def migration_engine(where: DatabaseLocation) -> Engine:
    """Return an engine for migrations.

    SQLite alters a table by copying it and dropping the old one; with foreign keys enforced that
    would delete all rows that refer to the table.
    """
    if where.file:
        # Must be set before the first page is written, else the setting needs a VACUUM to take effect.
        pragmas = ("auto_vacuum=INCREMENTAL", *_WRITER_PRAGMAS)
        return _sqlite(where.file, "rw", pragmas, "BEGIN IMMEDIATE")
    return _postgresql(where, _MIGRATION_LOCK_TIMEOUT_SECONDS)


def copy_engine(file: Path) -> Engine:
    """Return an engine for `VACUUM INTO`, which writes a file and so fails with `query_only`."""
    return _sqlite(file, "ro", ("temp_store=MEMORY",), "BEGIN")


def reader_engine(where: DatabaseLocation, *, without_writer: bool = False) -> Engine:
    """Return a read-only engine; `without_writer`: this process has no writer on the file."""
    if where.file:
        return _sqlite(where.file, "ro" if without_writer else "rw", _READER_PRAGMAS, "BEGIN")
    view = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return _postgresql(where, LOCK_TIMEOUT_SECONDS, view)


def _sqlite(file: Path, mode: str, pragmas: tuple[str, ...], begin: str) -> Engine:
    def connect() -> sqlite3.Connection:
        # Without an isolation level the driver leaves BEGIN to SQLAlchemy's event below; a plain
        # BEGIN would let two threads read first and then block each other when both want to write.
        uri = f"file:{quote(str(file))}?mode={mode}"
        connection = sqlite3.connect(
            uri,
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
            timeout=LOCK_TIMEOUT_SECONDS,
        )
        for pragma in pragmas:
            _execute_pragma(connection, pragma)
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _execute_pragma(connection: sqlite3.Connection, pragma: str) -> None:
    """Execute a pragma, and wait for the lock of another connection.

    SQLite itself does not wait when it switches a file to the write-ahead log, because it already
    reads the file then.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute(f"PRAGMA {pragma}").close()
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_locked or time.monotonic() >= deadline:
                raise
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return


def _postgresql(
    where: DatabaseLocation,
    lock_timeout_seconds: float,
    execution_options: dict[str, Any] | None = None,
) -> Engine:
    options = f"-c synchronous_commit=on -c lock_timeout={int(lock_timeout_seconds * 1000)}"
    try:
        return sa.create_engine(
            where.url,
            poolclass=NullPool,
            connect_args=_POSTGRESQL_ARGUMENTS | {"options": options},
            use_native_hstore=False,  # saves a query per connection
            execution_options=execution_options or {},
        )
    except ModuleNotFoundError as error:
        msg = "PostgreSQL needs the package psycopg: install holdfast[pg]"
        raise StoreError(msg) from error


def release_statements(connection: Connection) -> None:
    """Free the memory of SQLite's statements and pages.

    The driver keeps the statements that ran last, each with its last parameters: an answer of
    20 MB stays in memory until the same statement runs again.
    """
    if connection.dialect.name == "sqlite":
        for number in range(_CACHED_STATEMENTS):
            connection.exec_driver_sql(f"SELECT {number}").close()
        connection.exec_driver_sql("PRAGMA shrink_memory").close()


def upsert_insert(dialect: Dialect) -> Callable[[sa.Table], Any]:
    """Return the dialect's INSERT, which supports ON CONFLICT."""
    if dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - load only the dialect in use

        return sqlite.insert
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - as above

    return postgresql.insert


# --- errors ----------------------------------------------------------------------------------

_UNUSABLE = "The database {name} cannot be used: {why}"
_SQLITE_ERRORS = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "another process has locked it"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "another process has locked it"),
    sqlite3.SQLITE_FULL: (StoreUnavailable, "the disk is full"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "the disk reports an error"),
    sqlite3.SQLITE_READONLY: (StoreUnavailable, "it cannot be written"),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailable, "it cannot be opened"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "it is damaged; restore a backup"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "the file is damaged or not a SQLite database"),
}
_POSTGRESQL_ERRORS = {  # by the first two characters of the SQLSTATE
    "08": StoreUnavailable,  # connection
    "25": StoreUnavailable,  # read-only transaction: the server is a replica
    "28": StoreUnavailable,  # user name or password
    "3D": StoreUnavailable,  # no such database
    "40": StoreUnavailable,  # deadlock, serialisation
    "53": StoreUnavailable,  # disk, memory, connections
    "55": StoreUnavailable,  # lock not available
    "57": StoreUnavailable,  # the server is shutting down
    "58": StoreUnavailable,  # disk of the server
    "XX": StoreCorrupt,
}


def translate_error(error: Exception, name: str, *, committing: bool = False) -> Exception:
    """Translate a database error into a `StoreError`; return other errors unchanged."""
    if not isinstance(error, sa.exc.SQLAlchemyError | sqlite3.Error):
        return error
    translated = _store_error(error, name, committing=committing)
    translated.__cause__ = error
    return translated


def _store_error(error: Exception, name: str, *, committing: bool) -> StoreError:
    original = getattr(error, "orig", None) or error
    why = next(iter(str(original).splitlines()), type(original).__name__)
    if committing and is_disconnect(error):
        return CommitOutcomeUnknown(
            f"The connection to the database {name} broke while it was writing"
        )
    if isinstance(error, sa.exc.IntegrityError):
        belongs = "foreign key" in str(original).lower()
        return (RecordNotFound if belongs else Conflict)(f"The database {name} refuses it: {why}")
    code = getattr(original, "sqlite_errorcode", None)
    if code is not None:
        kind, words = _SQLITE_ERRORS.get(code & 0xFF, (StoreError, why))
        return kind(_UNUSABLE.format(name=name, why=words))
    state = getattr(original, "sqlstate", None) or ""
    if is_disconnect(error) or (isinstance(error, sa.exc.OperationalError) and not state):
        return StoreUnavailable(_UNUSABLE.format(name=name, why=why))
    return _POSTGRESQL_ERRORS.get(state[:2], StoreError)(_UNUSABLE.format(name=name, why=why))


def is_disconnect(error: Exception | None) -> bool:
    """Return True if the connection is gone, so that a new one may work."""
    return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
