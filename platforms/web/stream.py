"""The event stream of one open page: rows of the archive, drafts and typing signs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from starlette.types import Message, Receive, Scope, Send

from platforms.core.contract import Address, Archive, TranscriptRow
from platforms.web.hub import PageHub, PageWatcher
from platforms.web.scene import LiveChatState, PageView
from platforms.web.wire import KEEPALIVE, encode_event

_log = logging.getLogger(__name__)

_PAGE_ROWS = 100  # rows in one read
_SEND_TIMEOUT_SECONDS = 30.0  # a reader that accepts nothing for so long is disconnected
_READ_TIMEOUT_SECONDS = 30.0
_RUNNING_POLL_SECONDS = 2.0
"""Interval at which the state of a message that waits or runs is checked."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would buffer the events
]


class EventStream(msgspec.Struct, frozen=True, kw_only=True):
    """An ASGI response that lasts until the reader leaves or the adapter stops."""

    address: Address
    archive: Archive
    hub: PageHub
    after: int  # `seq` of the last row the page has; 0 for none
    keepalive: float
    is_signed_in: Callable[[], Awaitable[bool]]  # checked during silence and after sign-outs

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Stream events to the client."""
        with self.hub.watch(self.address.chat) as watcher:
            try:
                async with asyncio.TaskGroup() as group:
                    leaving = group.create_task(_watch_disconnect(receive, watcher))
                    await self._write(watcher, send)
                    leaving.cancel()
            except* TimeoutError:
                _log.info(
                    "web: disconnected a page that accepted no data for %g s", _SEND_TIMEOUT_SECONDS
                )

    async def _write(self, watcher: PageWatcher, send: Send) -> None:
        await _send(send, {"type": "http.response.start", "status": 200, "headers": _HEADERS})
        scene = self.hub.state(self.address.chat)
        viewer = PageView(scene, self.after)
        chats, departures = self.hub.chats_version, self.hub.sign_outs
        async for chunk in self._new_events(viewer, scene):
            await _send(send, _body(chunk))
        # The page is now up to date; other drafts and rows still shown are outdated.
        drafts = list(scene.drafts(self.hub.now()))
        ready = {"drafts": drafts, "rows": viewer.newest_rows}
        await _send(send, _body(encode_event("ready", ready)))
        silent = 0.0
        while not watcher.has_ended:
            patience = (
                min(_RUNNING_POLL_SECONDS, self.keepalive)
                if viewer.has_running_message
                else self.keepalive
            )
            woken = await _wait_for(watcher.wakeup, patience)
            if not woken:
                viewer.force_reread()  # not every change wakes the page
                silent += patience
            watcher.wakeup.clear()
            if not woken or departures != self.hub.sign_outs:
                departures = self.hub.sign_outs
                if not await self.is_signed_in():
                    break
            wrote = False
            async for chunk in self._new_events(viewer, scene):
                await _send(send, _body(chunk))
                wrote = True
            if chats != self.hub.chats_version:
                chats = self.hub.chats_version
                await _send(send, _body(encode_event("chats", {})))
                wrote = True
            if not wrote and silent >= self.keepalive:
                await _send(send, _body(KEEPALIVE))
                wrote = True
            if wrote:
                silent = 0.0
        await _send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _new_events(self, viewer: PageView, scene: LiveChatState) -> AsyncIterator[bytes]:
        if viewer.needs_rows(scene):
            async for rows in self._rows(viewer):
                for chunk in viewer.row_events(rows):
                    yield chunk
        for chunk in viewer.live_events(scene, self.hub.now()):
            yield chunk

    async def _rows(self, viewer: PageView) -> AsyncIterator[Sequence[TranscriptRow]]:
        """Read the rows the page may lack, in batches, oldest first."""
        floor, last = viewer.reread_after, viewer.last_seq
        rows = await self._read(floor)
        if floor == 0:  # the newest rows; there may be more between them and those of the page
            newest = rows
            while last and newest and last + 1 < newest[0].seq:
                between = [row for row in await self._read(last) if row.seq < newest[0].seq]
                if not between:
                    break
                yield between
                last = between[-1].seq
            yield newest
            return
        while rows:  # a short batch need not be the last, because some stored rows are not shown
            yield rows
            rows = await self._read(rows[-1].seq)

    async def _read(self, after: int) -> Sequence[TranscriptRow]:
        async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
            return await self.archive.transcript(self.address, after, _PAGE_ROWS)


async def _watch_disconnect(receive: Receive, watcher: PageWatcher) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    watcher.end()


async def _wait_for(news: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await news.wait()
    except TimeoutError:
        return False


async def _send(send: Send, message: Message) -> None:
    async with asyncio.timeout(_SEND_TIMEOUT_SECONDS):
        await send(message)


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}
