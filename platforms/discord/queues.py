"""Queues that process events in order within a channel and concurrently across channels."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from platforms.discord.rooms import Payload
from sessions.values.tasks import start_task


class ChannelEvent(msgspec.Struct, frozen=True):
    """A gateway event waiting in the queue of its channel."""

    kind: str
    data: Payload
    acknowledgement: "asyncio.Task[None] | None" = None  # of an interaction


class ChannelQueue:
    """Events of one channel that are not handled yet."""

    def __init__(self) -> None:
        self._waiting: deque[ChannelEvent] = deque()
        self._event_added = asyncio.Event()

    def put(self, event: ChannelEvent) -> None:
        """Add an event."""
        self._waiting.append(event)
        self._event_added.set()

    def take(self) -> ChannelEvent | None:
        """Remove and return the next event, or None if the queue is empty."""
        return self._waiting.popleft() if self._waiting else None

    async def take_follower(
        self, belongs: Callable[[ChannelEvent], bool], seconds: float
    ) -> ChannelEvent | None:
        """Wait up to `seconds` for the next event; take it only if it `belongs`, else return None."""
        self._event_added.clear()
        try:
            async with asyncio.timeout(seconds):
                while not self._waiting:
                    await self._event_added.wait()
                    self._event_added.clear()
        except TimeoutError:
            return None
        return self._waiting.popleft() if belongs(self._waiting[0]) else None


ChannelEventHandler = Callable[[str, ChannelQueue, ChannelEvent], Awaitable[None]]


class ChannelQueues:
    """Queues of all channels with events in progress, each processed by its own task."""

    def __init__(self, tasks: asyncio.TaskGroup, handle: ChannelEventHandler) -> None:
        self._tasks = tasks
        self._handle = handle
        self._queues: dict[str, ChannelQueue] = {}

    def put(self, channel: str, event: ChannelEvent) -> None:
        """Queue an event behind the earlier events of its channel.

        An event that comes while the connection ends is dropped; the next connection reads the
        channel again.
        """
        queue = self._queues.get(channel)
        if queue is None:
            queue = ChannelQueue()
            work = self._process(channel, queue)
            if start_task(self._tasks, work, name=f"discord {channel}") is None:
                return
            self._queues[channel] = queue
        queue.put(event)

    async def _process(self, channel: str, queue: ChannelQueue) -> None:
        while event := queue.take():
            await self._handle(channel, queue, event)
        del self._queues[channel]
