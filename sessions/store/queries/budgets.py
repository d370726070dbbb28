"""Queries for spending per day and budget."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import BudgetUsage
from sessions.store.schema import budgets

_USAGE = sa.select(
    budgets.c.tokens, budgets.c.cost, budgets.c.held_tokens, budgets.c.held_cost
).where(budgets.c.day == given("day"), budgets.c.scope == given("scope"))


def read_usage(connection: Connection, day: str, scopes: Collection[str]) -> dict[str, BudgetUsage]:
    """Return the spending of a few budgets, each looked up by primary key."""
    found = {}
    for scope in scopes:
        row = connection.execute(_USAGE, {"day": day, "scope": scope}).first()
        found[scope] = BudgetUsage(*row) if row else BudgetUsage()
    return found
