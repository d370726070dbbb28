"""Queries for small values."""

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.store import schema

_VALUE = sa.select(schema.shelves.c.value).where(
    schema.shelves.c.shelf == given("shelf"), schema.shelves.c.name == given("name")
)
_VALUES = sa.select(schema.shelves.c.name, schema.shelves.c.value).where(
    schema.shelves.c.shelf == given("shelf")
)


def read_value(connection: Connection, shelf: str, name: str) -> str | None:
    """Return a value."""
    found: str | None = connection.scalar(_VALUE, {"shelf": shelf, "name": name})
    return found


def read_values(connection: Connection, shelf: str) -> dict[str, str]:
    """Return all values of a shelf."""
    found = connection.execute(_VALUES, {"shelf": shelf})
    return {name: value for name, value in found}  # noqa: C416 - rows are not plain pairs
