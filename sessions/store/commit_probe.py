"""Determines the outcome of a PostgreSQL commit whose answer was lost.

Every writer has a row with a number, and each commit increments that number. The UPDATE
travels in one message with the COMMIT and costs no round trip. A new connection reads the
number first, and so learns whether the last commit happened. If not, the number is incremented
once more before anything is repeated: a lost commit that still arrives finds an unexpected
number, has no value to write, and is rejected.
"""

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection
from sqlalchemy.engine.base import Transaction

from sessions.store.schema import shelves

_SHELF = "writers"

MAX_WRITERS = 100
"""Rows kept when a writer is added: those with the latest commits.

A killed process leaves a row. A running one commits often, and needs its row only until it has
learned the outcome of a commit.
"""

_of_writer = (shelves.c.shelf == _SHELF, shelves.c.name == given("writer"))
_READ_NUMBER = sa.select(shelves.c.value).where(*_of_writer).with_for_update()
_ADD_WRITER = sa.insert(shelves).values(shelf=_SHELF, name=given("writer"), value=given("number"))
_SET_NUMBER = sa.update(shelves).where(*_of_writer).values(value=given("number"))
_REMOVE_KILLED = sa.text(
    # `xmin` is the transaction of the last commit of a writer.
    f"DELETE FROM shelves WHERE shelf = '{_SHELF}' AND name IN (SELECT name FROM shelves "  # noqa: S608 - only our own names
    f"WHERE shelf = '{_SHELF}' ORDER BY age(xmin) OFFSET :kept FOR UPDATE SKIP LOCKED)"
)
_REMOVE_WRITER = sa.delete(shelves).where(*_of_writer)
_COMMIT = (
    "UPDATE shelves SET value = CASE value WHEN '{before}' THEN '{number}' END "  # noqa: S608 - only our own names and numbers
    f"WHERE shelf = '{_SHELF}' AND name = '{{writer}}'; "
    # Fails if the row is gone, because then nothing would tell the outcome.
    f"SELECT 1 / count(*) FROM shelves WHERE shelf = '{_SHELF}' AND name = '{{writer}}'; COMMIT"
)


class CommitTracker:
    """The commits of one writer, one at a time, over all connections."""

    def __init__(self) -> None:
        self._writer = ""
        self._number = 0  # number after the last commit

    def resume_on(self, connection: Connection) -> bool:
        """Take over a new connection; return True if the last commit had happened.

        If this raises, the outcome is still unknown; call again with another connection.
        """
        with connection.begin():
            found = (
                connection.scalar(_READ_NUMBER, {"writer": self._writer}) if self._writer else None
            )
            if found == str(self._number):
                return True
            number = max(int(found or 0), self._number) + 1
            if found is None:  # a transaction id is unique among writers
                writer = str(connection.scalar(sa.select(sa.func.txid_current())))
            else:
                writer = self._writer
            row = {"writer": writer, "number": str(number)}
            connection.execute(_ADD_WRITER if found is None else _SET_NUMBER, row)
            if found is None:
                connection.execute(_REMOVE_KILLED, {"kept": MAX_WRITERS})
        self._writer, self._number = writer, number
        return False

    def commit(self, connection: Connection, transaction: Transaction) -> None:
        """Commit; if the connection breaks meanwhile, `resume_on` determines the outcome."""
        before, self._number = self._number, self._number + 1
        words = {"before": before, "number": self._number, "writer": self._writer}
        connection.exec_driver_sql(_COMMIT.format_map(words))
        transaction.commit()  # nothing left to do on the server

    def close(self, connection: Connection) -> None:
        """Remove the writer's row; there are no more commits."""
        with connection.begin():
            connection.execute(_REMOVE_WRITER, {"writer": self._writer})
