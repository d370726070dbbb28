"""Fixtures: the fake Telegram server and an adapter connected to it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from platforms.telegram.adapter import TelegramAdapter
from tests.fakes.telegram.kit import telegram
from tests.fakes.telegram.server import TelegramServer, serving


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with asyncio.timeout(15), serving() as server:
        yield server
        assert server.complaints() == []


@pytest.fixture
async def adapter(server: TelegramServer) -> AsyncIterator[TelegramAdapter]:
    async with telegram(server) as adapter:
        yield adapter
