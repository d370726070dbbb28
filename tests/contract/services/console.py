"""The terminal as tests play it: what is printed, and what is typed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from platforms.console import (
    SPEC,
    AnswerFrame,
    ConsoleAdapter,
    ConsoleConfig,
    NoteFrame,
    TerminalFrame,
    TerminalScreen,
)
from platforms.core.contract import Adapter, PlatformSpec
from platforms.core.errors import Unavailable
from tests.contract.services.contract import Place, Seen
from tests.contract.services.local import LocalService


class _Terminal:
    """One conversation as it stands in a terminal."""

    def __init__(self) -> None:
        self.screen: TerminalScreen | None = None
        self.lines: dict[str, Seen] = {}
        self.fresh: set[str] = set()  # what was shown since the terminal was opened
        self._notes = 0

    def take(self, frame: TerminalFrame) -> None:
        match frame:
            case AnswerFrame():
                goes_on = frame.item in self.fresh and not frame.replaces
                before = self.lines[frame.item].text if goes_on else ""
                self.fresh.add(frame.item)
                seen = Seen(before + frame.text, frame.item, passing=not frame.done)
                self.lines[frame.item] = seen
            case NoteFrame():
                self._notes += 1
                self.lines[f"note {self._notes}"] = Seen(frame.text)
            case _:
                pass


class ConsoleService(LocalService):
    """The owner at a terminal."""

    name = "console"

    def __init__(self) -> None:
        super().__init__()
        self._adapter: ConsoleAdapter | None = None
        self._terminals: dict[Place, _Terminal] = {self.direct: _Terminal()}
        self._watching: dict[Place, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def spec(self) -> PlatformSpec:
        return SPEC

    def config(self) -> msgspec.Struct:
        return ConsoleConfig()

    @contextlib.asynccontextmanager
    async def meeting(self, adapter: Adapter, url: str) -> AsyncIterator[None]:
        assert isinstance(adapter, ConsoleAdapter)
        async with asyncio.TaskGroup() as group:
            self._adapter, self._group = adapter, group
            for place in self._terminals:
                await self._open(place)
            sending = group.create_task(self.send())
            try:
                yield
            finally:
                self._adapter = self._group = None
                for task in (sending, *self._watching.values()):
                    task.cancel()
                for terminal in self._terminals.values():
                    terminal.screen = None

    async def _open(self, place: Place) -> None:
        assert self._group
        opened = asyncio.Event()
        self._watching[place] = self._group.create_task(self._watch(place, opened))
        await opened.wait()

    async def look_at(self, place: Place) -> None:
        self._terminals[place] = _Terminal()
        await self._open(place)

    async def hand_in(self, place: Place, name: str, text: str) -> bool:
        screen = self._terminals[place].screen
        if screen is None:
            return False
        try:
            await screen.send(text, name)
        except Unavailable:
            return False
        return True

    async def _watch(self, place: Place, opened: asyncio.Event) -> None:
        assert self._adapter
        terminal = self._terminals[place]
        terminal.fresh.clear()
        async with self._adapter.attach(place.chat) as screen:
            terminal.screen = screen
            opened.set()
            async for frame in screen.frames():
                terminal.take(frame)
                await self.news.tell()

    def seen(self, place: Place) -> list[Seen]:
        return list(self._terminals[place].lines.values())

    async def cut(self, *, politely: bool) -> None:
        """The terminal is closed, and another one is opened."""
        for place, task in list(self._watching.items()):
            screen = self._terminals[place].screen
            if politely and screen:
                screen.end()
            else:
                task.cancel()
            await asyncio.wait([task])
            await self._open(place)


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[ConsoleService]:
    yield ConsoleService()
