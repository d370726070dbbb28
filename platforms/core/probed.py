"""Sans-IO: what a platform tells of a bot without connecting it."""

import msgspec

from sessions.values.finding import Finding, FindingLevel

__all__ = ["Finding", "FindingLevel", "ProbeResult"]


class ProbeResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The bot as the platform knows it, and what is right and wrong about its settings there."""

    name: str  # as people see it
    handle: str  # as people address it, such as @BOT
    link: str = ""  # where it is reached, or let in
    findings: tuple[Finding, ...] = ()
