"""Stages for contract tests: every adapter, connected to a fake of its service."""

import asyncio
import contextlib
import secrets
import shutil
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from gateway.http import HttpServer, build_app
from platforms.core.contract import (
    Adapter,
    Address,
    Ask,
    Capabilities,
    Edit,
    File,
    Live,
    MenuEntry,
    OffersRoutes,
    Op,
    Post,
    Receipt,
    Repeat,
    Surroundings,
    Upload,
    capabilities_in,
)
from platforms.core.errors import PlatformError
from sessions.values.ids import Ids
from tests.contract.services import (
    console,
    discord,
    memory,
    slack,
    telegram,
    web,
)
from tests.contract.services.contract import PATIENCE, Service
from tests.fakes.archive import MemoryArchive, MemoryShelf
from tests.fakes.discord.server import DiscordHost
from tests.fakes.inbox import Inbox
from tests.fakes.quick_time import clock_here

AT_ONCE = 20
"""Cases that run concurrently."""

Opened = Callable[[], AbstractAsyncContextManager[Service]]

MENU = (MenuEntry("stop", "end what is being written"), MenuEntry("btw", "ask beside it", "TEXT"))


class _Healthy:
    async def problems(self) -> list[str]:
        return []

    def mode(self) -> str:
        return "running"


class Stage:
    """A running adapter and the fake service behind it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.inbox = Inbox()
        self.shelf = MemoryShelf()
        self.archive = MemoryArchive()
        self.folder = Path(tempfile.gettempdir(), f"holdfast-{secrets.token_hex(8)}")
        self.clock = clock_here()
        self.place = service.direct
        self.adapter: Adapter = self._built()

    def _built(self) -> Adapter:
        given = Surroundings(
            self.clock,
            Ids(self.clock),
            shelf=self.shelf,
            archive=self.archive,
            commands=MENU,
            folder=self.folder,
        )
        built: Adapter = self.service.spec().build(self.service.config(), given)
        return built

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the adapter for the duration of the block, restarting it as the gateway would."""
        self.adapter = self._built()
        ready = asyncio.Event()
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            task = group.create_task(self._supervised(self.adapter, ready))
            stack.callback(task.cancel)
            url = await self._served(group, stack)
            async with asyncio.timeout(PATIENCE):
                await ready.wait()
                await stack.enter_async_context(self.service.meeting(self.adapter, url))
            yield

    async def _supervised(self, adapter: Adapter, ready: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(PlatformError, OSError):
                await adapter.run(self.inbox, ready.set)

    async def _served(self, group: asyncio.TaskGroup, stack: AsyncExitStack) -> str:
        """Serve the adapter's routes, as the daemon's HTTP port does."""
        if not self.service.served:
            return ""
        assert isinstance(self.adapter, OffersRoutes)
        server = HttpServer("127.0.0.1", 0)
        server.bind()
        app = build_app(self.adapter.routes(), health=_Healthy())
        task = group.create_task(server.serve(app))
        stack.callback(task.cancel)
        return f"http://127.0.0.1:{server.port}/"

    # --- actions and observations

    @property
    def address(self) -> Address:
        return self.service.address(self.place)

    @property
    def can(self) -> Capabilities:
        return capabilities_in(self.adapter, self.address)

    async def deliver(self, op: Op) -> Receipt:
        """Deliver an op, with its content in the archive as in the gateway."""
        async with asyncio.timeout(PATIENCE):
            item = op.op.partition(".")[0]
            chat = op.address.chat
            known = {row.id for row in self.archive.of(chat)}
            match op:
                case Post() | Ask() if not (isinstance(op, Post) and op.streaming):
                    author = "notice" if isinstance(op, Ask) or op.notice else "answer"
                    if item not in known:
                        self.archive.put(chat, item, op.text, 0, author, op.buttons)
                case Upload() if item not in known and _is_there(op):
                    files = (File(op.name, op.media_type, op.path),)
                    self.archive.put(chat, item, op.caption, files=files)
                case Edit() if item in known:
                    self.archive.change(chat, item, text=op.text, buttons=op.buttons)
                case _:
                    pass
            return await self.adapter.deliver(op)

    async def shows(self, *texts: str) -> None:
        """Wait until exactly these messages are visible."""
        await self.service.until(lambda: self.service.screen(self.place) == list(texts))


def _is_there(op: Upload) -> bool:
    return Path(op.path).is_file()


@contextlib.asynccontextmanager
async def staged(opened: Opened, where: str = "") -> AsyncIterator[Stage]:
    """Run an adapter with its service; at the end the service must have seen no violation."""
    async with opened() as service:
        stage = Stage(service)
        if where:
            assert service.room
            stage.place = service.room
        try:
            async with stage.running():
                yield stage
                await service.rests()
        finally:
            shutil.rmtree(stage.folder, ignore_errors=True)
        assert service.violations() == []


def _memory(live: Live, repeat: Repeat) -> Opened:
    return lambda: memory.opened(live, repeat)


SERVICES: dict[str, Opened] = {
    "telegram": telegram.opened,
    "discord": discord.opened,
    "slack": slack.opened,
    "slack over http": lambda: slack.opened(over_http=True),
    "web": web.opened,
    "console": console.opened,
}
"""The platforms of this repository, by name."""

REMOTE = [
    "telegram",
    "discord",
    "slack",
]
"""Platforms reached by requests that can fail."""


@contextlib.asynccontextmanager
async def several(name: str) -> AsyncIterator[Opened]:
    """Yield a function that opens the service of a platform many times concurrently."""
    if name != "discord":
        yield SERVICES[name]
        return
    async with DiscordHost() as host:  # the library has one address per process
        yield lambda: discord.opened(host)


async def side_by_side(cases: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
    """Run all cases, a few at a time; at the end fail with the reason of every failed case."""
    assert cases
    room = asyncio.Semaphore(AT_ONCE)
    failed: dict[str, BaseException] = {}

    async def run(name: str, case: Callable[[], Awaitable[None]]) -> None:
        async with room:
            try:
                await case()
            except Exception as error:  # noqa: BLE001 - reported below with the others
                failed[name] = error

    async with asyncio.TaskGroup() as group:
        for name, case in cases.items():
            group.create_task(run(name, case))
    reasons = [f"{name}: {_reason(error)}" for name, error in failed.items()]
    assert not failed, f"{len(failed)} of {len(cases)} cases\n" + "\n".join(reasons)


def _reason(error: BaseException) -> str:
    """Return the root cause of a failure and the line of the test."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_reason(each) for each in error.exceptions)
    places = [
        f"{frame.name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "/tests/contract/test_" in frame.filename
    ]
    return f"{type(error).__name__}: {error} ({' '.join(places)})"


def available() -> dict[str, Opened]:
    """Return the adapters that can be tested here, with functions that open their services."""
    variants = {
        "final only": (Live.NONE, Repeat.MARK),
        "edits": (Live.EDIT, Repeat.NONCE),
        "streams": (Live.STREAM, Repeat.LOOKUP),
        "drafts": (Live.DRAFT, Repeat.ALWAYS),
    }
    return {
        **SERVICES,
        "telegram without rich messages": lambda: telegram.opened(rich=False),
        **{f"memory: {name}": _memory(*variant) for name, variant in variants.items()},
    }
