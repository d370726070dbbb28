"""The database: schema, statements, journal, queries and maintenance."""

from sessions.store.store import SessionStore

__all__ = ["SessionStore"]
