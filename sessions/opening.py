"""Brings a database up to date, or makes it, before anybody uses it.

Alembic is imported only when steps are missing: it costs 75 ms and 11 MB, at every start of a
database that is up to date for nothing.
"""

import contextlib
from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from sessions.engine import Place, create_file, migrator, reader, translated
from sessions.errors import StoreTooNew, StoreTooOld, StoreUnavailable
from sessions.migrations import HEAD, REVISIONS
from sessions.schema import complete, metadata

_LOCK = 0x686F6C65  # a number of ours; it only has to differ from other locks
_version = sa.Table(  # as Alembic makes it
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def prepare(where: Place) -> None:
    """Make the database what this version of the program expects."""
    if where.file:
        create_file(where.file)
    with _connected(where, migrator(where)) as connection, _alone(connection):
        with connection.begin():
            found = _found(connection)
            if found is None:
                _create(connection)
                return
        _check_known(where, found)
        if found != HEAD:
            migrate(connection)


def check(where: Place) -> None:
    """Make sure that the database can be read as it is; changes nothing."""
    if where.file and not where.file.exists():
        raise _not_there(where)
    with _connected(where, reader(where, alone=True)) as connection, connection.begin():
        found = _found(connection)
    if found is None:
        raise _not_there(where)
    _check_known(where, found)
    if found != HEAD:
        msg = f"The database {where.name} is of an older version; start the gateway once"
        raise StoreTooOld(msg)


def check_fit(where: Place) -> None:
    """Make sure that a start could use the database, or make it; changes nothing."""
    if where.file and not where.file.exists():
        return
    with _connected(where, reader(where, alone=True)) as connection, connection.begin():
        found = _found(connection)
    if found is not None:
        _check_known(where, found)


def migrate(connection: Connection, to: str = "head") -> None:
    """Run the steps that are missing, each in a transaction of its own."""
    from alembic import command  # noqa: PLC0415 - heavy, and rarely needed
    from alembic.config import Config  # noqa: PLC0415 - likewise

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "sessions:migrations")
    command.upgrade(config, to)


def _create(connection: Connection) -> None:
    complete(connection.dialect)
    metadata.create_all(connection, checkfirst=False)
    _version.create(connection)
    connection.execute(sa.insert(_version).values(version_num=HEAD))


def _found(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(_version.name):
        return None
    version: str | None = connection.scalar(sa.select(_version.c.version_num))
    return version


def _check_known(where: Place, found: str) -> None:
    if found not in REVISIONS:
        msg = (
            f"The database {where.name} was written by a newer version of Holdfast "
            f"({found}, this one knows {HEAD}); install that version or restore a backup"
        )
        raise StoreTooNew(msg)


def _not_there(where: Place) -> StoreUnavailable:
    return StoreUnavailable(f"There is no database at {where.name} yet; start the gateway once")


@contextlib.contextmanager
def _connected(where: Place, engine: sa.Engine) -> Iterator[Connection]:
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise translated(error, where.name) from error
    finally:
        engine.dispose()


@contextlib.contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Let no other process do the same at once; a SQLite file has one daemon anyway."""
    if connection.dialect.name == "sqlite":
        yield
        return
    _lock(connection, sa.func.pg_advisory_lock)
    try:
        yield
    finally:
        _lock(connection, sa.func.pg_advisory_unlock)


def _lock(connection: Connection, function: sa.sql.functions._FunctionGenerator) -> None:
    with connection.begin():
        connection.execute(sa.select(function(_LOCK)))
