"""Many people who talk to one bot at the same time, on a fake platform.

`chat_users` opens the server of the platform. Each person writes in a chat of their own, and the
answers that each person sees can be awaited. The model sends one word at a time.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gateway.access.settings import AccessSettings
from gateway.runner import GatewayRunner
from gateway.settings import GatewaySettings, HttpSettings, LimitSettings, Settings
from platforms.core.contract import Address, File, PlatformSpec
from platforms.core.registry import load_specs
from sessions.settings import SessionSettings
from sessions.values.clock import Clock
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from tests.fakes.allowance import Allowance, Share
from tests.fakes.discord.server import TOKEN as DISCORD_TOKEN
from tests.fakes.discord.server import DiscordServer
from tests.fakes.discord.world import Channel
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here
from tests.fakes.slack.server import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.fakes.slack.workspace import BOT_USER, Workspace
from tests.fakes.slow_line import SlowLine
from tests.fakes.telegram.server import TOKEN as TELEGRAM_TOKEN
from tests.fakes.telegram.server import TelegramServer, serving

PAUSE = 0.5  # seconds between two words of the model
_LATEST = 8
_NUMBER = re.compile(r"question (\d+)")


class ChatUsers(Protocol):
    """People on one platform."""

    platform: str
    allowance: Allowance

    def config(self) -> dict[str, Any]:
        """Give `[platforms.NAME]`."""
        ...

    async def say(self, number: int, text: str) -> None:
        """Let one of them say something in the place that is theirs."""
        ...

    def scope(self, number: int) -> str:
        """Name what the platform counts of the live updates there."""
        ...

    def shown(self, number: int) -> list[str]:
        """What that person sees of us."""
        ...

    def latest(self, number: int) -> list[str]:
        """The newest of that; costs the same however much there is."""
        ...

    async def until(self, enough: Callable[[], bool], seconds: float) -> None:
        """Wait until something is so."""
        ...

    def complaints(self) -> list[str]:
        """What the platform would punish, or people would notice."""
        ...

    def slow_files(self, line: SlowLine) -> None:
        """Let all files come and go over this line."""
        ...

    def address(self, number: int) -> Address:
        """Name the place of one of them."""
        ...

    def file(self, number: int, size: int) -> File:
        """Let one of them have attached a file."""
        ...


class OnTelegram:
    """Private chats, or the topics of one group."""

    platform = "telegram"
    group = -100777

    def __init__(self, server: TelegramServer, *, together: bool) -> None:
        self.allowance = server.allowance
        self.server = server
        self._together = together

    def config(self) -> dict[str, Any]:
        return {
            "token": TELEGRAM_TOKEN,
            "base_url": self.server.url,
            "require_mention": False,
        }

    async def say(self, number: int, text: str) -> None:
        if self._together:
            topic = {"message_thread_id": 500 + number, "is_topic_message": True}
            self.server.say(self.group, text, user=1001 + number, **topic)
        else:
            self.server.say(1001 + number, text, user=1001 + number)

    def scope(self, number: int) -> str:
        return str(self.group if self._together else 1001 + number)

    def latest(self, number: int) -> list[str]:
        chat = self.group if self._together else 1001 + number
        return [each.markdown for each in self.server.messages(chat)[-_LATEST:]]

    def shown(self, number: int) -> list[str]:
        if not self._together:
            return [each.markdown for each in self.server.messages(1001 + number)]
        messages = self.server.messages(self.group)
        return [each.markdown for each in messages if each.thread == 500 + number]

    async def until(self, enough: Callable[[], bool], seconds: float) -> None:
        await self.server.until(enough, seconds)

    def complaints(self) -> list[str]:
        return self.server.complaints()

    def slow_files(self, line: SlowLine) -> None:
        self.server.line = line

    def address(self, number: int) -> Address:
        return Address("telegram", str(1001 + number))

    def file(self, number: int, size: int) -> File:
        return File("big.bin", "application/octet-stream", ref="big", size=size)


class OnDiscord:
    """Direct chats, or the threads of one channel."""

    platform = "discord"

    def __init__(self, server: DiscordServer, size: int, *, together: bool) -> None:
        self.allowance = server.allowance
        self.server = server
        world = server.world
        self._people = [world.user(f"Person{number}") for number in range(size)]
        room = world.room(world.guild(*self._people))
        self._places: list[Channel] = [
            world.thread(room, f"thread {number}") if together else world.direct(person)
            for number, person in enumerate(self._people)
        ]

    def config(self) -> dict[str, Any]:
        return {"token": DISCORD_TOKEN, "base_url": self.server.url, "require_mention": False}

    async def say(self, number: int, text: str) -> None:
        await self.server.say(self._places[number], self._people[number], text)

    def scope(self, number: int) -> str:
        return self._places[number].id

    def latest(self, number: int) -> list[str]:
        newest = islice(reversed(self._places[number].messages.values()), _LATEST)
        return [message["content"] for message in newest]

    def shown(self, number: int) -> list[str]:
        return self.server.screen(self._places[number])

    async def until(self, enough: Callable[[], bool], seconds: float) -> None:
        await self.server.until(enough, seconds)

    def complaints(self) -> list[str]:
        return self.server.violations()

    def slow_files(self, line: SlowLine) -> None:
        self.server.line = line

    def address(self, number: int) -> Address:
        return Address("discord", self._places[number].id)

    def file(self, number: int, size: int) -> File:
        attached = self.server.world.attach(self.server.root, "big.bin", b"", "text/plain")
        ref = f"{self._places[number].id}/1/{attached['id']} {attached['url']}"
        return File("big.bin", "application/octet-stream", ref=ref, size=size)


class OnSlack:
    """Direct messages, which are edited, or the threads of one channel, which stream."""

    platform = "slack"

    def __init__(self, server: SlackServer, size: int, *, together: bool) -> None:
        self.allowance = server.workspace.allowance
        self.server = server
        self._together = together
        self._roots: dict[int, str] = {}
        server.add_channel("C1")
        for number in range(size):
            server.workspace.add_user(f"U{number + 10}", f"Person{number}")
            server.workspace.channels.setdefault(f"D{number + 10}", [])

    def config(self) -> dict[str, Any]:
        return {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN, "base_url": self.server.url}

    async def say(self, number: int, text: str) -> None:
        user = f"U{number + 10}"
        if self._together:
            root = self._roots.get(number, "")
            said = self.server.write("C1", f"<@{BOT_USER}> {text}", user=user, thread=root)
            self._roots.setdefault(number, said)
        else:
            self.server.write(f"D{number + 10}", text, user=user)

    def scope(self, number: int) -> str:
        return "chat.appendStream" if self._together else "chat.update"

    def latest(self, number: int) -> list[str]:
        channel = "C1" if self._together else f"D{number + 10}"
        newest = self.server.workspace.channels[channel][-_LATEST:]
        return [message.shown for message in newest]

    def shown(self, number: int) -> list[str]:
        if self._together:
            return self.server.workspace.screen("C1", self._roots.get(number, "?"))
        return self.server.workspace.screen(f"D{number + 10}")

    async def until(self, enough: Callable[[], bool], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not enough():
                self.server.changed.clear()
                await self.server.changed.wait()

    def complaints(self) -> list[str]:
        return self.server.violations()

    def slow_files(self, line: SlowLine) -> None:
        self.server.line = line

    def address(self, number: int) -> Address:
        return Address("slack", f"T1/D{number + 10}")

    def file(self, number: int, size: int) -> File:
        kind = "application/octet-stream"
        ref = self.server.workspace.add_file("big.bin", b"", kind)["id"]
        return File("big.bin", kind, ref=ref, size=size)


@contextlib.asynccontextmanager
async def chat_users(
    platform: str, size: int, *, together: bool, clock: Clock | None = None
) -> AsyncIterator[ChatUsers]:
    """Open a platform's server with people on it: apart, or in topics and threads of one room."""
    match platform:
        case "telegram":
            async with serving(enforce=True) as telegram:
                yield OnTelegram(telegram, together=together)
        case "discord":
            async with DiscordServer() as discord:
                yield OnDiscord(discord, size, together=together)
        case _:
            used = clock or clock_here()
            async with SlackServer(Workspace(lambda: used.now() / 1000)) as slack:
                yield OnSlack(slack, size, together=together)


