"""Sans-IO: what somebody who sets a platform up is asked for, and how to come by it."""

import re
from collections.abc import Callable

import msgspec


class TokenGuide(msgspec.Struct, frozen=True, kw_only=True):
    """One secret of a platform."""

    key: str  # in the platform's configuration
    label: str  # what it is called there
    pattern: str  # a regular expression of it
    example: str  # the same for people
    steps: tuple[str, ...]  # one to three lines on how to get it
    unless_mode: str = ""  # with this `mode` the platform does without

    def extract(self, pasted: str) -> str:
        """Take the token out of what was pasted, broken lines and words around it; "" if none."""
        whole = "".join(pasted.split())
        if re.fullmatch(self.pattern, whole):
            return whole
        inside = re.search(rf"(?<!\S){self.pattern}(?!\S)", pasted)
        return inside[0] if inside else ""


class SetupGuide(msgspec.Struct, frozen=True):
    """All that a platform must be told, in the order in which people come by it."""

    tokens: tuple[TokenGuide, ...]
    details: Callable[[], str] | None = None  # what is too long to be said unasked
    link: str = ""  # what `Probed.link` must be opened for, in words that end before it
