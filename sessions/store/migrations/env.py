"""Alembic environment; the connection is passed in by `sessions.store.prepare`."""

from alembic import context

from sessions.store.schema import metadata, set_partial_indexes

connection = context.config.attributes["connection"]
set_partial_indexes(connection.dialect)
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    # All migrations or none, even where Alembic does not expect a database to support that: after a
    # failure, the version that wrote the database can still use the database.
    transaction_per_migration=False,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
