"""Sans-IO: what somebody who sets a platform up is asked for, and how to come by it."""

import re
from collections.abc import Callable

import msgspec


class Token(msgspec.Struct, frozen=True):
    """One secret of a platform."""

    key: str  # in the platform's configuration
    words: str  # what it is called there
    form: str  # a regular expression of it
    looks: str  # the same for people
    steps: tuple[str, ...]  # one to three lines on how to get it
    unless_mode: str = ""  # with this `mode` the platform does without

    def found_in(self, pasted: str) -> str:
        """Take the token out of what was pasted, broken lines and words around it; "" if none."""
        whole = "".join(pasted.split())
        if re.fullmatch(self.form, whole):
            return whole
        inside = re.search(rf"(?<!\S){self.form}(?!\S)", pasted)
        return inside[0] if inside else ""


class Guide(msgspec.Struct, frozen=True):
    """All that a platform must be told, in the order in which people come by it."""

    tokens: tuple[Token, ...]
    at_length: Callable[[], str] | None = None  # what is too long to be said unasked
    link: str = ""  # what `Probed.link` must be opened for, in words that end before it
