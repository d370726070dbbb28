"""What the page and the terminal have in common: a person who says things one after the other.

What cannot be handed in stays with the person and is sent again, under the same id, as soon as
somebody takes it: so does the page, and so does `holdfast chat`.
"""

import abc
import asyncio
from collections import deque
from collections.abc import Callable

from platforms.core.contract import Address
from tests.contract.services.contract import PATIENCE, News, Place, Service, Words


class LocalService(Service):
    """One person at this machine; conversations instead of rooms and threads."""

    allow: tuple[str, ...] = ()  # the owner of the machine needs no permission
    direct = Place("first-chat")
    is_remote = False
    edits = False
    deletes = False
    sends_files = False
    quotes = False

    def __init__(self) -> None:
        self.news = News()
        self._unsent: deque[tuple[Place, str, str]] = deque()  # where, id, words
        self._wanted = asyncio.Event()
        self._numbers = 0
        self._complaints: list[str] = []

    def address(self, place: Place) -> Address:
        return Address(self.name, place.chat)

    async def utter(self, place: Place, words: Words) -> str:
        assert words == Words(words.text), f"nobody can do that on {self.name}"
        name = self.new_name()
        self._unsent.append((place, name, words.text))
        self._wanted.set()
        return name

    def new_name(self) -> str:
        self._numbers += 1
        return f"said-{self._numbers:06}"

    async def settled(self) -> None:
        await self.until(lambda: not self._unsent)

    async def command(self, place: Place, word: str, words: str = "") -> None:
        await self.say(place, f"/{word} {words}".strip())

    async def elsewhere(self) -> Place:
        self._numbers += 1
        place = Place(f"another-{self._numbers}")
        await self.look_at(place)
        return place

    @abc.abstractmethod
    async def look_at(self, place: Place) -> None:
        """Open a conversation, so that it is seen."""

    @abc.abstractmethod
    async def hand_in(self, place: Place, name: str, text: str) -> bool:
        """Try to hand a message in; tells whether it was taken."""

    async def send(self) -> None:
        """Hand in what was said, in order; runs until cancelled."""
        while True:
            self._wanted.clear()
            while self._unsent:
                if not await self.hand_in(*self._unsent[0]):
                    break  # whoever meets us next gets it
                self._unsent.popleft()
                await self.news.tell()
            await self._wanted.wait()

    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        await self.news.until(enough, seconds, lambda: self.screen(self.direct))

    def violations(self) -> list[str]:
        left = [
            f"{each.text!r} is left as a preview" for each in self.seen(self.direct) if each.passing
        ]
        return [*self._complaints, *left]
