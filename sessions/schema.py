"""The tables, the same on SQLite and PostgreSQL.

Who changes a table here adds a step in `migrations/versions` and names it in `migrations`; a test
compares both. Moments are milliseconds since 1970. Partial indexes keep what is looked up all the
time (active, waiting, running, to be delivered) as small as it is, however much lies behind it.
Nothing that a turn writes may need more pages when there is more history: hence no index on
anything that changes with every message.
"""

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

TIMELINE = "timeline"
"""The sequence on PostgreSQL that numbers inbox and outbox together; SQLite counts in memory."""


class Words(sa.TypeDecorator[str]):
    """Text that came from outside: what no database can hold is replaced, not refused.

    PostgreSQL takes no NUL, UTF-8 has no lone surrogates, and both occur in what models, tools and
    people send.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Called by SQLAlchemy for every value on its way in."""
        return None if value is None else storable(value)


def storable(text: str) -> str:
    """Replace the characters that a database cannot hold."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        text = text.encode("utf-8", "surrogateescape_or_replace").decode()
    return text


metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
    }
)
