"""A table for summaries, hashes of model requests, and the request behind each tool call.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger()


def upgrade() -> None:
    """Move the summaries; the new columns stay unknown for existing rows."""
    op.create_table(
        "summaries",
        sa.Column("session_id", _TEXT, nullable=False),
        sa.Column("upto", _NUMBER, nullable=False, server_default="0"),
        sa.Column("text", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("session_id", name="pk_summaries"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_summaries_sessions", ondelete="CASCADE"
        ),
    )
    op.execute(
        "INSERT INTO summaries (session_id, upto, text) "
        "SELECT id, summary_upto, summary FROM sessions WHERE summary <> '' OR summary_upto <> 0"
    )
    op.drop_column("sessions", "summary")
    op.drop_column("sessions", "summary_upto")
    op.add_column("attempts", sa.Column("request_hash", _TEXT, nullable=False, server_default=""))
    op.add_column("tool_runs", sa.Column("attempt", _NUMBER, nullable=False, server_default="0"))
