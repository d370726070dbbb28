"""Sans-IO: masking of secrets in streamed text.

Text that was shown cannot be taken back, so the end of the text is held back while it may be the
beginning of a secret. Ordinary words pass at once.
"""

import re
from collections.abc import Iterator

from gateway.observe.redact import Redactor

_MAX_HELD = 20_000

# The only two patterns with blanks inside.
_PRIVATE_KEY_HEAD = "-----BEGIN"
_BEARER = ("Bearer ", "bearer ")

_TOKEN_PREFIXES = (
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


def _prefix_pattern(word: str) -> str:
    """Return a pattern that matches any prefix of a word at the end of the text."""
    pattern = ""
    for character in reversed(word):
        more = rf"(?:{pattern}|\Z)" if pattern else ""
        pattern = re.escape(character) + more
    return pattern


def _unfinished_patterns() -> Iterator[str]:
    """Yield patterns for the incomplete forms of the tokens in `gateway.observe.redact`."""
    yield r"-----BEGIN(?:(?!-----END)[\s\S])*(?:-----END[A-Z ]*-{0,4})?\Z"
    yield r"(?<![-])(?<!KEY)-+\Z"
    yield rf"-----{_prefix_pattern('BEGIN')}\Z"
    yield r"(?<![0-9])[0-9]{1,12}(?::[\w-]*)?\Z"
    for prefix in _TOKEN_PREFIXES:
        yield rf"\b{_prefix_pattern(prefix)}\S*\Z"
    yield rf"\b(?:{'|'.join(map(_prefix_pattern, _BEARER))})\S*\Z"
    yield r":/{0,2}\Z"
    yield r"://[^\s/@]*\Z"
    # Discord's tokens begin with a user id in base64, so few pairs of characters are possible.
    yield r"\b(?:[MNO]|M[TjzD]|N[DTjz]|O[DT])\Z"
    yield r"\b(?:M[TjzD]|N[DTjz]|O[DT])[\w-]{0,26}(?:\.[\w-]{0,6}(?:\.[\w-]*)?)?\Z"


_UNFINISHED = re.compile("|".join(f"(?:{each})" for each in _unfinished_patterns()))


class RedactingStream:
    """Filter between a streamed text and its reader."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._last_character = ""  # last character shown, because word boundaries matter

    def add(self, text: str) -> str:
        """Add text and return the part that can be shown now."""
        self._held += text
        until = self._safe_length() if len(self._held) <= _MAX_HELD else len(self._held)
        return self._release(until)

    def flush(self) -> str:
        """Return the held text, because the stream has ended."""
        return self._release(len(self._held))

    def _safe_length(self) -> int:
        text, shown = self._last_character + self._held, len(self._last_character)
        found = _UNFINISHED.search(text, max(shown, _search_start(text)))
        until = found.start() - shown if found else len(self._held)
        for value in self._redactor.values:
            until = min(until, _find_partial_secret(self._held, value, until))
        return until

    def _release(self, length: int) -> str:
        part, self._held = self._held[:length], self._held[length:]
        if not part:
            return ""
        cleaned = self._redactor.redact(self._last_character + part)
        cleaned = (
            cleaned[len(self._last_character) :]
            if cleaned.startswith(self._last_character)
            else self._redactor.redact(part)
        )
        self._last_character = part[-1]
        return cleaned


def _search_start(text: str) -> int:
    """Return the position from which an incomplete secret can begin.

    This is the last word, except for a private key and for the word after "Bearer". Searching the
    text before would cost more than all other work on a chunk.
    """
    if _PRIVATE_KEY_HEAD in text:
        return 0
    blank = text.rfind(" ") + 1
    return blank - len(_BEARER[0]) if text.endswith(_BEARER, 0, blank) else blank


def _find_partial_secret(held: str, value: str, until: int) -> int:
    """Return the position from which the end of the text is a prefix of a known secret."""
    at = held.find(value[0], max(0, len(held) - len(value) + 1))
    while 0 <= at < until:
        if value.startswith(held[at:]):
            return at
        at = held.find(value[0], at + 1)
    return until
