"""Alembic's way in: the connection comes from whoever started it (`sessions.opening`)."""

from alembic import context

from sessions.schema import complete, metadata

connection = context.config.attributes["connection"]
complete(connection.dialect)
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    # Each step is whole or not at all, also where Alembic does not expect that of a database.
    transaction_per_migration=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
