"""People who attach files, on each of the three platforms: the real library against a server of ours."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from platforms.core.contract import Accepted, Adapter, Inbound, InboundMessage
from tests.fakes.discord.life import Life
from tests.fakes.discord.server import discord_server
from tests.fakes.downloads import Downloads
from tests.fakes.slack.kit import adapter_for, slack_server
from tests.fakes.telegram.kit import telegram
from tests.fakes.telegram.server import serving


@dataclass(frozen=True)
class Sent:
    """What somebody attaches."""

    kind: str  # "photo", "document" or "voice"
    content: bytes
    name: str = "report.pdf"
    claims: int | None = None  # how large it is said to be; None: as it is

    @property
    def media_type(self) -> str:
        return {"photo": "image/jpeg", "voice": "audio/ogg"}.get(self.kind, "application/pdf")

    @property
    def size(self) -> int:
        return len(self.content) if self.claims is None else self.claims


@dataclass
class Sender:
    """A person in a chat with an adapter that is connected."""

    adapter: Adapter
    downloads: Downloads
    forget: Callable[[], None]  # all files are gone
    write: Callable[[Sent], Awaitable[object]]
    heard: "asyncio.Queue[Inbound]"

    async def send(self, sent: Sent) -> InboundMessage:
        """Send it; gives what the adapter makes of it."""
        await self.write(sent)
        async with asyncio.timeout(5):
            event = await self.heard.get()
        assert isinstance(event, InboundMessage)
        return event


def telegram_message(sent: Sent, ref: str) -> dict[str, Any]:
    """The part of a Telegram message that names a file."""
    said: dict[str, Any] = {"file_id": ref, "file_unique_id": ref, "file_size": sent.size}
    if sent.kind == "photo":
        return {"photo": [{**said, "width": 800, "height": 600}]}
    if sent.kind == "voice":
        return {"voice": {**said, "duration": 3, "mime_type": "audio/ogg"}}
    return {"document": {**said, "file_name": sent.name, "mime_type": sent.media_type}}


@contextlib.asynccontextmanager
async def on_telegram() -> AsyncIterator[Sender]:
    heard: asyncio.Queue[Inbound] = asyncio.Queue()
    async with serving() as server, telegram(server) as adapter:

        async def write(sent: Sent) -> None:
            ref = f"ref{len(server.files)}"
            server.offer(ref, sent.content)
            server.say(1001, **telegram_message(sent, ref))

        async with _running(adapter, heard):
            yield Sender(adapter, server.downloads, server.files.clear, write, heard)


@contextlib.asynccontextmanager
async def on_discord() -> AsyncIterator[Sender]:
    heard: asyncio.Queue[Inbound] = asyncio.Queue()
    async with discord_server() as discord:
        life = Life(discord)

        async def hand_in(event: Inbound) -> Accepted:
            heard.put_nowait(event)
            return Accepted.STORED

        life.inbox = hand_in  # type: ignore[assignment]

        async def write(sent: Sent) -> None:
            name = {"photo": "photo.jpg", "voice": "voice-message.ogg"}.get(sent.kind, sent.name)
            attached = discord.world.attach(discord.root, name, sent.content, sent.media_type)
            flags = 1 << 13 if sent.kind == "voice" else 0
            attached["size"] = sent.size
            await discord.say(life.direct, life.ann, "", attachments=[attached], flags=flags)

        async with life.running() as adapter:
            yield Sender(adapter, discord.downloads, discord.world.files.clear, write, heard)


@contextlib.asynccontextmanager
async def on_slack() -> AsyncIterator[Sender]:
    heard: asyncio.Queue[Inbound] = asyncio.Queue()
    async with slack_server() as slack:
        adapter = adapter_for(slack)

        async def write(sent: Sent) -> None:
            name = {"photo": "photo.jpg", "voice": "audio_message.ogg"}.get(sent.kind, sent.name)
            file = slack.workspace.add_file(name, sent.content, sent.media_type)
            file["size"] = sent.size
            if sent.kind == "voice":
                file["subtype"] = "slack_audio"
            await slack.say("D1", "", files=[file])

        def forget() -> None:
            slack.workspace.files.clear()

        async with _running(adapter, heard):
            yield Sender(adapter, slack.downloads, forget, write, heard)


@contextlib.asynccontextmanager
async def _running(adapter: Adapter, heard: "asyncio.Queue[Inbound]") -> AsyncIterator[None]:
    async def hand_in(event: Inbound) -> Accepted:
        heard.put_nowait(event)
        return Accepted.STORED

    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(adapter.run(hand_in, ready.set))
        async with asyncio.timeout(5):
            await ready.wait()
        try:
            yield
        finally:
            task.cancel()


PLATFORMS: dict[str, Callable[[], AbstractAsyncContextManager[Sender]]] = {
    "telegram": on_telegram,
    "discord": on_discord,
    "slack": on_slack,
}
