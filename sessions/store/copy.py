"""Copies whole databases: into a SQLite file, and from such a file into either engine.

A copy is always a SQLite file, whichever engine the rows come from. The copy is one consistent
snapshot without deleted data, made while a daemon keeps writing: from SQLite by `VACUUM INTO`,
which reads one snapshot (the backup API would restart at each commit of another process), from
PostgreSQL row by row in one REPEATABLE READ transaction.
"""

import sqlite3
import time
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sessions.errors import StoreCorrupt, StoreError, StoreUnavailable
from sessions.store import prepare, soundness
from sessions.store.after_restore import set_mark
from sessions.store.engine import (
    DatabaseLocation,
    copy_engine,
    migration_engine,
    parse_url,
    reader_engine,
    translate_error,
)
from sessions.store.schema import TIMELINE

_BATCH_ROWS = 500
_DISCONNECT_SECONDS = 2.0
_DISCONNECT_POLL_SECONDS = 0.1
_VERSION_TABLE = "alembic_version"
_OTHER_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'holdfast' AND pid <> pg_backend_pid()
"""


def sqlite_location(file: Path) -> DatabaseLocation:
    """Return the location of a SQLite file."""
    return parse_url(f"sqlite:///{file}")


def copy_database(where: DatabaseLocation, target: Path) -> str:
    """Copy a snapshot of a database into a new file; return the revision.

    The database may be of an older version, and may be in use. Raises the errors of opening it.
    """
    revision = prepare.read_revision(where)
    if where.file:
        vacuum_into(where.file, target)
    else:
        prepare.create_database(sqlite_location(target), revision)
        with (
            prepare.connect(where, reader_engine(where, without_writer=True)) as source,
            prepare.connect(
                sqlite_location(target), migration_engine(sqlite_location(target))
            ) as copy,
            source.begin(),
            copy.begin(),
        ):
            copy_rows(source, copy)
    return revision


def merge_wal(file: Path) -> None:
    """Merge the WAL into a SQLite file, so that the file can be moved alone."""
    engine = migration_engine(sqlite_location(file))
    try:
        raw = engine.raw_connection()
        raw.cursor().execute("PRAGMA journal_mode=DELETE")
        raw.close()
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        raise translate_error(error, str(file)) from error
    finally:
        engine.dispose()


def vacuum_into(file: Path, target: Path) -> None:
    """Write the content of a SQLite file into a new file."""
    engine = copy_engine(file)
    raw = None
    try:
        raw = engine.raw_connection()
        raw.cursor().execute("VACUUM INTO ?", (str(target),))
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        raise translate_error(error, str(file)) from error
    finally:
        if raw is not None:
            raw.close()
        engine.dispose()


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy all rows of one database into the empty tables of another at the same revision."""
    from_there, to_there = sa.MetaData(), sa.MetaData()
    from_there.reflect(source)
    to_there.reflect(target)
    for table in to_there.sorted_tables:  # owners come before the rows that refer to them
        if table.name == _VERSION_TABLE:
            continue
        other = from_there.tables[table.name]
        wanted = sa.select(*(other.c[column.name] for column in table.c))
        found = source.execution_options(yield_per=_BATCH_ROWS).execute(wanted)
        for rows in found.mappings().partitions():
            target.execute(sa.insert(table), [dict(row) for row in rows])
        counted = [
            connection.scalar(sa.select(sa.func.count()).select_from(each))
            for connection, each in ((source, other), (target, table))
        ]
        if counted[0] != counted[1]:
            msg = f"Only {counted[1]} of {counted[0]} rows of the table {table.name} were copied"
            raise StoreError(msg)


def replace_contents(where: DatabaseLocation, file: Path, old_schema: str, mark: str) -> bool:
    """Replace the content of a PostgreSQL database with a copy, all or nothing.

    The old tables move into the schema `old_schema`; returns True if there were any. The copy must
    be up to date. `mark` is stored with it, see `sessions.store.after_restore.has_mark`.
    """
    copy = sqlite_location(file)
    with (
        prepare.connect(where, migration_engine(where)) as target,
        prepare.migration_lock(target),
        prepare.connect(copy, reader_engine(copy, without_writer=True)) as source,
        target.begin(),
        source.begin(),
    ):
        there = prepare.current_revision(target) is not None
        if there:
            _move_to_schema(target, old_schema)
        prepare.create_tables(target)
        copy_rows(source, target)
        set_mark(target, mark)
        _advance_sequences(target)
    return there


def has_tables(where: DatabaseLocation) -> bool:
    """Return True if a PostgreSQL database has tables of this program."""
    with (
        prepare.connect(where, reader_engine(where, without_writer=True)) as connection,
        connection.begin(),
    ):
        return prepare.current_revision(connection) is not None


def check_unused(where: DatabaseLocation) -> None:
    """Check that no daemon is connected to a PostgreSQL database.

    The server may list the connections of a daemon that has just ended for a moment longer.
    """
    deadline = time.monotonic() + _DISCONNECT_SECONDS
    with prepare.connect(where, reader_engine(where, without_writer=True)) as connection:
        while _has_other_connections(connection):
            if time.monotonic() >= deadline:
                msg = f"A Holdfast is connected to {where.name}; stop it first"
                raise StoreUnavailable(msg)
            time.sleep(_DISCONNECT_POLL_SECONDS)


def _has_other_connections(connection: Connection) -> bool:
    with connection.begin():  # within a transaction the server repeats its first answer
        return bool(connection.scalar(sa.text(_OTHER_CONNECTIONS)))


def check_integrity(file: Path) -> None:
    """Check that a copy is readable and consistent."""
    copy = sqlite_location(file)
    with (
        prepare.connect(copy, reader_engine(copy, without_writer=True)) as connection,
        connection.begin(),
    ):
        damage = soundness.find_damage(connection)
    if damage:
        msg = f"The copy of the database is damaged: {damage[0]}"
        raise StoreCorrupt(msg)


def _move_to_schema(connection: Connection, schema: str) -> None:
    names = sa.inspect(connection).get_table_names()
    quoted = connection.dialect.identifier_preparer.quote
    connection.execute(sa.schema.CreateSchema(schema))
    for kind, name in (*(("TABLE", name) for name in names), ("SEQUENCE", TIMELINE)):
        connection.exec_driver_sql(f"ALTER {kind} {quoted(name)} SET SCHEMA {quoted(schema)}")


def _advance_sequences(connection: Connection) -> None:
    """Set the sequences to continue after the copied numbers."""
    connection.exec_driver_sql(
        "SELECT setval(pg_get_serial_sequence('messages', 'id'), max(id)) FROM messages "
        "HAVING max(id) IS NOT NULL"
    )
    connection.exec_driver_sql(
        f"SELECT setval('{TIMELINE}', max(seq)) FROM "  # noqa: S608 - a constant
        "(SELECT seq FROM inbox UNION ALL SELECT seq FROM outbox) AS both_of_them "
        "HAVING max(seq) IS NOT NULL"
    )
