"""A stage for the page: the real adapter and the real server, and behind them an agent on a string.

What a browser sees here is what it sees of the daemon. The agent answers what the message tells it:

`say WORDS`    streams these words
`half WORDS`   streams half of them and then waits for `stage.go`
`notice WORDS` answers with a notice that has two buttons
`hang`         shows that it is working and never answers
`/stop`        ends what is going on in the chat, as the Stop button does
`retry`        as the action of a button answers the last message again
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from gateway.http import HttpServer, build_app
from platforms.core.contract import (
    Accepted,
    Address,
    Button,
    Delete,
    Draft,
    Edit,
    File,
    Inbound,
    InboundAction,
    InboundMessage,
    Post,
    Surroundings,
    Typing,
    Upload,
)
from platforms.web import WebAdapter
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from tests.fakes.archive import MemoryArchive, MemoryShelf


class Place(Protocol):
    """Something that serves the page: this stage, or a whole daemon."""

    @property
    def url(self) -> str:
        """Where the page is."""
        ...

    async def link(self) -> str:
        """Give a fresh one-time link."""
        ...

    async def restart(self) -> None:
        """Stop and start it, on the same port."""
        ...


class _Healthy:
    async def problems(self) -> Sequence[str]:
        return ()

    def mode(self) -> str:
        return "running"


class Stage:
    """See the module; `received` is what came in, `broken` lets the store fail."""

    def __init__(self, group: asyncio.TaskGroup, keepalive: float, folder: Path) -> None:
        self.folder = folder
        self._group = group
        self._keepalive = keepalive
        self._clock = SystemClock()
        self._ids = Ids(self._clock)
        self.shelf = MemoryShelf()
        self.archive = MemoryArchive()
        self.received: list[Inbound] = []
        self.broken = False
        self.go = asyncio.Event()
        self._port = 0
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._unfinished: list[tuple[str, str, str]] = []
        self._serving: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    async def link(self) -> str:
        return await self.adapter.new_link(self.url)

    async def start(self) -> None:
        surroundings = Surroundings(
            self._clock,
            self._ids,
            shelf=self.shelf,
            archive=self.archive,
            keepalive=self._keepalive,
            folder=self.folder / "web",
        )
        self.adapter = WebAdapter(surroundings)
        server = HttpServer("127.0.0.1", self._port)
        server.bind()
        self._port = server.port
        ready = asyncio.Event()
        app = build_app(self.adapter.routes(), health=_Healthy())
        self._serving = [
            self._group.create_task(server.serve(app)),
            self._group.create_task(self.adapter.run(self._inbox, ready.set)),
        ]
        async with asyncio.timeout(5):
            await ready.wait()
        for chat, message, text in self._unfinished:  # taken up again, as the daemon would
            self._begin(chat, self._turn(chat, message, text, None))
        self._unfinished.clear()

    async def stop(self) -> None:
        for chat, turn in self._turns.items():
            if not turn.done():
                last = next(row for row in reversed(self.archive.of(chat)) if row.author == "user")
                self._unfinished.append((chat, last.id, last.text))
        for task in [*self._tasks, *self._serving]:
            task.cancel()
        await asyncio.wait([*self._tasks, *self._serving])
        self._tasks.clear()
        self._turns.clear()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def post(self, chat: str, text: str, author: str = "answer") -> str:
        """Let something stand in a chat, as `holdfast send` would."""
        item = self._ids.new("i")
        await self._post(chat, item, text, author)
        return item

    async def _inbox(self, event: Inbound) -> Accepted:
        if self.broken:
            msg = "the disk is full"
            raise OSError(msg)
        self.received.append(event)
        chat = event.address.chat
        if isinstance(event, InboundAction) and event.action in {"stop", "retry"}:
            before = self._turns.get(chat)
            if event.action == "stop":
                self._begin(chat, self._stop_turn(chat, before))
            else:
                last = next(row for row in reversed(self.archive.of(chat)) if row.author == "user")
                self._begin(chat, self._turn(chat, last.id, last.text, before))
            return Accepted.STORED
        if isinstance(event, InboundAction):
            await self.post(chat, f"You pressed {event.action}.", "notice")
            return Accepted.STORED
        assert isinstance(event, InboundMessage)
        files = tuple(part for part in event.parts if isinstance(part, File))
        if not self.archive.say(chat, event.id, event.text, event.at, files=files):
            return Accepted.DUPLICATE
        before = self._turns.get(chat)
        if event.text == "/stop":
            self._begin(chat, self._stop_turn(chat, before))
        else:
            self._begin(chat, self._turn(chat, event.id, event.text, before))
        return Accepted.STORED

    def _begin(self, chat: str, work: Coroutine[None, None, None]) -> None:
        self._turns[chat] = self._group.create_task(work)
        self._tasks.append(self._turns[chat])

    async def _turn(
        self, chat: str, message: str, text: str, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        self.archive.change(chat, message, state="running")
        await self._answer(chat, text)
        self.archive.change(chat, message, state="done")
        self.adapter._hub.on_user_message(chat)

    async def _stop_turn(self, chat: str, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            before.cancel()
            await asyncio.wait([before])
        for row in self.archive.of(chat):
            if row.state:
                self.archive.change(chat, row.id, state="done")
        await self.post(chat, "⏹ Stopped.", "notice")

    async def _answer(self, chat: str, text: str) -> None:
        verb, _, words = text.partition(" ")
        await self.adapter.deliver(Typing("op", _address(chat)))
        item = self._ids.new("i")
        if verb == "hang":
            await asyncio.Event().wait()
        if verb == "notice":
            buttons = (Button("Continue", "/resume"), Button("Start over", "/retry"))
            await self._post(chat, item, words, "notice", buttons)
            return
        words = words if verb in {"say", "half"} else f"You said: {text}"
        try:
            for end in range(0, len(words), max(1, len(words) // 8)):
                if verb == "half" and end > len(words) / 2:
                    await self.go.wait()
                await self._draft(chat, item, words[:end])
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            await self._draft(chat, item, "")
            raise
        await self._post(chat, item, words, "answer")

    async def send_file(self, chat: str, file: Path, media_type: str, caption: str = "") -> None:
        """Let the agent send a file."""
        item = self._ids.new("f")
        files = (File(file.name, media_type, str(file)),)
        self.archive.put(chat, item, caption, self._clock.now(), files=files)
        address = _address(chat)
        upload = Upload(
            f"{item}.0",
            address,
            path=str(file),
            name=file.name,
            media_type=media_type,
            caption=caption,
        )
        await self.adapter.deliver(upload)

    async def _draft(self, chat: str, item: str, text: str) -> None:
        await self.adapter.deliver(Draft("op", _address(chat), draft=item, text=text))

    async def _post(
        self, chat: str, item: str, text: str, author: str, buttons: tuple[Button, ...] = ()
    ) -> None:
        self.archive.put(chat, item, text, self._clock.now(), author, buttons)
        post = Post(f"{item}.0", _address(chat), text, buttons=buttons, notice=author == "notice")
        await self.adapter.deliver(post)

    async def edit(self, chat: str, item: str, text: str) -> None:
        self.archive.change(chat, item, text=text)
        await self.adapter.deliver(Edit("op", _address(chat), message=f"{item}.0", text=text))

    async def delete(self, chat: str, item: str) -> None:
        await self.adapter.deliver(Delete("op", _address(chat), message=f"{item}.0"))


def _address(chat: str) -> Address:
    return Address(platform="web", chat=chat)


@asynccontextmanager
async def staged(keepalive: float = 15.0) -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory() as folder:
        async with asyncio.TaskGroup() as group:
            stage = Stage(group, keepalive, Path(folder))
            await stage.start()
            try:
                yield stage
            finally:
                await stage.stop()
