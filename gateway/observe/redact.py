"""Masking of secrets in texts: configured secrets, and tokens recognized by their format.

Cheap enough for every log line and every outgoing text: a pattern is tried only if its short
marker occurs in the text.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote

from msgspec import Struct, structs

from sessions.values.secret import Secret

_MASK = "***"
_MIN_SECRET_LENGTH = 6  # shorter secrets would mask ordinary words


class _SecretPattern(Struct, frozen=True):
    """The format of a kind of token; group 1, if there is one, stays readable."""

    marker: str
    pattern: re.Pattern[str]


def _secret_pattern(marker: str, pattern: str) -> _SecretPattern:
    return _SecretPattern(marker, re.compile(pattern))


_DIGIT = r"(?=[\w.~+/=-]*[0-9])"  # keys contain digits, other names mostly do not
_SECRET_PATTERNS = (
    _secret_pattern(
        "-----BEGIN", r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|\Z)"
    ),
    _secret_pattern(":", r"(?<![0-9])[0-9]{6,12}:[A-Za-z0-9_-]{30,}"),  # Telegram
    _secret_pattern("xox", r"\bxox[a-z]-[A-Za-z0-9-]{10,}"),  # Slack
    _secret_pattern("xapp-", r"\bxapp-[A-Za-z0-9-]{10,}"),
    _secret_pattern("hooks.slack.com/", r"(hooks\.slack\.com/services/)[A-Za-z0-9/]+"),
    _secret_pattern("sk-", rf"\bsk-{_DIGIT}[A-Za-z0-9_-]{{20,}}"),  # OpenAI, Anthropic and others
    _secret_pattern("earer ", rf"\b([Bb]earer ){_DIGIT}[A-Za-z0-9._~+/=-]{{16,}}"),
    _secret_pattern("ghp_", r"\bghp_[A-Za-z0-9]{30,}"),
    _secret_pattern("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{30,}"),
    _secret_pattern("AKIA", r"\bAKIA[A-Z0-9]{16}\b"),
    _secret_pattern("AIza", r"\bAIza[A-Za-z0-9_-]{35}"),
    _secret_pattern(
        "eyJ", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    ),  # JWT
    _secret_pattern("://", r"(://[^\s:/@]*:)[^\s/@]+(?=@)"),  # a password in a URL
)
# Discord's tokens have no prefix; their marker is the part between two dots.
_DISCORD_MIDDLE = re.compile(r"\.[\w-]{6}\.[\w-]{27}")
_DISCORD = re.compile(r"\b[A-Za-z0-9_-]{23,28}\.[\w-]{6}\.[\w-]{27,}")


class Redactor:
    """Masker of the secrets of this process."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._values: tuple[str, ...] = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: Secret) -> None:
        """Mask one more secret from now on, including later values after a key rotation."""
        secret.on_replaced(self._add_value)
        self._add_value(secret)

    def _add_value(self, secret: Secret) -> None:
        value = secret.reveal()
        forms = {value, quote(value, safe=""), *value.splitlines()}
        known = {*self._values, *(form for form in forms if len(form) >= _MIN_SECRET_LENGTH)}
        # Longest first, because a secret may be a prefix of another one.
        self._values = tuple(sorted(known, key=lambda form: (-len(form), form)))

    @property
    def values(self) -> tuple[str, ...]:
        """All configured secrets, in every encoding in which they may appear."""
        return self._values

    def redact(self, text: str) -> str:
        """Return the text with secrets masked."""
        for value in self._values:
            if value in text:
                text = text.replace(value, _MASK)
        for shape in _SECRET_PATTERNS:
            if shape.marker in text:
                text = shape.pattern.sub(_mask_match, text)
        if _DISCORD_MIDDLE.search(text):
            text = _DISCORD.sub(_MASK, text)
        return text


def _mask_match(match: re.Match[str]) -> str:
    return f"{match[1]}{_MASK}" if match.re.groups else _MASK


def find_secrets(settings: object) -> Iterable[Secret]:
    """Yield all secrets inside settings, at any depth."""
    if isinstance(settings, Secret):
        yield settings
    elif isinstance(settings, Struct):
        for value in structs.asdict(settings).values():
            yield from find_secrets(value)
    elif isinstance(settings, (tuple, list, dict)):
        for value in settings.values() if isinstance(settings, dict) else settings:
            yield from find_secrets(value)
