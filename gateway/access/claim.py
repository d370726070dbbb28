"""Sans-IO: the instructions for becoming the owner."""

from collections.abc import Sequence

from msgspec import Struct


class OwnerClaim(Struct, frozen=True):
    """A code that makes its sender the first admin, and links that submit it, by platform."""

    code: str
    links: dict[str, str] = {}


def claim_instructions(platforms: Sequence[str], claim: OwnerClaim, program: str) -> list[str]:
    """Return the instructions for claiming ownership, by link or message.

    `program` is the name the person types to run this program.
    """
    send = f"send “claim {claim.code}” to the bot in a direct message"
    by_platform = {
        "discord": f"{send} (`{program} config discord-invite` prints\n"
        "               the link that adds it to your server)",
    } | {name: f"open {link} and press Start" for name, link in claim.links.items()}
    steps = [
        f"    {name.capitalize() + ':':<10} {by_platform.get(name, send)}" for name in platforms
    ]
    return ["  There is no admin yet. To become the owner, within an hour:", *steps]
