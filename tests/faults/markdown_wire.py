"""The same texts over the wire: each adapter, its real library, and the small server on loopback."""

from collections.abc import Iterable

from gateway.delivery.view import render_final
from platforms.core.contract import Address, Post
from tests.fakes.discord.life import Life
from tests.fakes.discord.server import discord_server
from tests.fakes.slack.kit import adapter_for, slack_server
from tests.fakes.slack.workspace import TEAM
from tests.fakes.telegram.kit import telegram
from tests.fakes.telegram.server import serving
from tests.faults.markdown_stages import DiscordStage, SlackStage, TelegramStage, shown_on_telegram
from tests.faults.markdown_texts import text_of

_MOST_PARTS = 4  # in one chat, whose pace is not what is tried here


async def differences(platform: str, seeds: Iterable[int]) -> list[str]:
    """Name the texts of which something else arrives than without a wire."""
    match platform:
        case "telegram":
            return await _telegram(seeds)
        case "discord":
            return await _discord(seeds)
        case _:
            return await _slack(seeds)


async def _telegram(seeds: Iterable[int]) -> list[str]:
    stage = TelegramStage()
    found = []
    async with serving() as server, telegram(server) as adapter:
        for seed in seeds:
            chat = str(1000 + seed)
            parts = render_final(text_of(seed), adapter.capabilities)[:_MOST_PARTS]
            for number, part in enumerate(parts):
                await adapter.deliver(Post(f"{seed}.{number}", Address("telegram", chat), part))
            seen = [shown_on_telegram(each) for each in server.messages(int(chat))]
            if seen != await stage.post(parts):
                found.append(f"text {seed}")
        found += server.complaints()
    return found


async def _discord(seeds: Iterable[int]) -> list[str]:
    stage = DiscordStage()
    found = []
    async with discord_server(pace=(1000, 1.0)) as discord:
        life = Life(discord)
        async with life.running() as adapter:
            for seed in seeds:
                room = discord.world.room(life.guild, f"room-{seed}")
                parts = render_final(text_of(seed), adapter.capabilities)[:_MOST_PARTS]
                for number, part in enumerate(parts):
                    place = Address("discord", room.id)
                    await adapter.deliver(Post(f"{seed}.{number}", place, part))
                if discord.screen(room) != [each.raw for each in await stage.post(parts)]:
                    found.append(f"text {seed}")
            found += discord.violations()
    return found


async def _slack(seeds: Iterable[int]) -> list[str]:
    stage = SlackStage()
    found = []
    async with slack_server() as slack:
        adapter = adapter_for(slack)
        for seed in seeds:
            channel = f"C{seed}X"
            slack.add_channel(channel)
            parts = render_final(text_of(seed), adapter.capabilities)[:_MOST_PARTS]
            for number, part in enumerate(parts):
                place = Address("slack", f"{TEAM}/{channel}")
                await adapter.deliver(Post(f"{seed}.{number}", place, part))
            if slack.workspace.screen(channel) != [each.raw for each in await stage.post(parts)]:
                found.append(f"text {seed}")
        found += slack.violations()
    return found
