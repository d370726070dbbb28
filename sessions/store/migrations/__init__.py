"""The steps from one form of the tables to the next, run when the store opens.

A new step is a file in `versions`, made by hand or by `alembic revision`, whose number is added to
`REVISIONS` here: the store compares it with the number in the database before it imports Alembic at
all. A database that is not there yet is made from `sessions.store.schema` in one go; a test proves that
both ways lead to the same tables.
"""

REVISIONS = ("0001", "0002", "0003", "0004_budgets")
"""All steps, the oldest first."""
HEAD = REVISIONS[-1]
