"""Events of one channel one after the other, channels side by side."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from platforms.discord.rooms import Payload


class ChannelEvent(msgspec.Struct, frozen=True):
    """An event of the gateway, in its order."""

    kind: str
    data: Payload
    acknowledgement: "asyncio.Task[None] | None" = None  # the first answer to an interaction


class ChannelQueue:
    """What waits in one channel."""

    def __init__(self) -> None:
        self._waiting: deque[ChannelEvent] = deque()
        self._event_added = asyncio.Event()

    def put(self, heard: ChannelEvent) -> None:
        """Add an event."""
        self._waiting.append(heard)
        self._event_added.set()

    def take(self) -> ChannelEvent | None:
        """Take the next event, if there is one."""
        return self._waiting.popleft() if self._waiting else None

    async def take_follower(
        self, belongs: Callable[[ChannelEvent], bool], seconds: float
    ) -> ChannelEvent | None:
        """Wait for the next event, and take it if it belongs to what was taken before."""
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
    """All channels in which something happens at this moment."""

    def __init__(self, tasks: asyncio.TaskGroup, handle: ChannelEventHandler) -> None:
        self._tasks = tasks
        self._handle = handle
        self._queues: dict[str, ChannelQueue] = {}

    def put(self, channel: str, heard: ChannelEvent) -> None:
        """Let an event be worked on after those that came before it in its channel."""
        line = self._queues.get(channel)
        if line is None:
            line = self._queues[channel] = ChannelQueue()
            self._tasks.create_task(self._work_off(channel, line), name=f"discord {channel}")
        line.put(heard)

    async def _work_off(self, channel: str, line: ChannelQueue) -> None:
        while heard := line.take():
            await self._handle(channel, line, heard)
        del self._queues[channel]
