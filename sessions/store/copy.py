"""Copies a database whole: into a file that both engines can be filled from, and out of it.

The copy is a SQLite file with our tables, whichever engine the rows come from. It shows one moment,
holds no page of what was deleted, and is made beside a daemon that goes on writing: of SQLite by
`VACUUM INTO`, which reads one snapshot (the backup API would begin anew with each commit of another
process), of PostgreSQL row by row in one REPEATABLE READ transaction.
"""

import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sessions.errors import StoreCorrupt, StoreError, StoreUnavailable
from sessions.store import prepare, soundness
from sessions.store.engine import Place, copier, migrator, place, reader, translated
from sessions.store.schema import TIMELINE

_AT_ONCE = 500
_STEPS = "alembic_version"
_OURS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'holdfast' AND pid <> pg_backend_pid()
"""


def as_place(file: Path) -> Place:
    """A SQLite file as a place."""
    return place(f"sqlite:///{file}")


def snapshot(where: Place, target: Path) -> str:
    """Copy a database into a new file, as it is at one moment; tells which steps it has seen.

    It may be one of an older version, and may be in use. Raises what opening it would.
    """
    revision = prepare.found_in(where)
    if where.file:
        vacuum_into(where.file, target)
    else:
        prepare.make(as_place(target), revision)
        with (
            prepare.connected(where, reader(where, alone=True)) as source,
            prepare.connected(as_place(target), migrator(as_place(target))) as copy,
            source.begin(),
            copy.begin(),
        ):
            copy_rows(source, copy)
    return revision


def as_one_file(file: Path) -> None:
    """Leave nothing of a SQLite database beside its file, so that it can be moved alone."""
    engine = migrator(as_place(file))
    try:
        raw = engine.raw_connection()
        raw.cursor().execute("PRAGMA journal_mode=DELETE")
        raw.close()
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        raise translated(error, str(file)) from error
    finally:
        engine.dispose()


def vacuum_into(file: Path, target: Path) -> None:
    """Let SQLite write all that is in a file into another one."""
    engine = copier(file)
    raw = None
    try:
        raw = engine.raw_connection()
        raw.cursor().execute("VACUUM INTO ?", (str(target),))
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        raise translated(error, str(file)) from error
    finally:
        if raw is not None:
            raw.close()
        engine.dispose()


def copy_rows(source: Connection, target: Connection) -> None:
    """Fill the tables of a database with all rows of another one; both are at the same step."""
    from_there, to_there = sa.MetaData(), sa.MetaData()
    from_there.reflect(source)
    to_there.reflect(target)
    for table in to_there.sorted_tables:  # whatever belongs to a row comes after it
        if table.name == _STEPS:
            continue
        other = from_there.tables[table.name]
        wanted = sa.select(*(other.c[column.name] for column in table.c))
        found = source.execution_options(yield_per=_AT_ONCE).execute(wanted)
        for rows in found.mappings().partitions():
            target.execute(sa.insert(table), [dict(row) for row in rows])
        counted = [
            connection.scalar(sa.select(sa.func.count()).select_from(each))
            for connection, each in ((source, other), (target, table))
        ]
        if counted[0] != counted[1]:
            msg = f"Of {counted[0]} rows of the table {table.name} only {counted[1]} arrived"
            raise StoreError(msg)


def fill(where: Place, file: Path, aside: str) -> bool:
    """Put a copy in place of what is in a PostgreSQL database, all at once or not at all.

    What is there goes into a schema of its own, called `aside`; tells whether there was anything.
    The copy must be up to date.
    """
    copy = as_place(file)
    with (
        prepare.connected(where, migrator(where)) as target,
        prepare.alone(target),
        prepare.connected(copy, reader(copy, alone=True)) as source,
        target.begin(),
        source.begin(),
    ):
        there = prepare.revision(target) is not None
        if there:
            _put_aside(target, aside)
        prepare.create(target)
        copy_rows(source, target)
        _count_on(target)
    return there


def is_there(where: Place) -> bool:
    """Whether a PostgreSQL database has tables of ours."""
    with prepare.connected(where, reader(where, alone=True)) as connection, connection.begin():
        return prepare.revision(connection) is not None


def check_unused(where: Place) -> None:
    """Make sure that no daemon works with a PostgreSQL database."""
    with prepare.connected(where, reader(where, alone=True)) as connection, connection.begin():
        if connection.scalar(sa.text(_OURS)):
            msg = f"A Holdfast is connected to {where.name}; stop it first"
            raise StoreUnavailable(msg)


def check_sound(file: Path) -> None:
    """Make sure that a copy can be read and that nothing in it contradicts itself."""
    copy = as_place(file)
    with prepare.connected(copy, reader(copy, alone=True)) as connection, connection.begin():
        damage = soundness.damage(connection)
    if damage:
        msg = f"The copy of the database is damaged: {damage[0]}"
        raise StoreCorrupt(msg)


def _put_aside(connection: Connection, schema: str) -> None:
    names = sa.inspect(connection).get_table_names()
    quoted = connection.dialect.identifier_preparer.quote
    connection.execute(sa.schema.CreateSchema(schema))
    for kind, name in (*(("TABLE", name) for name in names), ("SEQUENCE", TIMELINE)):
        connection.exec_driver_sql(f"ALTER {kind} {quoted(name)} SET SCHEMA {quoted(schema)}")


def _count_on(connection: Connection) -> None:
    """Let the counters go on behind the rows that brought their numbers along."""
    connection.exec_driver_sql(
        "SELECT setval(pg_get_serial_sequence('messages', 'id'), max(id)) FROM messages "
        "HAVING max(id) IS NOT NULL"
    )
    connection.exec_driver_sql(
        f"SELECT setval('{TIMELINE}', max(seq)) FROM "  # noqa: S608 - a name of our own
        "(SELECT seq FROM inbox UNION ALL SELECT seq FROM outbox) AS both_of_them "
        "HAVING max(seq) IS NOT NULL"
    )
