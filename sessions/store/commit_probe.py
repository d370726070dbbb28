"""Tells what became of a commit whose answer was lost on its way from PostgreSQL.

Each commit of a writer moves a number in a row of its own on by one. The statement travels in one
message with the COMMIT, so that nobody waits for it. A new connection reads the number first, and
so knows whether the last commit was carried out. If it was not, the number is moved on once more
before anything is repeated: should that commit still be on its way, then it finds a number that it
does not expect, has none to write, and is refused.
"""

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection
from sqlalchemy.engine.base import Transaction

from sessions.store.schema import shelves

_SHELF = "writers"
_of_writer = (shelves.c.shelf == _SHELF, shelves.c.name == given("writer"))
_READ_NUMBER = sa.select(shelves.c.value).where(*_of_writer).with_for_update()
_ADD_WRITER = sa.insert(shelves).values(shelf=_SHELF, name=given("writer"), value=given("number"))
_SET_NUMBER = sa.update(shelves).where(*_of_writer).values(value=given("number"))
_REMOVE_WRITER = sa.delete(shelves).where(*_of_writer)
_COMMIT = (
    "UPDATE shelves SET value = CASE value WHEN '{before}' THEN '{number}' END "  # noqa: S608 - names and numbers of our own
    f"WHERE shelf = '{_SHELF}' AND name = '{{writer}}'; COMMIT"
)


class CommitTracker:
    """The commits of one writer, over all its connections, one at a time."""

    def __init__(self) -> None:
        self._writer = ""
        self._number = 0  # what the last commit was to leave behind

    def resume_on(self, connection: Connection) -> bool:
        """Take a new connection into use; whether the last commit was carried out.

        When this raises, nothing is settled, and it is asked again on another connection.
        """
        with connection.begin():
            found = (
                connection.scalar(_READ_NUMBER, {"writer": self._writer}) if self._writer else None
            )
            if found == str(self._number):
                return True
            number = max(int(found or 0), self._number) + 1
            if found is None:  # no other transaction has the name that this one makes
                writer = str(connection.scalar(sa.select(sa.func.txid_current())))
            else:
                writer = self._writer
            row = {"writer": writer, "number": str(number)}
            connection.execute(_ADD_WRITER if found is None else _SET_NUMBER, row)
        self._writer, self._number = writer, number
        return False

    def commit(self, connection: Connection, transaction: Transaction) -> None:
        """Commit; when the connection breaks meanwhile, the next one tells what became of it."""
        before, self._number = self._number, self._number + 1
        words = {"before": before, "number": self._number, "writer": self._writer}
        connection.exec_driver_sql(_COMMIT.format_map(words))
        transaction.commit()  # has nothing left to do on the server

    def close(self, connection: Connection) -> None:
        """Leave nothing behind; there will be no more commits."""
        with connection.begin():
            connection.execute(_REMOVE_WRITER, {"writer": self._writer})
