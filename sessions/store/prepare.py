"""Creates or migrates a database before use.

Alembic is imported only if migrations are missing, because the import costs 75 ms and 11 MB.
"""

import contextlib
from collections.abc import Callable, Iterator

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from sessions.errors import StoreTooNew, StoreTooOld, StoreUnavailable
from sessions.store.engine import (
    DatabaseLocation,
    create_file,
    migration_engine,
    reader_engine,
    translate_error,
)
from sessions.store.migrations import HEAD, REVISIONS
from sessions.store.schema import metadata, set_partial_indexes

_MIGRATION_LOCK = 0x686F6C65  # arbitrary, but different from other advisory locks
_version = sa.Table(  # as created by Alembic
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def prepare(
    where: DatabaseLocation,
    before_migration: Callable[[DatabaseLocation, str], None] = lambda *_: None,
) -> None:
    """Create the database or migrate to this version.

    `before_migration` is called with the found revision before the first missing migration runs; if
    the callback raises, the database stays unchanged.
    """
    if where.file:
        create_file(where.file)
    with connect(where, migration_engine(where)) as connection, migration_lock(connection):
        with connection.begin():
            found = current_revision(connection)
            if found is None:
                create_tables(connection)
                return
        check_known(where, found)
        if found != HEAD:
            before_migration(where, found)
            migrate(connection)


def check_current(where: DatabaseLocation) -> None:
    """Check that the database can be read without a migration; change nothing."""
    if read_revision(where) != HEAD:
        msg = f"The database {where.name} is of an older version; start the gateway once"
        raise StoreTooOld(msg)


def check_compatible(where: DatabaseLocation) -> None:
    """Check that a start could use, migrate or create the database; change nothing."""
    if where.file and not where.file.exists():
        return
    with (
        connect(where, reader_engine(where, without_writer=True)) as connection,
        connection.begin(),
    ):
        found = current_revision(connection)
    if found is not None:
        check_known(where, found)


def needs_migration(where: DatabaseLocation) -> bool:
    """Return True for a database of an older version; change nothing."""
    if where.file and not where.file.exists():
        return False
    with (
        connect(where, reader_engine(where, without_writer=True)) as connection,
        connection.begin(),
    ):
        found = current_revision(connection)
    return found in REVISIONS and found != HEAD


def read_revision(where: DatabaseLocation) -> str:
    """Return the revision of a database, which may be an older one; change nothing."""
    if where.file and not where.file.exists():
        raise _no_database(where)
    with (
        connect(where, reader_engine(where, without_writer=True)) as connection,
        connection.begin(),
    ):
        found = current_revision(connection)
    if found is None:
        raise _no_database(where)
    check_known(where, found)
    return found


def create_database(where: DatabaseLocation, revision: str) -> None:
    """Create a new database at this revision, as that version would have."""
    if where.file:
        create_file(where.file)
    with connect(where, migration_engine(where)) as connection:
        if revision != HEAD:
            migrate(connection, revision)
            return
        with connection.begin():
            create_tables(connection)


def migrate(connection: Connection, target: str = "head") -> None:
    """Run the missing migrations, all or none."""
    from alembic import command  # noqa: PLC0415 - expensive and rarely needed
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "sessions.store:migrations")
    command.upgrade(config, target)


def create_tables(connection: Connection) -> None:
    """Create the tables of this version."""
    set_partial_indexes(connection.dialect)
    metadata.create_all(connection, checkfirst=False)
    _version.create(connection)
    connection.execute(sa.insert(_version).values(version_num=HEAD))


def current_revision(connection: Connection) -> str | None:
    """Return the revision of a database; None without tables of this program."""
    if not sa.inspect(connection).has_table(_version.name):
        return None
    version: str | None = connection.scalar(sa.select(_version.c.version_num))
    return version


def check_known(where: DatabaseLocation, found: str) -> None:
    """Raise `StoreTooNew` for a database written by a newer version."""
    if found not in REVISIONS:
        msg = (
            f"The database {where.name} was written by a newer version of Holdfast "
            f"({found}, this one knows {HEAD}); install that version or restore a backup"
        )
        raise StoreTooNew(msg)


def _no_database(where: DatabaseLocation) -> StoreUnavailable:
    return StoreUnavailable(f"There is no database at {where.name} yet; holdfast run creates it")


@contextlib.contextmanager
def connect(where: DatabaseLocation, engine: sa.Engine) -> Iterator[Connection]:
    """Connect, and translate database errors."""
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise translate_error(error, where.name) from error
    finally:
        engine.dispose()


@contextlib.contextmanager
def migration_lock(connection: Connection) -> Iterator[None]:
    """Keep other processes from migrating at the same time; a SQLite file has one daemon anyway."""
    if connection.dialect.name == "sqlite":
        yield
        return
    _run_lock_function(connection, sa.func.pg_advisory_lock)
    try:
        yield
    finally:
        _run_lock_function(connection, sa.func.pg_advisory_unlock)


def _run_lock_function(
    connection: Connection, function: sa.sql.functions._FunctionGenerator
) -> None:
    with connection.begin():
        connection.execute(sa.select(function(_MIGRATION_LOCK)))
