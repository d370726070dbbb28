"""Discord as tests play it: the real library, and a Discord of our own."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable

from platforms.core.contract import Adapter, Address, PlatformSpec, Surroundings
from platforms.discord import DiscordConfig
from platforms.discord.adapter import DiscordAdapter
from platforms.discord.capabilities import CAPABILITIES
from sessions.values.secret import Secret
from tests.contract.services.contract import (
    PATIENCE,
    Called,
    Place,
    Seen,
    Service,
    Trouble,
    Words,
    quick,
)
from tests.fakes.discord.server import DiscordHost, DiscordServer, Fault
from tests.fakes.discord.world import Channel

_TOKENS = itertools.count(1)


class _Quick(DiscordAdapter):
    capabilities = quick(CAPABILITIES)


class DiscordService(Service):
    """A direct chat, and a room with threads."""

    name = "discord"

    def __init__(self, server: DiscordServer) -> None:
        self.server = server
        self.ann = server.world.user("Ann")
        self.allow = (f"discord:{self.ann['id']}",)
        guild = server.world.guild(self.ann)
        self._room = server.world.room(guild)
        self.direct = Place(server.world.direct(self.ann).id)
        self.room = Place(self._room.id)

    def spec(self) -> PlatformSpec:
        return PlatformSpec("discord", DiscordConfig, _build)

    def config(self) -> DiscordConfig:
        return DiscordConfig(token=Secret(self.server.token), base_url=self.server.url)

    @contextlib.asynccontextmanager
    async def meeting(self, adapter: Adapter, url: str) -> AsyncIterator[None]:
        await self.until(lambda: self.server.online)
        yield

    def address(self, place: Place) -> Address:
        return Address("discord", place.chat, "", place.thread)

    def _channel(self, place: Place) -> Channel:
        return self.server.world.channels[place.thread or place.chat]

    # --- what people do

    async def utter(self, place: Place, words: Words) -> str:
        called = place == self.direct or words.aside
        text = words.text if called else f"<@{self.server.world.bot['id']}> {words.text}"
        return await self.server.say(
            self._channel(place),
            self.ann,
            text,
            reply_to=words.answers or None,
            files=(words.file,) if words.file else (),
        )

    async def elsewhere(self) -> Place:
        return Place(self._room.id, self.server.world.thread(self._room).id)

    async def edit(self, place: Place, message: str, text: str) -> None:
        await self.server.rewrite(self._channel(place), message, text)

    async def delete(self, place: Place, message: str) -> None:
        await self.server.erase(self._channel(place), message)

    async def press(self, place: Place, label: str) -> None:
        await self.server.press(self._channel(place), self.ann, label)

    async def command(self, place: Place, word: str, words: str = "") -> None:
        await self.until(lambda: bool(self.server.world.commands))
        await self.server.command(self._channel(place), self.ann, word, words)

    async def stop(self, place: Place) -> None:
        await self.press(place, "Stop")

    # --- what people see

    def seen(self, place: Place) -> list[Seen]:
        return [
            Seen(
                each["content"],
                each["id"],
                tuple(
                    button["label"] for row in each["components"] for button in row["components"]
                ),
                each.get("message_reference", {}).get("message_id", ""),
                "".join(file["filename"] for file in each["attachments"]),
                b"".join(self.server.world.files[file["id"]] for file in each["attachments"]),
            )
            for each in self.server.shown(self._channel(place))
        ]

    def private_texts(self, place: Place) -> list[str]:
        return self.server.private_texts()

    def signs(self, place: Place, message: str) -> list[str] | None:
        return self.server.reactions(self._channel(place), message)

    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        await self.server.until(enough, seconds)

    def violations(self) -> list[str]:
        return self.server.violations()

    # --- what goes wrong

    def called(self) -> list[Called]:
        return [Called(name, channel) for name, channel, _ in self.server.calls]

    def let_fail(
        self, method: str, trouble: Trouble, place: Place | None, retry_after: float
    ) -> None:
        channel = self._channel(place) if place else None
        self.server.fail(method, _fault(trouble, retry_after), channel=channel)

    def unmet(self) -> list[str]:
        return self.server.unmet

    async def cut(self, *, politely: bool) -> None:
        if politely:
            await self.server.ask_to_reconnect()
        else:
            await self.server.cut()

    async def forget(self) -> None:
        self.server.forget_sessions()


def _build(given: DiscordConfig, surroundings: Surroundings) -> Adapter:
    return _Quick(given, surroundings, join_seconds=0.05, reidentify_seconds=0.0)


def _fault(trouble: Trouble, retry_after: float) -> Fault:
    match trouble:
        case Trouble.LIMITED:
            return Fault(status=429, retry_after=retry_after)
        case Trouble.BROKEN:
            return Fault(status=500)
        case Trouble.CUT_BEFORE:
            return Fault(cut_before=True)
        case Trouble.CUT_AFTER:
            return Fault(cut_after=True)


@contextlib.asynccontextmanager
async def opened(
    host: DiscordHost | None = None, pace: tuple[int, float] = (5, 5.0)
) -> AsyncIterator[DiscordService]:
    token = f"a-token-of-bot-{next(_TOKENS)}"
    async with DiscordServer(host=host, token=token, pace=pace) as server:
        yield DiscordService(server)
