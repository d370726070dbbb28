"""Events of one channel one after the other, channels side by side."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from platforms.discord.rooms import Payload


class Heard(msgspec.Struct, frozen=True):
    """An event of the gateway, in its order."""

    kind: str
    data: Payload
    signed: "asyncio.Task[None] | None" = None  # the first answer to an interaction


class Line:
    """What waits in one channel."""

    def __init__(self) -> None:
        self._waiting: deque[Heard] = deque()
        self._news = asyncio.Event()

    def put(self, heard: Heard) -> None:
        """Add an event."""
        self._waiting.append(heard)
        self._news.set()

    def take(self) -> Heard | None:
        """Take the next event, if there is one."""
        return self._waiting.popleft() if self._waiting else None

    async def follower(self, belongs: Callable[[Heard], bool], seconds: float) -> Heard | None:
        """Wait for the next event, and take it if it belongs to what was taken before."""
        self._news.clear()
        try:
            async with asyncio.timeout(seconds):
                while not self._waiting:
                    await self._news.wait()
                    self._news.clear()
        except TimeoutError:
            return None
        return self._waiting.popleft() if belongs(self._waiting[0]) else None


Work = Callable[[str, Line, Heard], Awaitable[None]]


class Lines:
    """All channels in which something happens at this moment."""

    def __init__(self, tasks: asyncio.TaskGroup, work: Work) -> None:
        self._tasks = tasks
        self._work = work
        self._lines: dict[str, Line] = {}

    def put(self, channel: str, heard: Heard) -> None:
        """Let an event be worked on after those that came before it in its channel."""
        line = self._lines.get(channel)
        if line is None:
            line = self._lines[channel] = Line()
            self._tasks.create_task(self._attend(channel, line), name=f"discord {channel}")
        line.put(heard)

    async def _attend(self, channel: str, line: Line) -> None:
        while heard := line.take():
            await self._work(channel, line, heard)
        del self._lines[channel]
