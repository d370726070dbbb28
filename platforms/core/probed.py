"""Sans-IO: the result of probing a bot without a connection."""

import msgspec

from sessions.values.finding import Finding, FindingLevel

__all__ = ["Finding", "FindingLevel", "ProbeResult"]


class ProbeResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The bot's identity on the platform, and findings about the settings there."""

    name: str  # display name
    handle: str  # address used by people, such as @BOT
    link: str = ""  # link to chat with the bot or to invite the bot
    findings: tuple[Finding, ...] = ()
