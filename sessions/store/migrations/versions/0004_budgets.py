"""Spending per day and budget.

Revision ID: 0004_budgets
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004_budgets"
down_revision = "0003"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create an empty table: a limit counts from the day of its configuration."""
    op.create_table(
        "budgets",
        sa.Column("day", _NAME, nullable=False),
        sa.Column("scope", _NAME, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
            for name in ("tokens", "cost", "held_tokens", "held_cost")
        ),
        sa.PrimaryKeyConstraint("day", "scope", name="pk_budgets"),
        sqlite_with_rowid=False,
    )
