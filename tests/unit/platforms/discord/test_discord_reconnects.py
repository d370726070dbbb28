"""A gateway that accepts every connection and ends it at once."""

import asyncio

import pytest

from platforms.core.errors import Unavailable
from platforms.discord.connection import DiscordClient
from tests.fakes.set_clock import SetClock


async def _reconnect(client: DiscordClient, clock: SetClock, *, times: int, seconds: int) -> None:
    for _ in range(times):
        client.dispatch("connect")
        clock.time += seconds * 1000
        client.dispatch("disconnect")
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("seconds", "ends"),
    [
        pytest.param(0, True, id="at once"),
        pytest.param(30, False, id="after a while"),
    ],
)
async def test_many_connections_that_end_soon_end_the_adapter(*, seconds: int, ends: bool) -> None:
    clock = SetClock()
    client = DiscordClient(
        clock, lambda _: None, heartbeat_timeout_seconds=1.0, reidentify_seconds=0.0
    )
    found: list[str] = []

    async def watch() -> None:
        try:
            await client.raise_when_lost(3600.0)
        except Unavailable as error:
            found.append(str(error))

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        await asyncio.sleep(0)
        await _reconnect(client, clock, times=8, seconds=seconds)
        assert found == []
        await _reconnect(client, clock, times=8, seconds=seconds)
        await asyncio.sleep(0)
        watching.cancel()
    assert found == (["Discord keeps closing the connection"] if ends else [])
