"""The tables, the same on SQLite and PostgreSQL.

A change to a table needs a migration in `migrations/versions`, named in `migrations`; a test
compares both. Times are milliseconds since 1970. Partial indexes keep frequent lookups small
(active, waiting, running, undelivered), however large the tables are. The writes of a turn must
cost the same with any length of history, so no index covers a column that changes with every
message.
"""

import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from sessions.values.address import Address, read_address, write_address

_WHERE = "where"
_UNITS_PER_DOLLAR = 1_000_000_000  # a token may cost less than a millionth of a dollar
MAX_DOLLARS = 1_000_000
TIMELINE = "timeline"
"""Name of the PostgreSQL sequence that numbers inbox and outbox; SQLite counts in memory."""

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
    }
)


def make_storable(text: str) -> str:
    """Replace characters that a database cannot hold; models, tools and people do send them.

    PostgreSQL rejects NUL, and lone surrogates are not valid UTF-8.
    """
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


# Compared byte by byte, as SQLite does: prefix searches use the index, and the order is fixed.
NameType = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Text made by this program: ids, states, kinds."""


class SafeText(sa.TypeDecorator[str]):
    """Text from outside."""

    impl: TypeEngine[str] | type[TypeEngine[str]] = NameType
    cache_ok: bool | None = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Replace characters that the database cannot hold."""
        return None if value is None else make_storable(value)


class ExactText(sa.TypeDecorator[str]):
    """Text from outside that must be stored exactly, hence as bytes."""

    impl: TypeEngine[bytes] | type[TypeEngine[bytes]] = sa.LargeBinary
    cache_ok: bool | None = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """Encode as UTF-8, with lone surrogates passed through."""
        return None if value is None else value.encode("utf-8", "surrogatepass")

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Decode the stored bytes."""
        return None if value is None else value.decode("utf-8", "surrogatepass")


class AddressText(sa.TypeDecorator[Address]):
    """The address of a chat, as the JSON text by which its rows are found."""

    impl: TypeEngine[str] | type[TypeEngine[str]] = NameType
    cache_ok: bool | None = True

    def process_bind_param(self, value: Address | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Encode as JSON."""
        return None if value is None else write_address(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Address | None:  # noqa: ARG002
        """Decode the stored text."""
        return None if value is None else read_address(value)


class Dollars(sa.TypeDecorator[float]):
    """Money as whole billionths of a dollar, so that sums are exact on both engines."""

    impl: TypeEngine[int] | type[TypeEngine[int]] = sa.BigInteger
    cache_ok: bool | None = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Round; an impossible amount is stored as unknown, because services send nonsense."""
        if value is None or not math.isfinite(value) or abs(value) > MAX_DOLLARS:
            return None
        return round(value * _UNITS_PER_DOLLAR)

    def process_result_value(self, value: Any, dialect: Dialect) -> float | None:  # noqa: ANN401, ARG002
        """Convert back to dollars; PostgreSQL returns a sum as a decimal number."""
        return None if value is None else int(value) / _UNITS_PER_DOLLAR


MomentType = sa.BigInteger()
SerialType = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A row number; on SQLite only INTEGER becomes an alias of the rowid."""


def _id(name: str = "id") -> sa.Column[Any]:
    return sa.Column(name, NameType, primary_key=True)


def _owner_column(table: str, name: str, *, primary_key: bool = False) -> sa.Column[Any]:
    """A reference to a row of another table; deleted with that row."""
    owner = sa.ForeignKey(f"{table}.id", ondelete="CASCADE")
    return sa.Column(name, NameType, owner, nullable=False, primary_key=primary_key)


def _text(name: str, *, empty: bool = False) -> sa.Column[Any]:
    """A text column; `empty` sets an empty default."""
    return sa.Column(name, SafeText, nullable=False, server_default="" if empty else None)


def _address() -> sa.Column[Any]:
    return sa.Column("address", AddressText, nullable=False)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    return sa.Index(
        name, *columns, unique=unique, sqlite_where=sa.text(where), info={_WHERE: where}
    )


def set_partial_indexes(dialect: Dialect) -> None:
    """Tell PostgreSQL which indexes are partial, before creating them.

    Declaring that in the tables would load the PostgreSQL dialect (17 ms) for SQLite as well.
    """
    if dialect.name != "sqlite":
        for table in metadata.tables.values():
            for index in table.indexes:
                if _WHERE in index.info:
                    index.dialect_kwargs[f"{dialect.name}_where"] = sa.text(index.info[_WHERE])


sessions = sa.Table(
    "sessions",
    metadata,
    _id(),
    _text("key"),
    _address(),
    sa.Column("state", NameType, nullable=False),
    sa.Column("reason", NameType),
    sa.Column("title", SafeText),
    _number("messages"),
    sa.Column("created_at", MomentType, nullable=False),
    sa.Column("updated_at", MomentType, nullable=False),
    sa.Index("ix_sessions_key", "key", "id"),
    _partial("ux_sessions_active", "key", where="state = 'active'", unique=True),
    _partial("ix_sessions_suspended", "key", "updated_at", where="state = 'suspended'"),
    sqlite_with_rowid=False,
)

# Not a column of `sessions`, because that row is rewritten with every message.
summaries = sa.Table(
    "summaries",
    metadata,
    _owner_column("sessions", "session_id", primary_key=True),
    _number("upto"),  # id of the newest row that the summary covers
    _text("text"),
)

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("id", SerialType, primary_key=True),
    _owner_column("sessions", "session_id"),
    sa.Column("turn_id", NameType, nullable=False),
    sa.Column("at", MomentType, nullable=False),
    sa.Column("taken_back", sa.Boolean, nullable=False, server_default=sa.false()),
    # A `Message` as JSON, because many are read at once.
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("ix_messages_session", "session_id", "id"),
)

