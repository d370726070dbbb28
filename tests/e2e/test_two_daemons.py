"""Two gateways that were started with the same token, by mistake: what people see, and who is told."""

from collections import Counter
from pathlib import Path

from tests.e2e.daemon import Daemon
from tests.e2e.house import talkative
from tests.fakes.discord.server import TOKEN as DISCORD_TOKEN
from tests.fakes.discord.server import discord_server
from tests.fakes.model_server import ModelServer

SAID = ("are you there?", "!retry", "/nonsense", "!whoami", "!stop")
"""Messages and commands; each is answered once by both, and what they say of it is one message."""


def on_discord(home: Path, model: ModelServer, url: str, *sets: str) -> Daemon:
    return Daemon(
        home,
        "model.name=scripted",
        "gateway.stale_after=3650d",
        f"model.base_url={model.url}",
        f"platforms.discord.base_url={url}",
        *sets,
        env={"OPENAI_API_KEY": "sk-none", "DISCORD_BOT_TOKEN": DISCORD_TOKEN},
    )


async def test_on_discord_a_message_that_both_receive_is_answered_once(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, discord_server(pace=(50, 5.0)) as discord:
        ann = discord.world.user("Ann")
        allow = f'access.allow=["discord:{ann["id"]}"]'
        direct = discord.world.direct(ann)
        async with (
            on_discord(tmp_path / "one", model, discord.url, allow) as one,
            on_discord(tmp_path / "two", model, discord.url, allow) as two,
        ):
            assert discord.identified == 2

            for shown, said in enumerate(SAID, 1):
                await discord.say(direct, ann, said)
                await discord.until(lambda: len(discord.called("POST message")) == 2 * shown)  # noqa: B023 - awaited here
                assert len(discord.screen(direct)) == shown, discord.screen(direct)
            assert Counter(discord.screen(direct))["echo: are you there?"] == 2
            assert len(model.requests) == 4
            assert await one.stop() == 0
            assert await two.stop() == 0
        assert len(discord.screen(direct)) == len(SAID)
