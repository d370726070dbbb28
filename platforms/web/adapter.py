"""The web page as a platform adapter."""

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
from sessions.values.item_ids import item_of_op

_CAPABILITIES = Capabilities(
    text_limit=1_000_000,
    unit=Unit.CHARACTERS,
    live=Live.DRAFT,
    repeat=Repeat.ALWAYS,  # the page shows each row of the archive once
    live_interval=0.05,
    burst=1_000,
    per_second=200.0,
    typing_interval=5.0,
    buttons=8,
    files=100_000_000,
    hosts_files=True,
    reply=False,  # the page shows a conversation in order
)


class WebAdapter:
    """Serves the page and passes messages between it and the gateway.

    Durable content is read from the archive; only drafts and typing signs are kept in memory.
    """

    name = "web"
    capabilities = _CAPABILITIES

    def __init__(self, surroundings: Surroundings) -> None:
        self.account = surroundings.account
        self._login = WebLogin(surroundings.clock, surroundings.shelf)
        self._hub = PageHub(surroundings.clock)
        self._attachments = UploadFolder(surroundings.folder, surroundings.clock)
        self._api = WebApi(
            surroundings, self._login, self._hub, surroundings.keepalive, self._attachments
        )

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """Accept messages until cancelled, then end every open stream; see `Adapter.run`."""
        with self._hub.accepting_watchers(), self._api.receiving(inbox):
            ready()
            await asyncio.Event().wait()  # the HTTP server does the work

    async def deliver(self, op: Op) -> Receipt:
        """Notify the open pages, because posts are already in the archive.

        See `Adapter.deliver`.
        """
        chat = op.address.chat
        if not is_chat(chat):
            msg = f"{chat!r} is not a conversation of the web page."
            raise ChatGone(msg)
        match op:
            case Upload() if not await asyncio.to_thread(Path(op.path).is_file):
                msg = f"{op.name} cannot be read."
                raise Rejected(msg)
            case Post() | Ask() | Upload():
                self._hub.on_posted(chat, item_of_op(op.op))
            case Edit():
                self._hub.on_edited(chat, item_of_op(op.message), op.text, op.buttons)
            case Delete():
                self._hub.on_deleted(chat, item_of_op(op.message))
            case Draft():
                self._hub.on_draft(chat, op.draft, op.text, op.status)
            case Typing():
                self._hub.on_typing(chat)
            case React():
                msg = "The web page shows no reactions."
                raise Rejected(msg)
        return Receipt(message=op.op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """Read an uploaded file; see `Adapter.fetch`."""
        return self._attachments.read(file.ref, file.name)

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes of the page and the API; see `OffersRoutes`."""
        return self._api.routes()

    async def new_link(self, base_url: str) -> str:
        """Create a link that signs in the first visitor as the owner, once, within an hour."""
        return f"{base_url.rstrip('/')}/enter/{await self._login.new_link()}"
