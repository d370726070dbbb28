"""Looking at a database from outside tells the same of every kind."""

import asyncio

from sessions.store import prepare
from sessions.store.engine import place
from sessions.store.inspect import examine
from sessions.store.migrations import HEAD
from tests.fakes import postgres


async def test_a_database_is_looked_at_from_outside(store_url: str) -> None:
    await asyncio.to_thread(prepare.prepare, place(store_url))
    found = await asyncio.to_thread(examine, store_url, seconds=10)
    assert (found.there, found.version, found.damage, found.trouble) == (True, HEAD, "", "")
    assert found.size > 0
    assert not found.is_newer
    assert not found.is_older


def test_a_database_without_tables_has_no_version(postgres_server: postgres.Server) -> None:
    found = examine(postgres_server.database(), seconds=10)
    assert (found.version, found.trouble) == (None, "")
