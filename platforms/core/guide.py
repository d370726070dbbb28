"""Sans-IO: the tokens a platform needs, and instructions for getting them."""

import re
from collections.abc import Callable

import msgspec


class TokenGuide(msgspec.Struct, frozen=True, kw_only=True):
    """One secret of a platform, as asked for by the setup."""

    key: str  # key in the platform's configuration
    label: str  # name of the token on the platform
    pattern: str  # regular expression that the token matches
    example: str  # example shown to people
    steps: tuple[str, ...]  # one to three lines of instructions
    unless_mode: str = ""  # not needed if `mode` has this value

    def extract(self, pasted: str) -> str:
        """Find the token in pasted text with line breaks and other words; return "" if none."""
        whole = "".join(pasted.split())
        if re.fullmatch(self.pattern, whole):
            return whole
        inside = re.search(rf"(?<!\S){self.pattern}(?!\S)", pasted)
        return inside[0] if inside else ""


class SetupGuide(msgspec.Struct, frozen=True):
    """All tokens of a platform, in the order in which people get them."""

    tokens: tuple[TokenGuide, ...]
    details: Callable[[], str] | None = None  # long instructions, shown only on request
    link: str = ""  # text in front of `ProbeResult.link` that explains the link
