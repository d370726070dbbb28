"""The platform in memory as tests play it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec

from platforms.core.contract import Adapter, Address, Live, PlatformSpec, Repeat, Surroundings
from tests.contract.services.contract import PATIENCE, News, Place, Seen, Service, Words
from tests.fakes.memory import MemoryAdapter


class Nothing(msgspec.Struct, frozen=True):
    """There is nothing to configure."""


class MemoryService(Service):
    """Chats in the adapter itself, which therefore lasts as long as they do."""

    name = "memory"
    allow: tuple[str, ...] = ("memory:1001",)
    direct = Place("1001")
    is_remote = False
    edits = deletes = sends_files = quotes = False

    def __init__(self, live: Live, repeat: Repeat) -> None:
        self.adapter = MemoryAdapter(live=live, repeat=repeat, burst=1000)
        self.news = News()
        self._saying: set[asyncio.Task[object]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._places = 1001

    def spec(self) -> PlatformSpec:
        def build(_: Nothing, _given: Surroundings) -> Adapter:
            return self.adapter

        return PlatformSpec("memory", Nothing, build)

    def config(self) -> Nothing:
        return Nothing()

    @contextlib.asynccontextmanager
    async def meeting(self, adapter: Adapter, url: str) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            self._group = group
            yield
            for task in self._saying:
                task.cancel()

    def address(self, place: Place) -> Address:
        return Address("memory", place.chat, "", place.thread)

    async def utter(self, place: Place, words: Words) -> str:
        assert self._group
        name = f"said {len(self._saying)}"
        said = self.adapter.say(place.chat, words.text, event=name, thread=place.thread)
        self._saying.add(self._group.create_task(said))
        return name

    async def settled(self) -> None:
        if self._saying:
            await asyncio.wait(self._saying)

    async def elsewhere(self) -> Place:
        self._places += 1
        return Place(str(self._places))

    async def command(self, place: Place, word: str, words: str = "") -> None:
        await self.say(place, f"/{word} {words}".strip())

    async def press(self, place: Place, label: str) -> None:
        (action,) = (
            button.action
            for message in self.adapter.messages(place.chat)
            for button in message.buttons
            if button.label == label
        )
        assert self._group
        self._saying.add(self._group.create_task(self.adapter.press(place.chat, action)))

    def seen(self, place: Place) -> list[Seen]:
        lasting = [
            Seen(
                each.text,
                each.id,
                tuple(button.label for button in each.buttons),
                each.reply_to or "",
                each.file,
                passing=each.streaming,
            )
            for each in self.adapter.messages(place.chat)
        ]
        drafts = self.adapter.screen(place.chat)[len(lasting) :]
        return [*lasting, *(Seen(text, passing=True) for text in drafts)]

    def signs(self, place: Place, message: str) -> list[str] | None:
        return list(filter(None, [self.adapter.reactions(place.chat).get(message)]))

    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        await self.news.until(enough, seconds, lambda: self.screen(self.direct))

    def violations(self) -> list[str]:
        return self.adapter.violations()

    async def cut(self, *, politely: bool) -> None:
        """There is nothing between us."""


@contextlib.asynccontextmanager
async def opened(live: Live, repeat: Repeat) -> AsyncIterator[MemoryService]:
    yield MemoryService(live, repeat)
