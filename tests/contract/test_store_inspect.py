"""Inspection from outside gives the same result for both engines."""

import asyncio

from sessions.store import prepare
from sessions.store.engine import parse_url
from sessions.store.inspect import inspect_database
from sessions.store.migrations import HEAD
from tests.fakes import postgres


async def test_a_database_can_be_inspected_from_outside(store_url: str) -> None:
    await asyncio.to_thread(prepare.prepare, parse_url(store_url))
    found = await asyncio.to_thread(inspect_database, store_url, timeout_seconds=10)
    assert (found.exists, found.version, found.damage, found.error) == (True, HEAD, "", "")
    assert found.size_bytes > 0
    assert not found.is_newer
    assert not found.is_older


def test_a_database_without_tables_has_no_version(postgres_server: postgres.Server) -> None:
    found = inspect_database(postgres_server.database(), timeout_seconds=10)
    assert (found.version, found.error) == (None, "")
