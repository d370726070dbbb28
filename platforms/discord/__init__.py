"""Discord adapter, built on discord.py.

`adapter` implements the platform contract; `config`, `capabilities` and `guide` describe it, and
`probe` and `invite` ask Discord about the bot without connecting to the gateway.
Inbound: `receive` handles gateway frames per channel (`queues`), using `decode` (payloads to
events), `interactions` (buttons, slash commands), `lookup` (REST questions), `rooms` (channels and
recent messages), `receiver_state` (`authors` and `read_marks`, which survive a reconnect).
Outbound: `send` carries out ops, with `payloads` for request bodies, `format` for Markdown, and
`private_answers` for answers that only one person sees.
Both: `connection` (the library's client), `rate_limit`, `errors`.
"""

from importlib.util import find_spec

from platforms.core.contract import Adapter, PlatformSpec, Surroundings
from platforms.core.probed import ProbeResult
from platforms.discord.config import DiscordConfig
from platforms.discord.guide import GUIDE

__all__ = ["SPEC", "DiscordConfig"]

if find_spec("discord") is None:
    raise ModuleNotFoundError(name="discord")


def _build(config: DiscordConfig, surroundings: Surroundings) -> Adapter:
    # Importing the library takes 150 ms, so import it only when Discord is configured.
    from platforms.discord.adapter import DiscordAdapter

    return DiscordAdapter(config, surroundings)


async def _probe(config: DiscordConfig, *, alone: bool = False) -> ProbeResult:
    from platforms.discord.probe import probe

    return await probe(config, alone=alone)


SPEC = PlatformSpec(
    name="discord",
    config=DiscordConfig,
    build=_build,
    secrets={"token": "DISCORD_BOT_TOKEN"},
    guide=GUIDE,
    probe=_probe,
)
