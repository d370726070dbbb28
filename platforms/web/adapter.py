"""The web page as a platform: what the gateway calls, and what it hands to the parts behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from starlette.routing import BaseRoute

from platforms.core.contract import (
    Ask,
    Capabilities,
    Delete,
    Draft,
    Edit,
    File,
    Inbox,
    Live,
    Op,
    Post,
    React,
    Receipt,
    Repeat,
    Surroundings,
    Typing,
    Unit,
    Upload,
)
from platforms.core.errors import ChatGone, Rejected
from platforms.web.api import WebApi
from platforms.web.attachments import UploadFolder
from platforms.web.door import WebLogin
from platforms.web.hub import PageHub
from platforms.web.wire import is_chat

CAPABILITIES = Capabilities(
    text_limit=1_000_000,
    unit=Unit.CHARACTERS,
    live=Live.DRAFT,
    repeat=Repeat.ALWAYS,  # the page shows rows of the archive, each once
    live_interval=0.05,
    burst=1_000,
    per_second=200.0,
    typing_interval=5.0,
    buttons=8,
    files=100_000_000,
    hosts_files=True,
    reply=False,  # the page shows a conversation in order, without arrows in it
)


class WebAdapter:
    """Serves the page and carries words between it and the gateway.

    What lasts is read from the archive; only drafts and signs of life are kept here, in memory.
    """

    name = "web"
    capabilities = CAPABILITIES

    def __init__(self, surroundings: Surroundings) -> None:
        self.account = surroundings.account
        self._login = WebLogin(surroundings.clock, surroundings.shelf)
        self._hub = PageHub(surroundings.clock)
        self._attachments = UploadFolder(surroundings.folder, surroundings.clock)
        self._api = WebApi(
            surroundings, self._login, self._hub, surroundings.keepalive, self._attachments
        )

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`. When cancelled, every open stream ends by itself."""
        with self._hub.accepting_watchers(), self._api.receiving(inbox):
            ready()
            await asyncio.Event().wait()  # the HTTP server does the work; this one only lasts

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`. A post is already in the archive: the open pages are told to look."""
        chat = op.address.chat
        if not is_chat(chat):
            msg = f"{chat!r} is not a conversation of the web page."
            raise ChatGone(msg)
        match op:
            case Upload() if not await asyncio.to_thread(Path(op.path).is_file):
                msg = f"{op.name} cannot be read."
                raise Rejected(msg)
            case Post() | Ask() | Upload():
                self._hub.on_posted(chat, _item_of(op.op))
            case Edit():
                self._hub.on_edited(chat, _item_of(op.message), op.text, op.buttons)
            case Delete():
                self._hub.on_deleted(chat, _item_of(op.message))
            case Draft():
                self._hub.on_draft(chat, op.draft, op.text, op.status)
            case Typing():
                self._hub.on_typing(chat)
            case React():
                msg = "The web page shows no reactions."
                raise Rejected(msg)
        return Receipt(message=op.op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return self._attachments.read(file.ref, file.name)

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        return self._api.routes()

    async def new_link(self, base_url: str) -> str:
        """Make a link that lets its first visitor in as the owner, once, within an hour."""
        return f"{base_url.rstrip('/')}/enter/{await self._login.new_link()}"


def _item_of(op: str) -> str:
    """The k-th message of item X is named X.k; on the page an item is one message."""
    return op.rpartition(".")[0] or op