inbox = sa.Table(
    "inbox",
    metadata,
    sa.Column("seq", SerialType, primary_key=True, autoincrement=False),
    sa.Column("id", NameType, nullable=False, unique=True),
    _text("source"),
    _text("event"),
    _text("key"),
    _address(),
    sa.Column("state", NameType, nullable=False),
    sa.Column("payload", sa.LargeBinary),
    sa.Column("received_at", MomentType, nullable=False),
    _text("decision"),
    sa.Column("turn_id", NameType),
    sa.Column("session_id", NameType),
    sa.Column("settled_at", MomentType),
    sa.UniqueConstraint("source", "event"),
    _partial("ix_inbox_waiting", "key", "seq", where="state = 'waiting'"),
    _partial("ix_inbox_command", "seq", where="state = 'command'"),
    _partial("ix_inbox_held", "session_id", "seq", where="state = 'held'"),
    _partial("ix_inbox_ignored", "received_at", where="state = 'ignored'"),
    _partial("ix_inbox_turn", "turn_id", where="turn_id IS NOT NULL"),
    _partial("ix_inbox_address", "address", "seq", where="payload IS NOT NULL"),
)

turns = sa.Table(
    "turns",
    metadata,
    _id(),
    _owner_column("sessions", "session_id"),
    _text("key"),
    _address(),
    sa.Column("state", NameType, nullable=False),
    _text("request"),
    sa.Column("started_at", MomentType, nullable=False),
    sa.Column("finished_at", MomentType),
    _number("attempts"),
    sa.Column("cause", SafeText),
    _text("partial", empty=True),
    _number("resumed"),
    sa.Column("taken_back", sa.Boolean, nullable=False, server_default=sa.false()),
    _text("person", empty=True),
    sa.Index("ix_turns_session", "session_id", "id"),
    sa.Index("ix_turns_person", "person", "started_at"),  # neither column ever changes
    _partial("ix_turns_running", "key", "id", where="state = 'running'"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    _owner_column("turns", "turn_id", primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    _text("target"),
    sa.Column("started_at", MomentType, nullable=False),
    sa.Column("finished_at", MomentType),
    sa.Column("verdict", SafeText),
    _text("phase", empty=True),
    _number("received"),
    _text("cause", empty=True),
    _text("request_id", empty=True),
    _number("input_tokens"),
    _number("output_tokens"),
    _number("cached_tokens"),
    sa.Column("cost", Dollars),
    _text("request_hash", empty=True),
    sqlite_with_rowid=False,
)

tool_runs = sa.Table(
    "tool_runs",
    metadata,
    _owner_column("turns", "turn_id", primary_key=True),
    sa.Column("call_id", SafeText, primary_key=True),
    _text("tool"),
    _text("risk"),
    _text("arguments"),
    sa.Column("started_at", MomentType, nullable=False),
    sa.Column("finished_at", MomentType),
    sa.Column("ok", sa.Boolean),
    sa.Column("result", SafeText),
    _number("attempt"),  # model request of the turn that made the call; 0: unknown
)

approvals = sa.Table(
    "approvals",
    metadata,
    _id(),
    _text("key"),
    sa.Column("session_id", NameType, nullable=False),
    _owner_column("turns", "turn_id"),
    _text("call_id"),
    _text("tool"),
    sa.Column("arguments", ExactText, nullable=False),
    _text("person"),
    sa.Column("by_requester", sa.Boolean, nullable=False),
    _address(),
    sa.Column("asked_at", MomentType, nullable=False),
    sa.Column("expires_at", MomentType, nullable=False),
    sa.Column("state", NameType, nullable=False),
    _text("answered_by"),
    sa.Column("answered_at", MomentType),
    _text("reason"),
    _partial("ix_approvals_open", "key", "asked_at", "id", where="state = 'open'"),
    _partial("ix_approvals_allowed", "session_id", "asked_at", "id", where="state = 'allowed'"),
)

# An item gets a number when it is created, and a new one when final, so that a reader of the
# timeline does not miss an item that was created before that reader's position and finished after.
outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("seq", SerialType, primary_key=True, autoincrement=False),
    sa.Column("id", NameType, nullable=False, unique=True),
    _address(),
    sa.Column("kind", NameType, nullable=False),
    sa.Column("state", NameType, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("created_at", MomentType, nullable=False),
    sa.Column("shown", sa.LargeBinary, nullable=False),
    sa.Column("turn_id", NameType),
    sa.Column("reply_to", SafeText),
    sa.Column("final", sa.Boolean, nullable=False),
    _number("tries"),
    sa.Column("not_before", MomentType, nullable=False),
    sa.Column("error", SafeText),
    sa.Column("settled_at", MomentType),
    _partial("ix_outbox_open", "seq", where="state IN ('pending', 'attempting', 'unknown')"),
    _partial("ix_outbox_address", "address", "seq", where="final"),
)

# Spending per day and budget. `tokens` and `cost` count against the limit: used amounts and the
# reservations (`held_…`) of running requests, whose usage is not known yet.
budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("day", NameType, primary_key=True),
    sa.Column("scope", SafeText, primary_key=True),
    _number("tokens"),
    sa.Column("cost", Dollars, nullable=False, server_default="0"),
    _number("held_tokens"),
    sa.Column("held_cost", Dollars, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

shelves = sa.Table(
    "shelves",
    metadata,
    sa.Column("shelf", SafeText, primary_key=True),
    sa.Column("name", SafeText, primary_key=True),
    _text("value"),
    sqlite_with_rowid=False,
)

timeline = sa.Sequence(TIMELINE, metadata=metadata)
