"""The adapter on a real port, and a signed-in client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.e2e.page_kit import Stage, staged
from tests.fakes.http_client import local_client


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
async def client(stage: Stage) -> AsyncIterator[httpx2.AsyncClient]:
    async with signed_in(stage) as client:
        yield client


@asynccontextmanager
async def signed_in(stage: Stage) -> AsyncIterator[httpx2.AsyncClient]:
    async with local_client(stage.url) as client:
        answer = await client.get(await stage.link())
        assert answer.status_code == 303
        session = await client.get("/web/session")
        client.headers["X-Holdfast-CSRF"] = session.json()["csrf"]
        yield client
