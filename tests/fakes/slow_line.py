"""A slow line for big files: nothing of them is kept, so that memory can be measured."""

import asyncio
from pathlib import Path

from aiohttp import StreamReader, web

_PIECE = 64 * 1024
_PAUSE = 0.02
_PAGE = 4096
_ENOUGH = 8  # pieces after which a file is well on its way


class SlowLine:
    """Takes and gives files slowly, until `hurry` is set."""

    def __init__(self, size: int, pause: float = _PAUSE) -> None:
        self.size = size  # of what is given
        self._rest = pause  # seconds after each piece
        self.taken = 0
        self.hurry = asyncio.Event()
        self.begun = asyncio.Event()  # somebody reads
        self.taking, self.giving = asyncio.Event(), asyncio.Event()  # well on the way
        self.most_memory = 0  # resident bytes of this process, while files pass

    async def take(self, content: StreamReader) -> None:
        """Read what somebody sends."""
        pieces = 0
        while piece := await content.read(_PIECE):
            self.taken += len(piece)
            pieces += 1
            await self._pause(self.taking, pieces)

    async def give(self, request: web.Request) -> web.StreamResponse:
        """Send a file of zeros."""
        answer = web.StreamResponse(headers={"Content-Length": str(self.size)})
        answer.content_type = "application/octet-stream"
        await answer.prepare(request)
        self.begun.set()
        for pieces, start in enumerate(range(0, self.size, _PIECE)):
            await answer.write(bytes(min(_PIECE, self.size - start)))
            await self._pause(self.giving, pieces)
        await answer.write_eof()
        return answer

    async def _pause(self, started: asyncio.Event, pieces: int) -> None:
        self.most_memory = max(self.most_memory, resident())
        if pieces >= _ENOUGH:
            started.set()
        try:
            async with asyncio.timeout(0.0 if self.hurry.is_set() else self._rest):
                await self.hurry.wait()
        except TimeoutError:
            pass


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
