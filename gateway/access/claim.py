"""Sans-IO: what somebody is told who may become the owner."""

from collections.abc import Sequence

from msgspec import Struct


class OwnerClaim(Struct, frozen=True):
    """A code by which the first admin shows up, and links that hand it in, by platform."""

    code: str
    links: dict[str, str] = {}


def claim_instructions(platforms: Sequence[str], claim: OwnerClaim, program: str) -> list[str]:
    """Say how the owner shows up: by a link where there can be one, else by a message.

    `name`: by which the person starts this program.
    """
    send = f"send “claim {claim.code}” to the bot in a DM"
    by_platform = {
        "discord": f"{send} (`{program} config discord-invite` prints\n"
        "               the link that lets it into a server of yours)",
    } | {each: f"open {link} and press Start" for each, link in claim.links.items()}
    ways = [
        f"    {each.capitalize() + ':':<10} {by_platform.get(each, send)}" for each in platforms
    ]
    return ["  Nobody is an admin yet. To become the owner, within an hour:", *ways]
