"""The first tables.

Revision ID: 0001
Revises: nothing
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger()
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(name: str, *, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=null, server_default=default)


def _number(name: str, *, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, _NUMBER, nullable=null, server_default=default)


def _bytes(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary(), nullable=null)


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def _owner(table: str, column: str, owner: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], [f"{owner}.id"], name=f"fk_{table}_{owner}", ondelete="CASCADE"
    )


def _index(name: str, table: str, *columns: str, where: str = "", unique: bool = False) -> None:
    condition = sa.text(where) if where else None
    op.create_index(
        name,
        table,
        list(columns),
        unique=unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def upgrade() -> None:
    """Create all tables."""
    _sessions()
    _received()
    _turns()
    _shown()
    op.create_table(
        "shelves",
        _text("shelf"),
        _text("name"),
        _text("value"),
        _key("shelves", "shelf", "name"),
        sqlite_with_rowid=False,
    )
    if op.get_bind().dialect.supports_sequences:
        op.execute(sa.schema.CreateSequence(sa.Sequence("timeline")))


def _sessions() -> None:
    op.create_table(
        "sessions",
        _text("id"),
        _text("key"),
        _text("address"),
        _text("state"),
        _text("reason", null=True),
        _text("title", null=True),
        _number("messages", default="0"),
        _number("created_at"),
        _number("updated_at"),
        _key("sessions", "id"),
        sqlite_with_rowid=False,
    )
    _index("ix_sessions_key", "sessions", "key", "id")
    _index("ux_sessions_active", "sessions", "key", where="state = 'active'", unique=True)
    _index("ix_sessions_suspended", "sessions", "key", "updated_at", where="state = 'suspended'")
    op.create_table(
        "messages",
        sa.Column("id", _SERIAL, nullable=False),
        _text("session_id"),
        _text("turn_id"),
        _number("at"),
        _flag("taken_back"),
        sa.Column("body", sa.Text(), nullable=False),
        _key("messages", "id"),
        _owner("messages", "session_id", "sessions"),
    )
    _index("ix_messages_session", "messages", "session_id", "id")


def _received() -> None:
    op.create_table(
        "inbox",
        sa.Column("seq", _SERIAL, nullable=False, autoincrement=False),
        _text("id"),
        _text("source"),
        _text("event"),
        _text("key"),
        _text("address"),
        _text("state"),
        _bytes("payload", null=True),
        _number("received_at"),
        _text("decision"),
        _text("turn_id", null=True),
        _text("session_id", null=True),
        _number("settled_at", null=True),
        _key("inbox", "seq"),
        sa.UniqueConstraint("id", name="uq_inbox_id"),
        sa.UniqueConstraint("source", "event", name="uq_inbox_source_event"),
    )
    _index("ix_inbox_waiting", "inbox", "key", "seq", where="state = 'waiting'")
    _index("ix_inbox_command", "inbox", "seq", where="state = 'command'")
    _index("ix_inbox_held", "inbox", "session_id", "seq", where="state = 'held'")
    _index("ix_inbox_ignored", "inbox", "received_at", where="state = 'ignored'")
    _index("ix_inbox_turn", "inbox", "turn_id", where="turn_id IS NOT NULL")
    _index("ix_inbox_address", "inbox", "address", "seq", where="payload IS NOT NULL")


def _turns() -> None:
    op.create_table(
        "turns",
        _text("id"),
        _text("session_id"),
        _text("key"),
        _text("address"),
        _text("state"),
        _text("request"),
        _number("started_at"),
        _number("finished_at", null=True),
        _number("attempts", default="0"),
        _text("cause", null=True),
        _text("partial", default=""),
        _number("resumed", default="0"),
        _flag("taken_back"),
        _key("turns", "id"),
        _owner("turns", "session_id", "sessions"),
    )
    _index("ix_turns_session", "turns", "session_id", "id")
    _index("ix_turns_running", "turns", "key", "id", where="state = 'running'")
    op.create_table(
        "attempts",
        _text("turn_id"),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        _text("target"),
        _number("started_at"),
        _number("finished_at", null=True),
        _text("verdict", null=True),
        _text("phase", default=""),
        _number("received", default="0"),
        _text("cause", default=""),
        _text("request_id", default=""),
        _number("input_tokens", default="0"),
        _number("output_tokens", default="0"),
        _key("attempts", "turn_id", "number"),
        _owner("attempts", "turn_id", "turns"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tool_runs",
        _text("turn_id"),
        _text("call_id"),
        _text("tool"),
        _text("risk"),
        _text("arguments"),
        _number("started_at"),
        _number("finished_at", null=True),
        sa.Column("ok", sa.Boolean(), nullable=True),
        _text("result", null=True),
        _key("tool_runs", "turn_id", "call_id"),
        _owner("tool_runs", "turn_id", "turns"),
    )


def _shown() -> None:
    op.create_table(
        "outbox",
        sa.Column("seq", _SERIAL, nullable=False, autoincrement=False),
        _text("id"),
        _text("address"),
        _text("kind"),
        _text("state"),
        _bytes("body"),
        _number("created_at"),
        _bytes("shown"),
        _text("turn_id", null=True),
        _text("reply_to", null=True),
        sa.Column("final", sa.Boolean(), nullable=False),
        _number("tries", default="0"),
        _number("not_before"),
        _text("error", null=True),
        _number("settled_at", null=True),
        _key("outbox", "seq"),
        sa.UniqueConstraint("id", name="uq_outbox_id"),
    )
    open_states = "state IN ('pending', 'attempting', 'unknown')"
    _index("ix_outbox_open", "outbox", "seq", where=open_states)
    _index("ix_outbox_address", "outbox", "address", "seq", where="final")
