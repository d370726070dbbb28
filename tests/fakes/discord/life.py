"""Runner of the Discord adapter against the fake server, restarting it as the gateway does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from platforms.core.contract import (
    Accepted,
    Address,
    Inbound,
    MenuEntry,
    Surroundings,
)
from platforms.core.errors import PlatformError
from platforms.discord import DiscordConfig
from platforms.discord.adapter import DiscordAdapter
from sessions.values.ids import Ids
from sessions.values.secret import Secret
from tests.fakes.archive import MemoryShelf
from tests.fakes.discord.server import TOKEN, DiscordServer
from tests.fakes.discord.world import Channel
from tests.fakes.inbox import Inbox
from tests.fakes.quick_time import TimerClock

PATIENCE = 5.0
MENU = (
    MenuEntry("stop", "stop what is running", admin_args="[all]"),
    MenuEntry("btw", "ask something on the side", "TEXT"),
    MenuEntry("status", "show what is running", private=True),
)


class Shelf(MemoryShelf):
    """In-memory shelf whose values a test can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Condition()

    async def holds(self, name: str) -> None:
        """Wait until a key has a value."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: name in self.values)

    async def put(self, name: str, value: str) -> None:
        await super().put(name, value)
        async with self._changed:
            self._changed.notify_all()


class Clock(TimerClock):
    """A clock whose wall time is shifted by `ahead`."""

    def __init__(self) -> None:
        self.ahead = 0  # milliseconds

    def now(self) -> int:
        return super().now() + self.ahead


class NoArchive:
    """Archive that fails every call, because this adapter must not use one."""

    async def transcript(self, *_: object) -> list[object]:
        raise AssertionError

    async def chats(self, *_: object) -> list[object]:
        raise AssertionError


class Life:
    """One installation over several runs of its process, with one person, server and room."""

    def __init__(self, discord: DiscordServer, **options: float) -> None:
        self.discord = discord
        self.shelf = Shelf()
        self.inbox = Inbox()
        self.clock = Clock()
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.error: PlatformError | None = None
        self.config = DiscordConfig(token=Secret(TOKEN), base_url=discord.url)
        self.memberships = True
        self.menu: tuple[MenuEntry, ...] = MENU
        self.prompts: tuple[MenuEntry, ...] = ()
        self.options = {"join_seconds": 0.05, "reidentify_seconds": 0.0, **options}
        self.ann = discord.world.user("Ann")
        self.guild = discord.world.guild(self.ann)
        self.room = discord.world.room(self.guild)
        self.direct = discord.world.direct(self.ann)
        self.adapter = self.build()

    def build(self) -> DiscordAdapter:
        given = Surroundings(
            clock=self.clock,
            ids=Ids(self.clock),
            shelf=self.shelf,
            archive=NoArchive(),  # type: ignore[arg-type]
            commands=self.menu,
            prompts=lambda: self.prompts,
            memberships=self.memberships,
        )
        return DiscordAdapter(self.config, given, **self.options)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[DiscordAdapter]:
        """Run the adapter for the block; after an error start it again at once."""
        self.adapter = self.build()
        self.ready.clear()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._supervise())
            async with asyncio.timeout(PATIENCE):
                await self.ready.wait()
            try:
                yield self.adapter
            finally:
                task.cancel()

    async def once(self) -> PlatformError:
        """Run a new adapter until it fails; return the error."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                try:
                    await self.build().run(self._hand_in, self.ready.set)
                except PlatformError as error:
                    return error
        msg = "the adapter did not end"
        raise AssertionError(msg)

    async def _supervise(self) -> None:
        while True:
            try:
                await self.adapter.run(self._hand_in, self.ready.set)
            except (PlatformError, OSError) as error:
                self.ended.set()
                if isinstance(error, PlatformError):
                    self.error = error

    async def _hand_in(self, event: Inbound) -> Accepted:
        return await self.inbox(event)

    def address(self, channel: Channel) -> Address:
        if channel.parent:
            return Address("discord", channel.parent, "", channel.id)
        return Address("discord", channel.id)

    @property
    def call(self) -> str:
        """Mention of the bot."""
        return f"<@{self.discord.world.bot['id']}>"
