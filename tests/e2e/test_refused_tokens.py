"""A platform that refuses the bot is reported plainly, stops, and does not affect the others."""

from pathlib import Path

import pytest

from tests.e2e.daemon import Daemon, Page, answers
from tests.e2e.gateway_kit import talkative
from tests.e2e.test_three_platforms import daemon
from tests.fakes.discord.server import TOKEN, discord_server
from tests.fakes.discord.world import CONTENT_INTENT
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.server import Fault, SlackServer
from tests.fakes.telegram.server import serving

ALLOWED = 'access.allow=["telegram:1001", "slack:T1/U1"]'


async def wait_for_page_answer(running: Daemon) -> None:
    async with Page(running) as page:
        assert await page.send("chat-1", "are you there?", "message-1") == 202
        await page.until("chat-1", lambda rows: "echo: are you there?" in answers(rows))


def count_in_log(running: Daemon, words: str) -> int:
    """Return the number of attempts; a permanent refusal must be tried only once."""
    return sum(words in line for line in running.said)


async def test_revoked_tokens_and_a_missing_intent_stop_only_their_platform(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(talkative) as model,
        serving() as telegram,
        discord_server(allowed_intents=~CONTENT_INTENT) as discord,
        SlackServer() as slack,
    ):
        slack.fail("auth.test", Fault(error="token_revoked"))
        async with daemon(tmp_path, model, telegram, discord, slack, ALLOWED) as running:
            telegram.say(1001, "are you there?")
            await telegram.shows(1001, "echo: are you there?")
            state = await running.standing()
            assert state["status"] == 503
            intent, revoked = state["not_ready"]
            assert intent == (
                "discord: Discord refuses the connection because the bot's Message Content Intent "
                "is switched off. Switch it on at https://discord.com/developers/applications "
                "(your application, Bot, Privileged Gateway Intents) and start again"
            )
            assert revoked == "slack: Slack does not accept the token (token_revoked)"

            telegram.token_works = False  # noticed at the next poll
            telegram.say(1001, "too late")
            assert await running.in_trouble("telegram") == (
                "telegram: Telegram does not accept the token (platforms.telegram.token, "
                "TELEGRAM_BOT_TOKEN)"
            )
            await wait_for_page_answer(running)
            for line in (await running.standing())["not_ready"]:
                assert line.partition(": ")[2] in await running.run("status")
                assert count_in_log(running, line) == 1
            assert discord.identified == 0
            assert await running.stop() == 0


@pytest.mark.parametrize("when", ["at the start", "while it runs"])
async def test_a_refused_discord_token_is_reported_and_not_retried(
    tmp_path: Path, when: str
) -> None:
    async with ModelServer(talkative) as model, discord_server() as discord:
        discord.accepts_token = when != "at the start"
        started = Daemon(
            tmp_path,
            f"model.base_url={model.url}",
            "model.name=scripted",
            f"platforms.discord.base_url={discord.url}",
            env={"OPENAI_API_KEY": "sk-none", "DISCORD_BOT_TOKEN": TOKEN},
            warm=True,
        )
        async with started as running:
            if when == "while it runs":
                discord.accepts_token = False
                await discord.close_gateway(4004)
            words = "Discord does not accept the bot's token; set platforms.discord.token to a new"
            assert (await running.in_trouble(words)).startswith("discord: ")
            await wait_for_page_answer(running)
            assert count_in_log(running, words) == 1
            assert await running.stop() == 0
