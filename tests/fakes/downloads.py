"""How a server of ours gives a file that somebody attached: whole, or as badly as a test wants."""

import asyncio
from collections import deque
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True)
class Going:
    """What happens to one download instead of going well."""

    status: int = 0  # answered instead
    after: int = 0  # bytes that come before it goes wrong
    cut: bool = False  # then the connection breaks
    gate: asyncio.Event | None = None  # then nothing comes until it is set


class Downloads:
    """The downloads of one server."""

    def __init__(self) -> None:
        self.begun = 0
        self._plans: deque[Going] = deque()
        self._news = asyncio.Condition()

    def plan(self, *goings: Going) -> None:
        """Say how the next ones go; those behind them go well."""
        self._plans.extend(goings)

    async def wait(self, number: int) -> None:
        """Wait until that many were begun."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: self.begun >= number)

    async def serve(
        self, request: web.Request, content: bytes, kind: str = "application/octet-stream"
    ) -> web.StreamResponse:
        going = self._plans.popleft() if self._plans else Going()
        self.begun += 1
        async with self._news:
            self._news.notify_all()
        if going.status:
            return web.Response(status=going.status)
        response = web.StreamResponse(headers={"Content-Type": kind})
        response.content_length = len(content)
        await response.prepare(request)
        bad = going.cut or going.gate is not None
        await response.write(content[: going.after] if bad else content)
        if going.gate:
            await going.gate.wait()
        if going.cut:
            assert request.transport is not None
            request.transport.abort()
            return response
        if bad:
            await response.write(content[going.after :])
        await response.write_eof()
        return response
