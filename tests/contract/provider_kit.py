"""A provider of each protocol that is connected to a scripted server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent import errors
from agent.answer.accumulate import Accumulator, StepResult
from agent.model.contract import (
    Chunk,
    ModelRequest,
    OpenedChunk,
    PingChunk,
    Provider,
    ToolSchema,
)
from agent.providers.registry import build_provider
from sessions.records import Message
from tests.fakes.agent_kit import settings_for
from tests.fakes.dialects.steps import ProtocolName
from tests.fakes.model_script import Script
from tests.fakes.model_server import Handler, ModelServer, Received

READ = ToolSchema("read", "Reads.", {"type": "object"})
REQUEST = ModelRequest("scripted", "Be kind.", messages=(Message("user", "hello"),), tools=(READ,))
OPENED = OpenedChunk("req_scripted")


@asynccontextmanager
async def serving(
    protocol: ProtocolName, *scripts: Script | Handler
) -> AsyncIterator[tuple[Provider, ModelServer]]:
    async with ModelServer(*scripts) as server:
        provider = build_provider(settings_for(protocol, server.url))
        try:
            yield provider, server
        finally:
            await provider.aclose()


async def collect(provider: Provider, request: ModelRequest = REQUEST) -> list[Chunk]:
    async with asyncio.timeout(5), provider.stream(request) as chunks:
        return [chunk async for chunk in chunks]


async def collect_until_error(
    provider: Provider, request: ModelRequest = REQUEST
) -> tuple[list[Chunk], errors.ProviderError | None]:
    """Return the chunks and the error that ended them."""
    read: list[Chunk] = []
    try:
        async with asyncio.timeout(5), provider.stream(request) as chunks:
            async for chunk in chunks:
                read.append(chunk)  # noqa: PERF401 - chunks before an error are kept
    except errors.ProviderError as error:
        return read, error
    return read, None


def without_pings(chunks: list[Chunk]) -> list[Chunk]:
    return [chunk for chunk in chunks if not isinstance(chunk, PingChunk)]


def accumulate(chunks: list[Chunk]) -> StepResult:
    accumulator = Accumulator((READ,), "call")
    for chunk in chunks:
        accumulator.feed(chunk)
    return accumulator.result()


async def wait_until_left(server: ModelServer, number: int = 1) -> Received:
    """Wait until the client has closed the connection of a request."""
    received = await server.request(number)
    await received.closed.wait()
    return received