def whole(number: int) -> str:
    """The end of the answer to somebody's question."""
    return f"that was all for {number}."


class Speaker:
    """What the model says: so many words a second, for so long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began: dict[int, float] = {}

    def __call__(self, body: dict[str, Any]) -> Script:
        said = json.dumps(body["messages"][-1]["content"])
        number = int(_NUMBER.findall(said)[-1])
        self.began[number] = asyncio.get_running_loop().time()
        return words(self.answer(number), PAUSE)

    def answer(self, number: int) -> str:
        """All that it says."""
        end = whole(number)
        count = int(self.seconds / PAUSE) - len(end.split())
        return " ".join((*(f"word{each:03d}" for each in range(count)), end))


@contextlib.asynccontextmanager
async def gateway_for(
    people: ChatUsers, home: Path, model: ModelServer, clock: Clock | None = None
) -> AsyncIterator[GatewayRunner]:
    """Run a whole gateway whose only platform is that of these people."""
    async with gateway_on({people.platform: people.config()}, home, model, clock) as runner:
        yield runner


@contextlib.asynccontextmanager
async def gateway_on(
    tables: dict[str, dict[str, Any]],
    home: Path,
    model: ModelServer,
    clock: Clock | None = None,
    *,
    known: Mapping[str, PlatformSpec] | None = None,
    served: bool = False,
) -> AsyncIterator[GatewayRunner]:
    """Run a whole gateway on the platforms that have a table; they may be built otherwise."""
    known = known or {name: load_specs()[name] for name in tables}
    runner = GatewayRunner(
        Settings(
            gateway=GatewaySettings(drain_seconds=0, stale_after=Duration.parse("3650d")),
            model=scripted_model(model),
            access=AccessSettings(allow=tuple(f"{name}:*" for name in tables)),
            limits=LimitSettings(messages_per_minute=10_000),
            sessions=SessionSettings(),
            http=HttpSettings(port=0),
            platforms={name: configured(known[name], table) for name, table in tables.items()},
        ),
        home,
        specs=known,
        serve_http=served,
        clock=clock or clock_here(),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run())
        async with asyncio.timeout(60):
            await runner.ready.wait()
        try:
            yield runner
        finally:
            runner.stopping.set()
            runner.skip_drain.set()


def configured(spec: PlatformSpec, given: dict[str, Any]) -> msgspec.Struct:
    """Read a platform's table, as `gateway.config.loader` does."""
    secret = {name: Secret(value) for name, value in given.items() if name.endswith("token")}
    return spec.config(**{**given, **secret})


async def all_speak(
    people: ChatUsers, speaker: Speaker, size: int, patience: float, first: int = 0
) -> Share:
    """Let everybody ask at once and be answered; how much of the platform's allowance was used."""
    for number in range(size):
        await people.say(number, f"question {first + number}")

    def answered(number: int) -> bool:
        return any(whole(first + number) in text for text in people.shown(number))

    await people.until(lambda: all(map(answered, range(size))), patience)
    for number in range(size):
        began = speaker.began[first + number]
        people.allowance.live(people.scope(number), began, began + speaker.seconds)
    return people.allowance.share()


async def nothing_left(runner: GatewayRunner) -> None:
    """Wait until no turn runs, and all that is to be shown is shown."""
    assert runner._store
    async with asyncio.timeout(60):
        while runner.condition.running_turns() or await runner._store.outbox.undelivered():  # noqa: ASYNC110 - the runner tells only who asks
            await asyncio.sleep(0.05)
