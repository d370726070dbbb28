"""Tests of the whole gateway with the real library against the fake Discord server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.access.settings import AccessSettings
from gateway.runner import GatewayRunner
from platforms.core.contract import PlatformSpec, Surroundings
from platforms.discord import DiscordConfig
from platforms.discord.adapter import DiscordAdapter
from sessions.values.secret import Secret
from tests.e2e.gateway_kit import PATIENCE, talkative
from tests.fakes.discord.server import TOKEN, DiscordServer, Fault, discord_server
from tests.fakes.discord.world import Channel, Payload
from tests.fakes.gateway_settings import scripted
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here


class RunningGateway:
    """A running gateway and the private channel of its only person."""

    def __init__(self, task: asyncio.Task[None], discord: DiscordServer, person: Payload) -> None:
        self._task = task
        self.discord = discord
        self.direct = discord.world.direct(person)

    def kill(self) -> None:
        """Cancel the gateway without draining, notices or suspension, as a crash would."""
        self._task.cancel()

    async def shows(self, channel: Channel, *texts: str) -> None:
        """Wait until each text is part of some message of the bot."""
        await self.discord.until(
            lambda: all(
                any(text in shown for shown in self.discord.screen(channel)) for text in texts
            ),
            PATIENCE,
        )

    async def settled(self) -> None:
        """Wait until no answer is streaming, which the server would report as a violation."""
        await self.discord.until(lambda: self.discord.violations() == [], PATIENCE)


@contextlib.asynccontextmanager
async def running_gateway(
    home: Path, discord: DiscordServer, model: ModelServer, person: Payload, **limits: Any
) -> AsyncIterator[RunningGateway]:
    def build(config: DiscordConfig, given: Surroundings) -> DiscordAdapter:
        adapter = DiscordAdapter(config, given, join_seconds=0.05, reidentify_seconds=0.0)
        adapter.capabilities = msgspec.structs.replace(adapter.capabilities, **limits)
        return adapter

    config = DiscordConfig(token=Secret(TOKEN), base_url=discord.url)
    access = AccessSettings(allow=(f"discord:{person['id']}",))
    settings = scripted(model, {"discord": config}, access)
    spec = PlatformSpec("discord", DiscordConfig, build)
    runner = GatewayRunner(
        settings, home, specs={"discord": spec}, serve_http=False, clock=clock_here()
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        async with asyncio.timeout(PATIENCE):
            await runner.ready.wait()
        try:
            yield RunningGateway(task, discord, person)
        finally:
            runner.stopping.set()
            runner.skip_drain.set()


async def test_the_stop_button_ends_an_answer(tmp_path: Path) -> None:
    async with discord_server() as discord, ModelServer(talkative) as model:
        ann = discord.world.user("Ann")
        async with running_gateway(tmp_path, discord, model, ann) as home:
            await discord.say(home.direct, ann, "hang")
            await home.shows(home.direct, "so far")
            pressed = await discord.press(home.direct, ann, "Stop")
            await home.shows(home.direct, "Stopped")
            await home.settled()
        assert pressed.seconds is not None


async def test_a_slash_command_is_executed(tmp_path: Path) -> None:
    async with discord_server() as discord, ModelServer(talkative) as model:
        ann = discord.world.user("Ann")
        async with running_gateway(tmp_path, discord, model, ann) as home:
            await discord.until(lambda: bool(discord.world.commands))
            await discord.command(home.direct, ann, "whoami")
            await home.shows(home.direct, f"discord:{ann['id']}")
            await home.settled()
        assert {"stop", "new", "help", "approve"} <= {c["name"] for c in discord.world.commands}


@pytest.mark.process
async def test_an_answer_in_flight_when_the_process_dies_is_not_posted_twice(
    tmp_path: Path,
) -> None:
    async with discord_server() as discord, ModelServer(talkative) as model:
        ann = discord.world.user("Ann")
        gate = asyncio.Event()
        async with running_gateway(tmp_path, discord, model, ann) as home:
            discord.fail("POST message", Fault(cut_after=True, gate=gate), channel=home.direct)
            await discord.say(home.direct, ann, "Hello")
            await discord.until(lambda: "POST message" in discord.called())
            gate.set()
            await home.shows(home.direct, "echo: Hello")
            home.kill()
        async with running_gateway(tmp_path, discord, model, ann) as home:
            await discord.say(home.direct, ann, "again")
            await home.shows(home.direct, "again")
        assert sum("echo: Hello" in text for text in discord.screen(home.direct)) == 1
