"""The platform `api`: delivery of notices to the clients of running turns, and stored pictures.

The routes are in `gateway.http.api.routes`: they need the conversations, which need this platform.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gateway.http.api.requests import PLATFORM
from gateway.turns.feed_events import FeedNotice
from gateway.turns.feeds import Feeds
from platforms.core.contract import (
    Capabilities,
    File,
    Inbox,
    Live,
    Op,
    Post,
    Receipt,
    Repeat,
    Unit,
)
from platforms.web.attachments import UploadFolder
from sessions.values.clock import Clock
from sessions.values.item_ids import ItemId, ItemType, item_of_op

_CAPABILITIES = Capabilities(
    text_limit=10_000_000,
    unit=Unit.CHARACTERS,
    live=Live.NONE,
    repeat=Repeat.ALWAYS,
    burst=1_000,
    per_second=1_000.0,
    command="`holdfast sessions {word}`",  # API clients have no chat commands
)


class ApiAdapter:
    """See `Adapter`. Clients read answers from the feed of a turn; `deliver` adds the notices."""

    name = PLATFORM
    account = ""
    capabilities = _CAPABILITIES

    def __init__(self, feeds: Feeds, clock: Clock, folder: Path) -> None:
        self._feeds = feeds
        self._pictures = UploadFolder(folder, clock)

    async def store_picture(self, pieces: AsyncIterator[bytes]) -> tuple[str, int]:
        """Store a picture until its turn fetches it; returns its reference and size."""
        return await self._pictures.save(pieces)

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:  # noqa: ARG002 - see `ApiRequests`
        """See `Adapter`."""
        ready()
        await asyncio.Event().wait()  # the routes do the work

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`. Publish a notice about a request to the clients that follow its turn."""
        if isinstance(op, Post) and op.notice:
            item = ItemId.parse(item_of_op(op.op))
            feed = self._feeds.get(item.origin) if item and item.type is ItemType.NOTICE else None
            if item and feed:
                feed.publish(FeedNotice(item.detail or "", op.text))
        return Receipt(message=op.op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return self._pictures.read(file.ref, file.name)
