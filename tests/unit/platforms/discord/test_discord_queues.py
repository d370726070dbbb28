"""Queues of channels, and the end of their task group."""

import asyncio
import gc

from platforms.discord.queues import ChannelEvent, ChannelQueue, ChannelQueues

EVENT = ChannelEvent("MESSAGE_CREATE", {})


async def test_events_of_a_channel_are_handled_in_order() -> None:
    handled: list[str] = []

    async def handle(channel: str, _queue: ChannelQueue, event: ChannelEvent) -> None:
        await asyncio.sleep(0)
        handled.append(f"{channel} {event.kind}")

    async with asyncio.TaskGroup() as tasks:
        queues = ChannelQueues(tasks, handle)
        queues.put("1", EVENT)
        queues.put("1", ChannelEvent("MESSAGE_UPDATE", {}))
    assert handled == ["1 MESSAGE_CREATE", "1 MESSAGE_UPDATE"]


async def test_an_event_that_comes_while_the_connection_ends_is_dropped() -> None:
    async def handle(channel: str, queue: ChannelQueue, event: ChannelEvent) -> None:
        raise NotImplementedError

    async with asyncio.TaskGroup() as tasks:
        queues = ChannelQueues(tasks, handle)
    queues.put("1", EVENT)
    queues.put("1", EVENT)
    gc.collect()  # a coroutine that is never awaited would be reported here
