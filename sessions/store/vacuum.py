"""Gives room back to the disk that a SQLite file does not use; nobody else may use the file then.

A file of a newer version does so by itself, page by page (`Forgetting.shrink`); one that an older
version made is written anew for that once.
"""

import sqlite3

from sessions.store import prepare
from sessions.store.engine import DatabaseLocation, migration_engine, translate_error

_INCREMENTAL = 2
_MIN_FREE_SHARE = 10  # a tenth of the file


def vacuum_database(where: DatabaseLocation) -> tuple[int, int] | None:
    """Write a file anew where that pays; gives its size before and after, in bytes."""
    if where.file is None:
        return None
    before = where.file.stat().st_size
    with prepare.connect(where, migration_engine(where)) as connection:
        raw = connection.connection.driver_connection
        assert raw is not None  # noqa: S101 - it is connected
        try:
            mode, free, pages = (
                raw.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("auto_vacuum", "freelist_count", "page_count")
            )
            if mode == _INCREMENTAL and free * _MIN_FREE_SHARE < pages:
                return None
            raw.execute("VACUUM")  # the engine has asked for the mode that it gets by this
        except sqlite3.Error as error:
            raise translate_error(error, where.name) from error
    return before, where.file.stat().st_size
