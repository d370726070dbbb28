"""The live stream of one open page: rows from the archive, drafts and signs of life as events."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from starlette.types import Message, Receive, Scope, Send

from platforms.core.contract import Address, Archive, TranscriptRow
from platforms.web.hub import Hub, Watcher
from platforms.web.scene import Scene, Viewer
from platforms.web.wire import KEEPALIVE, event

_log = logging.getLogger(__name__)

PAGE = 100  # rows in one read
_SEND_TIMEOUT = 30.0  # a reader that takes nothing for so long is let go
_READ_TIMEOUT = 30.0
_UNSETTLED = 2.0  # while a message of the user waits or runs, its state is looked at so often

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold the events back
]


class EventStream(msgspec.Struct, frozen=True):
    """An ASGI response that lasts until its reader leaves or the adapter stops."""

    address: Address
    archive: Archive
    hub: Hub
    after: int  # the last row the page has; 0 for none
    keepalive: float
    admitted: Callable[[], Awaitable[bool]]  # whether its reader is still let in

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        with self.hub.watching(self.address.chat) as watcher:
            try:
                async with asyncio.TaskGroup() as group:
                    leaving = group.create_task(_wait_until_gone(receive, watcher))
                    await self._write(watcher, send)
                    leaving.cancel()
            except* TimeoutError:
                _log.info("A page that took nothing for %g s was let go.", _SEND_TIMEOUT)

    async def _write(self, watcher: Watcher, send: Send) -> None:
        await _send(send, {"type": "http.response.start", "status": 200, "headers": _HEADERS})
        scene = self.hub.scene(self.address.chat)
        viewer = Viewer(scene, self.after)
        chats, departures = self.hub.chats, self.hub.departures
        async for chunk in self._news(viewer, scene):
            await _send(send, _body(chunk))
        # The page now knows everything; a draft that it holds beyond these is out of date.
        drafts = list(scene.drafts(self.hub.now()))
        await _send(send, _body(event("ready", {"drafts": drafts})))
        silent = 0.0
        while not watcher.ended:
            patience = min(_UNSETTLED, self.keepalive) if viewer.unsettled else self.keepalive
            called = await _happens(watcher.news, patience)
            if not called:
                viewer.look_again()  # that nobody called proves nothing
                silent += patience
            watcher.news.clear()
            if not called or departures != self.hub.departures:
                departures = self.hub.departures
                if not await self.admitted():
                    break
            wrote = False
            async for chunk in self._news(viewer, scene):
                await _send(send, _body(chunk))
                wrote = True
            if chats != self.hub.chats:
                chats = self.hub.chats
                await _send(send, _body(event("chats", {})))
                wrote = True
            if not wrote and silent >= self.keepalive:
                await _send(send, _body(KEEPALIVE))
                wrote = True
            if wrote:
                silent = 0.0
        await _send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _news(self, viewer: Viewer, scene: Scene) -> AsyncIterator[bytes]:
        if viewer.wants_rows(scene):
            async for rows in self._rows(viewer):
                for chunk in viewer.rows(rows):
                    yield chunk
        for chunk in viewer.news(scene, self.hub.now()):
            yield chunk

    async def _rows(self, viewer: Viewer) -> AsyncIterator[Sequence[TranscriptRow]]:
        """Read what the page may not have, page by page, oldest first."""
        floor, last = viewer.floor, viewer.last
        rows = await self._read(floor)
        if floor == 0:  # these are the newest; there may be more between them and what it has
            newest = rows
            while last and newest and last + 1 < newest[0].seq:
                between = [row for row in await self._read(last) if row.seq < newest[0].seq]
                if not between:
                    break
                yield between
                last = between[-1].seq
            yield newest
            return
        while rows:  # a page may be short without being the last: not all that is stored is shown
            yield rows
            rows = await self._read(rows[-1].seq)

    async def _read(self, after: int) -> Sequence[TranscriptRow]:
        async with asyncio.timeout(_READ_TIMEOUT):
            return await self.archive.transcript(self.address, after, PAGE)


async def _wait_until_gone(receive: Receive, watcher: Watcher) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    watcher.end()


async def _happens(news: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await news.wait()
    except TimeoutError:
        return False


async def _send(send: Send, message: Message) -> None:
    async with asyncio.timeout(_SEND_TIMEOUT):
        await send(message)


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}
