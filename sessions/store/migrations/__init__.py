"""Migrations between versions of the tables, run when the store opens.

A migration is a file in `versions`, written by hand or by `alembic revision`. Add its revision to
`REVISIONS`: the store compares that list with the revision in the database before it imports
Alembic. A new database is created directly from `sessions.store.schema`; a test checks that both
ways lead to the same tables.
"""

REVISIONS = ("0001", "0002", "0003", "0004_budgets")
"""All revisions, oldest first."""
HEAD = REVISIONS[-1]
