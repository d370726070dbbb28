"""The whole gateway with Discord as its only platform: the real library, a server of ours."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.settings import ModelSettings, Timeouts
from gateway.runner import GatewayRunner
from gateway.settings import AccessSettings, GatewaySettings, LimitSettings, Settings
from platforms.core.contract import PlatformSpec, Surroundings
from platforms.discord import DiscordConfig
from platforms.discord.adapter import DiscordAdapter
from sessions.values.secret import Secret
from tests.e2e.house import PATIENCE, talkative
from tests.fakes.discord.server import TOKEN, DiscordServer, Fault, discord_server
from tests.fakes.discord.world import Channel, Payload
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer

LONG = "\n\n".join(
    f"## Part {number}\n\nSome **words** about it.\n\n```python\n"
    + "\n".join(f"print({line} * {number})" for line in range(40))
    + "\n```\n\n| a | b |\n|---|---|\n"
    + "\n".join(f"| {line} | `x|{number}` |" for line in range(8))
    for number in range(40)
)


class House:
    """A gateway, and one person who may talk to it."""

    def __init__(self, task: asyncio.Task[None], discord: DiscordServer, person: Payload) -> None:
        self._task = task
        self.discord = discord
        self.direct = discord.world.direct(person)

    def kill(self) -> None:
        """End without a word: nothing is drained, told or suspended."""
        self._task.cancel()

    async def shows(self, channel: Channel, *texts: str) -> None:
        """Wait until each of these is a part of some message of ours."""
        await self.discord.until(
            lambda: all(
                any(text in shown for shown in self.discord.screen(channel)) for text in texts
            ),
            PATIENCE,
        )

    async def settled(self) -> None:
        """Wait until nothing is being written any more."""
        await self.discord.until(lambda: self.discord.violations() == [], PATIENCE)


@contextlib.asynccontextmanager
async def house(
    home: Path, discord: DiscordServer, model: ModelServer, person: Payload, **limits: Any
) -> AsyncIterator[House]:
    def build(config: DiscordConfig, given: Surroundings) -> DiscordAdapter:
        adapter = DiscordAdapter(config, given, join_seconds=0.05, reidentify_seconds=0.0)
        adapter.capabilities = msgspec.structs.replace(adapter.capabilities, **limits)
        return adapter

    settings = Settings(
        gateway=GatewaySettings(drain_seconds=0),
        model=ModelSettings(
            provider="openai",
            name="scripted",
            base_url=model.url,
            api_key=Secret("sk-none"),
            timeouts=Timeouts(backoff=0.01),
        ),
        access=AccessSettings(allow=(f"discord:{person['id']}",)),
        limits=LimitSettings(messages_per_minute=10_000),
        platforms={"discord": DiscordConfig(token=Secret(TOKEN), base_url=discord.url)},
    )
    spec = PlatformSpec("discord", DiscordConfig, build)
    runner = GatewayRunner(settings, home, specs={"discord": spec}, http=False)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        async with asyncio.timeout(PATIENCE):
            await runner.ready.wait()
        try:
            yield House(task, discord, person)
        finally:
            runner.stopping.set()
            runner.hurry.set()


async def test_a_message_is_answered_in_private_and_in_a_room_when_we_are_mentioned(
    tmp_path: Path,
) -> None:
    async with discord_server() as discord, ModelServer(talkative) as model:
        ann = discord.world.user("Ann")
        room = discord.world.room(discord.world.guild(ann))
        async with house(tmp_path, discord, model, ann) as home:
            await discord.say(home.direct, ann, "Hello")
            await home.shows(home.direct, "echo: Hello")
            await discord.say(room, ann, "not for you")
            await discord.say(room, ann, f"<@{discord.world.bot['id']}> for you")
            await home.shows(room, "for you")
        assert len(discord.shown(room)) == 1
        assert len(discord.shown(home.direct)) == 1


async def test_the_stop_button_under_an_answer_ends_it(tmp_path: Path) -> None:
    async with discord_server() as discord, ModelServer(talkative) as model:
        ann = discord.world.user("Ann")
        async with house(tmp_path, discord, model, ann) as home:
            await discord.say(home.direct, ann, "hang")
            await home.shows(home.direct, "so far")
            pressed = await discord.press(home.direct, ann, "Stop")
            await home.shows(home.direct, "Stopped")
            await home.settled()
        assert pressed.seconds is not None


async def test_a_command_of_the_menu_is_obeyed(tmp_path: Path) -> None:
    async with discord_server() as discord, ModelServer(talkative) as model:
        ann = discord.world.user("Ann")
        async with house(tmp_path, discord, model, ann) as home:
            await discord.until(lambda: bool(discord.world.commands))
            await discord.command(home.direct, ann, "whoami")
            await home.shows(home.direct, f"discord:{ann['id']}")
            await home.settled()
        assert {"stop", "new", "help", "approve"} <= {c["name"] for c in discord.world.commands}


async def test_an_answer_of_thirty_thousand_characters_arrives_whole(tmp_path: Path) -> None:
    assert len(LONG) > 30_000
    async with (
        discord_server(pace=(1000, 1.0)) as discord,
        ModelServer(lambda _body: words(LONG)) as model,
    ):
        ann = discord.world.user("Ann")
        async with house(
            tmp_path, discord, model, ann, burst=1000, per_second=45.0, live_interval=0.2
        ) as home:
            await discord.say(home.direct, ann, "Everything, please")
            await home.shows(home.direct, "print(39 * 39)", "7  x|39")
            await home.settled()
        shown = "\n".join(discord.screen(home.direct))
        for number in range(40):
            assert f"## Part {number}\n" in shown
            for line in range(40):
                assert shown.count(f"print({line} * {number})\n") == 1
        assert "|---|" not in shown


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_before=True),
        Fault(cut_after=True),
        Fault(status=500),
        Fault(status=503),
        Fault(status=429, retry_after=0.3),
        Fault(status=429, retry_after=0.3, everything=True),
    ],
    ids=["cut before", "cut after", "500", "503", "429", "429 for everything"],
)
@pytest.mark.parametrize("what", ["POST message", "PATCH message"])
async def test_whatever_happens_to_a_call_the_answer_is_there_once(
    tmp_path: Path, fault: Fault, what: str
) -> None:
    async with discord_server() as discord, ModelServer(_slowly) as model:
        ann = discord.world.user("Ann")
        async with house(tmp_path, discord, model, ann, live_interval=0.1) as home:
            discord.fail(what, fault, channel=home.direct)
            await discord.say(home.direct, ann, "Hello")
            await home.shows(home.direct, "one two three")
            await home.settled()
        assert discord.screen(home.direct) == ["one two three"]


def _slowly(_body: dict[str, Any]) -> Script:
    return 'H T"one " W0.5 T"two " W0.3 T"three" F D'


async def test_what_was_said_while_we_were_away_is_answered_once(tmp_path: Path) -> None:
    async with discord_server() as discord, ModelServer(talkative) as model:
        ann = discord.world.user("Ann")
        async with house(tmp_path, discord, model, ann) as home:
            await discord.say(home.direct, ann, "one")
            await home.shows(home.direct, "echo: one")
        discord.forget_sessions()
        await discord.say(home.direct, ann, "two")
        async with house(tmp_path, discord, model, ann) as home:
            await home.shows(home.direct, "echo: two")
            await discord.say(home.direct, ann, "three")
            await home.shows(home.direct, "echo: three")
        assert discord.screen(home.direct) == ["echo: one", "echo: two", "echo: three"]


async def test_an_answer_cut_off_by_the_end_of_the_process_is_not_posted_twice(
    tmp_path: Path,
) -> None:
    async with discord_server() as discord, ModelServer(talkative) as model:
        ann = discord.world.user("Ann")
        gate = asyncio.Event()
        async with house(tmp_path, discord, model, ann) as home:
            discord.fail("POST message", Fault(cut_after=True, gate=gate), channel=home.direct)
            await discord.say(home.direct, ann, "Hello")
            await discord.until(lambda: "POST message" in discord.called())
            gate.set()
            await home.shows(home.direct, "echo: Hello")
            home.kill()
        async with house(tmp_path, discord, model, ann) as home:
            await discord.say(home.direct, ann, "again")
            await home.shows(home.direct, "again")
        assert sum("echo: Hello" in text for text in discord.screen(home.direct)) == 1
