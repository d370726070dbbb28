"""Approvals, summaries of sessions, costs of requests, and requesters of turns.

Revision ID: 0002
Revises: 0001
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger()


def _text(name: str, *, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=False, server_default=default)


def _number(name: str, *, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, _NUMBER, nullable=null, server_default=default)


def upgrade() -> None:
    """Add new tables and columns; existing rows stay unchanged."""
    op.add_column("sessions", _text("summary", default=""))
    op.add_column("sessions", _number("summary_upto", default="0"))
    op.add_column("turns", _text("person", default=""))
    op.create_index("ix_turns_person", "turns", ["person", "started_at"])
    op.add_column("attempts", _number("cached_tokens", default="0"))
    op.add_column("attempts", _number("cost", null=True))
    _approvals()


def _approvals() -> None:
    op.create_table(
        "approvals",
        _text("id"),
        _text("key"),
        _text("session_id"),
        _text("turn_id"),
        _text("call_id"),
        _text("tool"),
        sa.Column("arguments", sa.LargeBinary(), nullable=False),
        _text("person"),
        sa.Column("by_requester", sa.Boolean(), nullable=False),
        _text("address"),
        _number("asked_at"),
        _number("expires_at"),
        _text("state"),
        _text("answered_by"),
        _number("answered_at", null=True),
        _text("reason"),
        sa.PrimaryKeyConstraint("id", name="pk_approvals"),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_approvals_turns", ondelete="CASCADE"
        ),
    )
    for state, owner in (("open", "key"), ("allowed", "session_id")):
        condition = sa.text(f"state = '{state}'")
        op.create_index(
            f"ix_approvals_{state}",
            "approvals",
            [owner, "asked_at", "id"],
            sqlite_where=condition,
            postgresql_where=condition,
        )
