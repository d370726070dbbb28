"""Returns unused space of a SQLite file to the disk; no other process may use the file meanwhile.

Files created by a recent version shrink page by page (`DataRemoval.release_free_pages`); a file of
an older version has to be rewritten once for that.
"""

import sqlite3

from sessions.store import prepare
from sessions.store.engine import DatabaseLocation, migration_engine, translate_error

_INCREMENTAL = 2
_MIN_FREE_SHARE = 10  # one tenth of the file


def vacuum_database(where: DatabaseLocation) -> tuple[int, int] | None:
    """Rewrite a file if that pays; return the size in bytes before and after."""
    if where.file is None:
        return None
    before = where.file.stat().st_size
    with prepare.connect(where, migration_engine(where)) as connection:
        raw = connection.connection.driver_connection
        assert raw is not None  # noqa: S101 - the engine is connected
        try:
            mode, free, pages = (
                raw.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("auto_vacuum", "freelist_count", "page_count")
            )
            if mode == _INCREMENTAL and free * _MIN_FREE_SHARE < pages:
                return None
            raw.execute("VACUUM")  # also applies the auto_vacuum mode that the engine has set
        except sqlite3.Error as error:
            raise translate_error(error, where.name) from error
    return before, where.file.stat().st_size
