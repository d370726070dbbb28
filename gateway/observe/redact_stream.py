"""Sans-IO: masking of secrets in streamed text.

Text that was shown cannot be taken back, so the end of the text is held back while it may be the
beginning of a secret. Ordinary words pass at once.
"""

import re
from collections.abc import Iterable, Iterator

from gateway.observe.redact import PRIVATE_KEY_HEAD, Redactor
from sessions.values.masks import MASK, PLACEHOLDER_HEAD

_MAX_HELD = 20_000
_MIN_BEGINNING = 8  # characters of a configured secret that are not shown at the end of a text
_MAX_TOKEN = 500

# Together with private keys the only patterns with blanks inside.
_BEARER = ("Bearer ", "bearer ")

_TOKEN_PREFIXES = (
    "sk-",
    "xox",
    "xapp-",
    "hf-",
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
    yield r"(?<![-])(?<!KEY)-+\Z"
    yield rf"-----{_prefix_pattern('BEGIN')}\Z"
    yield r"(?<![0-9])[0-9]{1,12}(?::[\w-]*)?\Z"
    for prefix in _TOKEN_PREFIXES:
        yield rf"\b{_prefix_pattern(prefix)}\S*\Z"
    yield rf"\b(?:{'|'.join(map(_prefix_pattern, _BEARER))})\S*\Z"
    yield rf"{_prefix_pattern(PLACEHOLDER_HEAD)}[a-z2-7]{{0,9}}\Z"
    yield r":/{0,2}\Z"
    yield r"://[^\s/@]*\Z"
    # Discord's tokens begin with a user id in base64, so few pairs of characters are possible.
    yield r"\b(?:[MNO]|M[TjzD]|N[DTjz]|O[DT])\Z"
    yield r"\b(?:M[TjzD]|N[DTjz]|O[DT])[\w-]{0,26}(?:\.[\w-]{0,6}(?:\.[\w-]*)?)?\Z"


_CERTAIN_BEGINNING = re.compile(
    r"\b(?:sk-|ghp_|github_pat_|xox[a-z]-|xapp-|AIza|AKIA)(?=[\w-]*[0-9])[\w-]{12,}\Z"
)
_UNFINISHED_KEY = re.compile(r"-----BEGIN(?:(?!-----END)[\s\S])*(?:-----END[A-Z ]*-{0,4})?\Z")
_UNFINISHED = re.compile("|".join(f"(?:{each})" for each in _unfinished_patterns()))


def hold_back(text: str, redactor: Redactor) -> str:
    """Return a growing text without an end that may be the beginning of a secret."""
    start = max(0, len(text) - _MAX_HELD)  # text before is shown in any case
    end = text[max(0, start - 1) :]
    return text[: len(text) - len(end) + _safe_length(end, min(1, start), redactor.values)]


def mask_unfinished(text: str, redactor: Redactor) -> str:
    """Mask the end of a text that is certainly the beginning of a secret.

    An answer that was stopped or cut ends like this. Ends that may as well be an ordinary word,
    number or address stay.
    """
    last_word = text.rfind(" ") + 1
    found = _CERTAIN_BEGINNING.search(text, max(last_word, len(text) - _MAX_TOKEN))
    until = found.start() if found else len(text)
    for value in redactor.values:
        at = _find_partial_secret(text, 0, value, until)
        if len(text) - at >= _MIN_BEGINNING:
            until = at
    return text[:until] + MASK if until < len(text) else text


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
        shown = len(self._last_character)
        return _safe_length(self._last_character + self._held, shown, self._redactor.values) - shown

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


def _safe_length(text: str, shown: int, values: Iterable[str]) -> int:
    """Return the length up to which a text can be shown; `shown` characters are shown already."""
    found = _UNFINISHED.search(text, max(shown, _search_start(text)))
    until = found.start() if found else len(text)
    key = _UNFINISHED_KEY.search(text, shown) if PRIVATE_KEY_HEAD in text else None
    until = min(until, key.start()) if key else until
    for value in values:
        until = min(until, _find_partial_secret(text, shown, value, until))
    return until


def _search_start(text: str) -> int:
    """Return the position from which an incomplete secret can begin.

    This is the last word, except for the word after "Bearer" and for private keys, which are found
    separately. Searching the text before would cost more than all other work on a chunk.
    """
    blank = text.rfind(" ") + 1
    return blank - len(_BEARER[0]) if text.endswith(_BEARER, 0, blank) else blank


def _find_partial_secret(text: str, shown: int, value: str, until: int) -> int:
    """Return the position from which the end of the text is a prefix of a known secret."""
    at = text.find(value[0], max(shown, len(text) - len(value) + 1))
    while 0 <= at < until:
        if value.startswith(text[at:]):
            return at
        at = text.find(value[0], at + 1)
    return until
