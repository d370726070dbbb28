"""How a database is reached: its URL, its connections, and its errors in our words.

SQLite runs in WAL mode with `synchronous=FULL`: what was committed survives a power cut. Exactly
one connection of one process writes; versions before 3.51.3 can damage a WAL file when two do, and
for the same reason nothing is mapped into memory. A program beside the daemon opens the file with
`mode=ro`, and then neither writes nor takes part in checkpoints, which are left as SQLite does
them: by the writer, after a thousand pages.
"""

import os
import sqlite3
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
"""Seconds to wait for somebody else's lock."""

MIGRATION_LOCK_TIMEOUT_SECONDS = 60.0
"""The same while another process brings the database up to date."""

_READER_PRAGMAS = ("temp_store=MEMORY", "query_only=ON", "cache_size=-1000")  # kilobytes
_WRITER_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "temp_store=MEMORY",
    "cache_size=-2000",
    "secure_delete=ON",  # what is deleted is overwritten: some builds do so, some do not
    f"journal_size_limit={64 * 1024 * 1024}",
)

_POSTGRESQL_ARGUMENTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,  # a server that vanished is noticed, also in the middle of a query
    "application_name": "holdfast",
}


class DatabaseLocation(msgspec.Struct, frozen=True):
    """A database, as its URL names it."""

    url: sa.URL
    file: Path | None
    """Where it is, when it is a file."""

    @property
    def name(self) -> str:
        """How messages call it; without password."""
        if self.file:
            return str(self.file)
        shown = self.url.set(drivername="postgresql", query={})
        return shown.render_as_string(hide_password=True)


def parse_url(url: str) -> DatabaseLocation:
    """Read a URL: `sqlite:///FILE` (four slashes when it begins at the root) or `postgresql://…`."""
    scheme, _, rest = url.partition(":///")
    if scheme == "sqlite" and rest:  # all of it is the path, whatever signs are in it
        return DatabaseLocation(sa.URL.create("sqlite"), Path(rest).expanduser().absolute())
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = sa.URL.create("")
    if parsed.drivername == "postgresql" and parsed.database:
        return DatabaseLocation(parsed.set(drivername="postgresql+psycopg"), None)
    msg = "The database URL cannot be used; write sqlite:///FILE or postgresql://USER@HOST/NAME"
    raise StoreError(msg)


SQLITE_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Endings of the files of one SQLite database."""


def is_database_file(path: Path, file: Path | None) -> bool:
    """Whether a path is one of the files of a SQLite database."""
    return file is not None and any(
        path == file.with_name(file.name + end) for end in SQLITE_FILE_SUFFIXES
    )


def create_file(file: Path) -> None:
    """Make an empty database that only its owner can read; one that is there is left as it is."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        msg = f"The database {file} cannot be opened: {error.strerror}"
        raise StoreUnavailable(msg) from error


def writer_engine(where: DatabaseLocation) -> Engine:
    """An engine whose connections may write, from BEGIN on."""
    if where.file:
        pragmas = (*_WRITER_PRAGMAS, "foreign_keys=ON")
        return _sqlite(where.file, "rw", pragmas, "BEGIN IMMEDIATE")
    return _postgresql(where, LOCK_TIMEOUT_SECONDS)


def migration_engine(where: DatabaseLocation) -> Engine:
    """An engine for changing tables.

    SQLite changes a table by copying it and dropping the old one; with foreign keys in force that
    would delete all that belongs to its rows.
    """
    if where.file:
        # Before the first page is written, or it has no effect until the next VACUUM.
        pragmas = ("auto_vacuum=INCREMENTAL", *_WRITER_PRAGMAS)
        return _sqlite(where.file, "rw", pragmas, "BEGIN IMMEDIATE")
    return _postgresql(where, MIGRATION_LOCK_TIMEOUT_SECONDS)


def copy_engine(file: Path) -> Engine:
    """An engine for `VACUUM INTO`: it writes another file, which `query_only` would not allow."""
    return _sqlite(file, "ro", ("temp_store=MEMORY",), "BEGIN")


def reader_engine(where: DatabaseLocation, *, without_writer: bool = False) -> Engine:
    """An engine whose connections cannot write; `alone`: no writer of this process keeps it open."""
    if where.file:
        return _sqlite(where.file, "ro" if without_writer else "rw", _READER_PRAGMAS, "BEGIN")
    view = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return _postgresql(where, LOCK_TIMEOUT_SECONDS, view)


def _sqlite(file: Path, mode: str, pragmas: tuple[str, ...], begin: str) -> Engine:
    def connect() -> sqlite3.Connection:
        # Without an isolation level the driver leaves BEGIN to us; a plain one would let two
        # threads read first and then block each other when both want to write.
        uri = f"file:{quote(str(file))}?mode={mode}"
        connection = sqlite3.connect(
            uri,
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=LOCK_TIMEOUT_SECONDS,
        )
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


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
            use_native_hstore=False,  # saves a query for each connection
            execution_options=execution_options or {},
        )
    except ModuleNotFoundError as error:
        msg = "PostgreSQL needs the package psycopg: install holdfast[pg]"
        raise StoreError(msg) from error


def upsert_insert(dialect: Dialect) -> Callable[[sa.Table], Any]:
    """INSERT with ON CONFLICT, which each dialect brings in a class of its own."""
    if dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - only what is used

        return sqlite.insert
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - likewise

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
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "it is no SQLite database, or damaged"),
}
_POSTGRESQL_ERRORS = {  # by the first two characters of an SQLSTATE
    "08": StoreUnavailable,  # connection
    "25": StoreUnavailable,  # read-only transaction: the server is a copy
    "28": StoreUnavailable,  # name or password
    "3D": StoreUnavailable,  # there is no such database
    "40": StoreUnavailable,  # deadlock, serialisation
    "53": StoreUnavailable,  # disk, memory, connections
    "55": StoreUnavailable,  # lock not available
    "57": StoreUnavailable,  # the server is shutting down
    "58": StoreUnavailable,  # its disk
    "XX": StoreCorrupt,
}


def translate_error(error: Exception, name: str, *, committing: bool = False) -> Exception:
    """Say it in our words; what does not come from the database stays as it is."""
    if not isinstance(error, sa.exc.SQLAlchemyError | sqlite3.Error):
        return error
    ours = _store_error(error, name, committing=committing)
    ours.__cause__ = error
    return ours


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
    """Whether the connection is gone, and another one may work."""
    return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
