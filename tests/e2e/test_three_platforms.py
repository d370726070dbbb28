"""The daemon with all three platforms at once, each with its real library and a fake server."""

import asyncio
import re
from pathlib import Path

import aiohttp

from tests.e2e.daemon import Daemon
from tests.e2e.gateway_kit import talkative
from tests.fakes.discord.server import TOKEN as DISCORD_TOKEN
from tests.fakes.discord.server import DiscordServer, discord_server
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.server import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.fakes.telegram.server import TOKEN as TELEGRAM_TOKEN
from tests.fakes.telegram.server import TelegramServer, serving


def daemon(
    home: Path,
    model: ModelServer,
    telegram: TelegramServer,
    discord: DiscordServer,
    slack: SlackServer,
    *sets: str,
) -> Daemon:
    return Daemon(
        home,
        "model.name=scripted",
        "gateway.stale_after=3650d",  # the fake servers use fixed message times
        f"model.base_url={model.url}",
        f"platforms.telegram.base_url={telegram.url}",
        f"platforms.discord.base_url={discord.url}",
        f"platforms.slack.base_url={slack.url}",
        *sets,
        env={
            "OPENAI_API_KEY": "sk-none",
            "TELEGRAM_BOT_TOKEN": TELEGRAM_TOKEN,
            "DISCORD_BOT_TOKEN": DISCORD_TOKEN,
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
        },
        warm=True,
    )


async def standing(daemon: Daemon) -> dict[str, object]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{daemon.url}/readyz") as response,
    ):
        body: dict[str, object] = await response.json()
        return {**body, "status": response.status}


async def test_all_three_platforms_answer_and_are_ready(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        serving() as telegram,
        discord_server() as discord,
        SlackServer() as slack,
    ):
        ann = discord.world.user("Ann")
        allowed = f'["telegram:1001", "discord:{ann["id"]}", "slack:T1/U1"]'
        async with daemon(
            tmp_path, model, telegram, discord, slack, f"access.allow={allowed}"
        ) as running:
            assert (await standing(running))["status"] == 200
            telegram.say(1001, "from Telegram")
            direct = discord.world.direct(ann)
            await discord.say(direct, ann, "from Discord")
            await slack.say("D1", "from Slack")
            async with asyncio.timeout(15):
                await telegram.shows(1001, "echo: from Telegram")
                await discord.until(
                    lambda: any("echo: from Discord" in each for each in discord.screen(direct))
                )
                await slack.until(
                    lambda: any("echo: from Slack" in each for each in slack.workspace.screen("D1"))
                )
            assert await running.stop() == 0


async def test_a_failing_platform_is_reported_and_does_not_affect_the_others(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(talkative) as model,
        serving() as telegram,
        discord_server() as discord,
        SlackServer() as slack,
    ):
        discord.accepts_token = False
        allowed = '["telegram:1001"]'
        async with daemon(
            tmp_path, model, telegram, discord, slack, f"access.allow={allowed}"
        ) as running:
            telegram.say(1001, "are you there?")
            await telegram.shows(1001, "echo: are you there?")
            state = await standing(running)
            assert state["status"] == 503
            assert re.search("discord", str(state))
            assert not re.search("telegram|slack", str(state))
            assert await running.stop() == 0
