"""Alembic's way in: the connection comes from whoever started it (`sessions.store.prepare`)."""

from alembic import context

from sessions.store.schema import metadata, set_partial_indexes

connection = context.config.attributes["connection"]
set_partial_indexes(connection.dialect)
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    # All steps or none, also where Alembic does not expect that of a database: after one that
    # fails, the version that wrote the database can go on with it.
    transaction_per_migration=False,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
