"""Small values, and the database itself."""

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions import schema

_VALUE = sa.select(schema.shelves.c.value).where(
    schema.shelves.c.shelf == given("shelf"), schema.shelves.c.name == given("name")
)
_VALUES = sa.select(schema.shelves.c.name, schema.shelves.c.value).where(
    schema.shelves.c.shelf == given("shelf")
)


def value(connection: Connection, shelf: str, name: str) -> str | None:
    """Read a value."""
    found: str | None = connection.scalar(_VALUE, {"shelf": shelf, "name": name})
    return found


def values(connection: Connection, shelf: str) -> dict[str, str]:
    """Read all values of a shelf."""
    found = connection.execute(_VALUES, {"shelf": shelf})
    return {name: value for name, value in found}  # noqa: C416 - rows are not quite pairs


def integrity(connection: Connection) -> str:
    """Let SQLite check its file; PostgreSQL checks what it reads by itself."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.literal(1)))
        return "ok"
    return "\n".join(connection.exec_driver_sql("PRAGMA integrity_check").scalars())
