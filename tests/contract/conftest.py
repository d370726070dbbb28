"""One store test, every database."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sessions.store import prepare
from sessions.store.engine import parse_url
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.fakes import postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: postgres.Server) -> str:
    """A database with our tables, for one test after the other."""
    url = postgres_server.database()
    prepare.prepare(parse_url(url))
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database in which nothing is stored."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'holdfast.db'}"
        return
    url: str = request.getfixturevalue("postgres_url")
    yield url
    request.getfixturevalue("postgres_server").empty(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that has no tables, and of SQLite not even a file."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'holdfast.db'}"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    url = server.database()
    yield url
    server.drop(url)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[SessionStore]:
    async with asyncio.timeout(5):
        store = await SessionStore.open(store_url, clock=SystemClock())
    yield store
    async with asyncio.timeout(5):
        await store.close()
