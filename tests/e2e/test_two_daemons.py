"""Two gateways started with the same token by mistake: their answers and their reports."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from tests.e2e.daemon import Daemon
from tests.e2e.gateway_kit import talkative
from tests.fakes.discord.server import TOKEN as DISCORD_TOKEN
from tests.fakes.discord.server import discord_server
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.server import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.fakes.telegram.server import TOKEN as TELEGRAM_TOKEN
from tests.fakes.telegram.server import serving

INPUTS = ("are you there?", "!retry", "/nonsense", "!whoami", "!stop")
"""Messages and commands; the two daemons together show one answer to each."""


TOKENS = {
    "telegram": {"TELEGRAM_BOT_TOKEN": TELEGRAM_TOKEN},
    "discord": {"DISCORD_BOT_TOKEN": DISCORD_TOKEN},
    "slack": {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN},
}


@contextlib.asynccontextmanager
async def two_daemons(
    home: Path, platform: str, url: str, model: ModelServer, person: str
) -> AsyncIterator[tuple[Daemon, Daemon]]:
    """Start two daemons together, each with its own state folder."""
    made = [
        Daemon(
            home / name,
            "model.name=scripted",
            "gateway.stale_after=3650d",
            f"model.base_url={model.url}",
            f"platforms.{platform}.base_url={url}",
            f'access.allow=["{platform}:{person}"]',
            env={"OPENAI_API_KEY": "sk-none", **TOKENS[platform]},
        )
        for name in ("one", "two")
    ]
    one, two = made
    async with contextlib.AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            for each in made:
                group.create_task(stack.enter_async_context(each))
        yield one, two


async def assert_reported_by_all(daemons: tuple[Daemon, Daemon], platform: str, words: str) -> None:
    """Assert that each daemon reports it in its log, on `/readyz` and in its status alike."""
    for each in daemons:
        line = await each.in_trouble(words)
        assert line.startswith(f"{platform}: ")
        assert any(line in logged for logged in each.said), each.said
        told = json.loads(await each.run("status", "--json"))
        assert told["platforms"][platform] == line.removeprefix(f"{platform}: ")
        assert line.partition(": ")[2] in " ".join((await each.run("status")).split())


async def test_discord_message_received_by_both_daemons_is_answered_once(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, discord_server(pace=(50, 5.0)) as discord:
        ann = discord.world.user("Ann")
        direct = discord.world.direct(ann)
        async with two_daemons(tmp_path, "discord", discord.url, model, ann["id"]) as (one, two):
            assert discord.identified == 2

            for shown, said in enumerate(INPUTS, 1):
                await discord.say(direct, ann, said)
                await discord.until(lambda: len(discord.called("POST message")) == 2 * shown)  # noqa: B023 - awaited here
                assert len(discord.screen(direct)) == shown, discord.screen(direct)
            assert Counter(discord.screen(direct))["echo: are you there?"] == 2
            assert len(model.requests) == 4
            assert await one.stop() == 0
            assert await two.stop() == 0
        assert len(discord.screen(direct)) == len(INPUTS)


async def test_telegram_conflict_is_reported_by_both_and_messages_are_answered(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, serving() as telegram:
        async with two_daemons(tmp_path, "telegram", telegram.url, model, "1001") as both:
            await assert_reported_by_all(
                both, "telegram", "another program receives this bot's messages"
            )
            for number in range(3):
                telegram.say(1001, f"number {number}")
            await telegram.shows(1001, *(f"echo: number {number}" for number in range(3)))
            one, two = both
            assert await two.stop() == 0
            telegram.say(1001, "are you there?")
            await telegram.shows(1001, "echo: are you there?")
            assert await one.stop() == 0
        assert set(telegram.violations) == {"two programs ask for updates"}


async def test_slack_conflict_is_reported_within_ten_seconds_and_answered_once(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, SlackServer() as slack:
        async with two_daemons(tmp_path, "slack", slack.url, model, "T1/U1") as both:
            words = "another program uses the same app token"
            async with asyncio.timeout(10):
                for each in both:
                    await each.in_trouble(words)
            await assert_reported_by_all(both, "slack", words)
            await slack.say("D1", "hello")
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hello"])
            for each in both:
                assert await each.stop() == 0
        assert slack.violations() == []
