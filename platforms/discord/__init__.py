"""Discord: one bot account, by discord.py.

connection  the library's client: the gateway socket, and the REST calls with our own pace
gate        Sans-IO: when a REST call may go
faults      what the library raises, as errors of `platforms.core.errors`
events      Sans-IO: what the gateway sends, as events of ours
rooms       Sans-IO: which channel is a thread of which, and what was said there lately
authors     Sans-IO: who wrote what was meant for us
marks       Sans-IO: what was seen last in the channels in use
lines       events of one channel in order, channels side by side, long texts joined
wire        Sans-IO: what we send: messages, buttons, commands
guide       Sans-IO: how somebody gets a bot
invite      the link that lets the bot into a server
probe       whether the bot can work, asked without connecting it
render      Sans-IO: Markdown as Discord shows it
persistence calls that are tried again a few times
speaker     carries out ops
adapter     the platform as the gateway knows it
"""

from importlib import import_module
from importlib.util import find_spec

from platforms.core.contract import Adapter, PlatformSpec, Surroundings
from platforms.core.probed import ProbeResult
from platforms.discord.config import DiscordConfig
from platforms.discord.guide import GUIDE

__all__ = ["SPEC", "DiscordConfig"]

if find_spec("discord") is None:
    raise ModuleNotFoundError(name="discord")


def _build(config: DiscordConfig, surroundings: Surroundings) -> Adapter:
    # The library takes 150 ms to import: only who uses Discord should wait for it.
    adapter: Adapter = import_module("platforms.discord.adapter").DiscordAdapter(
        config, surroundings
    )
    return adapter


async def _probe(config: DiscordConfig, *, alone: bool = False) -> ProbeResult:
    probed: ProbeResult = await import_module("platforms.discord.probe").probe(config, alone=alone)
    return probed


SPEC = PlatformSpec(
    name="discord",
    config=DiscordConfig,
    build=_build,
    secrets={"token": "DISCORD_BOT_TOKEN"},
    guide=GUIDE,
    probe=_probe,
)
