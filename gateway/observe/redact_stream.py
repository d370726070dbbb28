"""Sans-IO: secrets taken out of a text that is shown while it is still being written.

What is shown cannot be taken back, so the end of the text is held as long as it may be the
beginning of a secret. That is rare: ordinary words pass at once.
"""

import re
from collections.abc import Iterator

from gateway.observe.redact import Redactor

_MOST_HELD = 20_000

_KEY = "-----BEGIN"  # of shapes with blanks inside there are two, this one and
_BEARER = ("Bearer ", "bearer ")

_SIGNS = (
    "sk-",
    "xox",
    "xapp-",
    "ghp_",
    "github_pat_",
    "AKIA",
    "AIza",
    "eyJ",
    "hooks.slack.com/",
)


def _begun(word: str) -> str:
    """Match any beginning of a word that stands at the very end."""
    pattern = ""
    for sign in reversed(word):
        more = rf"(?:{pattern}|\Z)" if pattern else ""
        pattern = re.escape(sign) + more
    return pattern


def _unfinished() -> Iterator[str]:
    """See the shapes of `gateway.observe.redact`: each as far as it may have come."""
    yield r"-----BEGIN(?:(?!-----END)[\s\S])*(?:-----END[A-Z ]*-{0,4})?\Z"
    yield r"(?<![-])(?<!KEY)-+\Z"
    yield rf"-----{_begun('BEGIN')}\Z"
    yield r"(?<![0-9])[0-9]{1,12}(?::[\w-]*)?\Z"
    for sign in _SIGNS:
        yield rf"\b{_begun(sign)}\S*\Z"
    yield rf"\b(?:{'|'.join(map(_begun, _BEARER))})\S*\Z"
    yield r":/{0,2}\Z"
    yield r"://[^\s/@]*\Z"
    # Discord's begin with an encoded number: two signs of few.
    yield r"\b(?:[MNO]|M[TjzD]|N[DTjz]|O[DT])\Z"
    yield r"\b(?:M[TjzD]|N[DTjz]|O[DT])[\w-]{0,26}(?:\.[\w-]{0,6}(?:\.[\w-]*)?)?\Z"


_UNFINISHED = re.compile("|".join(f"(?:{each})" for each in _unfinished()))


class Veil:
    """Between a growing text and its reader."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._before = ""  # the last sign that was shown: where a word begins matters

    def add(self, text: str) -> str:
        """Take in what was added; gives what can be shown now."""
        self._held += text
        until = self._safe_until() if len(self._held) <= _MOST_HELD else len(self._held)
        return self._shown(until)

    def rest(self) -> str:
        """Give what was held: nothing is added to it any more."""
        return self._shown(len(self._held))

    def _safe_until(self) -> int:
        text, shown = self._before + self._held, len(self._before)
        found = _UNFINISHED.search(text, max(shown, _begins(text)))
        until = found.start() - shown if found else len(self._held)
        for value in self._redactor.values:
            until = min(until, _value_begins(self._held, value, until))
        return until

    def _shown(self, until: int) -> str:
        part, self._held = self._held[:until], self._held[until:]
        if not part:
            return ""
        cleaned = self._redactor.clean(self._before + part)
        cleaned = (
            cleaned[len(self._before) :]
            if cleaned.startswith(self._before)
            else self._redactor.clean(part)
        )
        self._before = part[-1]
        return cleaned


def _begins(text: str) -> int:
    """Find the place before which nothing begins that may go on at the end.

    That is the last word, but for a private key, and for the word behind "Bearer": to look through
    what comes before it would cost more than all else that is done with a piece of text.
    """
    if _KEY in text:
        return 0
    blank = text.rfind(" ") + 1
    return blank - len(_BEARER[0]) if text.endswith(_BEARER, 0, blank) else blank


def _value_begins(held: str, value: str, until: int) -> int:
    """Find where the end of a text begins to be a known secret."""
    at = held.find(value[0], max(0, len(held) - len(value) + 1))
    while 0 <= at < until:
        if value.startswith(held[at:]):
            return at
        at = held.find(value[0], at + 1)
    return until
