"""Masking of secrets in texts: configured secrets, and tokens recognized by their format.

Texts for people and logs show `***`. Texts that the model may write back show placeholders, so that
the secrets can be restored.

Cheap enough for every log line and every outgoing text: a pattern is tried only if its short
marker occurs in the text.
"""

import re
import secrets as randomness
from collections.abc import Callable, Iterable
from urllib.parse import quote

from msgspec import Struct, structs

from sessions.values.masks import (
    MASK,
    PLACEHOLDER,
    PLACEHOLDER_HEAD,
    MaskedText,
    placeholder_for,
)
from sessions.values.secret import Secret
from sessions.values.text import blocks_of_lines

_KEY_BYTES = 32
_ONE_BLOCK = 16_000  # characters that are searched at once
_MIN_SECRET_LENGTH = 6  # shorter secrets would mask ordinary words


_SCHEME = re.compile(r"(?:bearer|basic|token|apikey)[ \t]+(?=\S+\Z)", re.IGNORECASE)
"""Beginning of a header with credentials."""

_KEPT_GENERATIONS = 4  # of changing secrets with one name

_NO_DIGIT_BEFORE = r"(?<![0-9][0-9])"  # follows the digit, because a search for a class is fast


class _SecretPattern(Struct, frozen=True):
    """The format of a kind of token; group 1, if there is one, stays readable."""

    marker: str
    pattern: re.Pattern[str]
    core: re.Pattern[str]  # without the word boundaries around


def _secret_pattern(marker: str, pattern: str) -> _SecretPattern:
    core = pattern.removeprefix(r"\b").removesuffix(r"\b").replace(_NO_DIGIT_BEFORE, "")
    return _SecretPattern(marker, re.compile(pattern), re.compile(core))


_DIGIT = r"(?=[\w.~+/=-]*[0-9])"  # keys contain digits, other names mostly do not
PRIVATE_KEY_HEAD = "-----BEGIN"
_PRIVATE_KEY = _secret_pattern(
    PRIVATE_KEY_HEAD, r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|\Z)"
)
_TOKENS = (
    _secret_pattern(":", rf"[0-9]{_NO_DIGIT_BEFORE}[0-9]{{5,11}}:[A-Za-z0-9_-]{{30,}}"),  # Telegram
    _secret_pattern("xox", r"\bxox[a-z]-[A-Za-z0-9-]{10,}"),  # Slack
    _secret_pattern("xapp-", r"\bxapp-[A-Za-z0-9-]{10,}"),
    _secret_pattern("hooks.slack.com/", r"(hooks\.slack\.com/services/)[A-Za-z0-9/]+"),
    _secret_pattern("sk-", rf"\bsk-{_DIGIT}[A-Za-z0-9_-]{{20,}}"),  # OpenAI, Anthropic and others
    _secret_pattern("earer ", rf"\b([Bb]earer ){_DIGIT}[A-Za-z0-9._~+/=-]{{16,}}"),
    _secret_pattern("hf-", r"\bhf-[A-Za-z0-9_-]{43}"),  # API keys of Holdfast
    _secret_pattern("ghp_", r"\bghp_[A-Za-z0-9]{30,}"),
    _secret_pattern("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{30,}"),
    _secret_pattern("AKIA", r"\bAKIA[A-Z0-9]{16}\b"),
    _secret_pattern("AIza", r"\bAIza[A-Za-z0-9_-]{35}"),
    _secret_pattern(
        "eyJ", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    ),  # JWT
    _secret_pattern("://", r"(://[^\s:/@]*:)[^\s/@]+(?=@)"),  # a password in a URL
)
_PATTERNS = (_PRIVATE_KEY, *_TOKENS)
# Discord's tokens have no prefix; their marker is the part between two dots.
_DISCORD_MIDDLE = re.compile(r"\.[\w-]{6}\.[\w-]{27}")
_DISCORD = re.compile(r"\b[A-Za-z0-9_-]{23,28}\.[\w-]{6}\.[\w-]{27,}")
_PLACEHOLDERS = re.compile(f"({PLACEHOLDER.pattern})")
_LINE = re.compile(r"\S(?:[^\n\r]*\S)?")


class Redactor:
    """Masker of the secrets of this process."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._values: tuple[str, ...] = ()
        self._fixed: frozenset[str] = frozenset()
        self._changing: dict[str, tuple[tuple[str, ...], ...]] = {}  # by name, the newest first
        self._reduced_values: dict[Callable[[str], str], tuple[str, ...]] = {}
        self._placeholder_key = randomness.token_bytes(_KEY_BYTES)
        for secret in secrets:
            self.add(secret)

    def add(self, secret: Secret) -> None:
        """Mask one more secret from now on, including later values after a key rotation."""
        secret.on_replaced(self._add_value)
        self._add_value(secret)

    def set_changing(self, name: str, secrets: tuple[str, ...]) -> None:
        """Mask secrets that change often, such as tokens, and the last ones of the same name."""
        known = self._changing.get(name, ())
        if secrets and (not known or known[0] != secrets):
            self._changing[name] = (secrets, *known)[:_KEPT_GENERATIONS]
            self._update_values()

    def _add_value(self, secret: Secret) -> None:
        self._fixed |= _forms_of(secret.reveal())
        self._update_values()

    def _update_values(self) -> None:
        changing = (
            form
            for generations in self._changing.values()
            for secrets in generations
            for secret in secrets
            for form in _forms_of(secret)
        )
        # Longest first, because a secret may be a prefix of another one.
        known = {*self._fixed, *changing}
        self._values = tuple(sorted(known, key=lambda form: (-len(form), form)))
        self._reduced_values.clear()

    @property
    def values(self) -> tuple[str, ...]:
        """All configured secrets, in every encoding in which they may appear."""
        return self._values

    def redact(self, text: str) -> str:
        """Return the text with secrets, and placeholders of secrets, masked."""
        text = self._replace_secrets(text, _show_mask)
        return PLACEHOLDER.sub(MASK, text) if PLACEHOLDER_HEAD in text else text

    def mask(self, text: str) -> MaskedText:
        """Return the text with a placeholder for each secret, line by line.

        A secret of several lines gets a placeholder for each line, so line numbers stay the same.
        A text that is masked already stays as it is.
        """
        hidden: dict[str, str] = {}

        def hide_line(line: re.Match[str]) -> str:
            if PLACEHOLDER.fullmatch(line[0]):
                return line[0]
            placeholder = placeholder_for(line[0], self._placeholder_key)
            hidden[placeholder] = line[0]
            return placeholder

        masked = self._replace_secrets(text, lambda secret: _LINE.sub(hide_line, secret))
        return MaskedText(masked, hidden, frozenset(PLACEHOLDER.findall(text)))

    def _replace_secrets(self, text: str, hide: Callable[[str], str]) -> str:
        for value in self._values:
            if value in text:
                text = _replace_value(text, value, hide(value))

        def hide_match(match: re.Match[str]) -> str:
            visible = match[1] if match.re.groups else ""
            return visible + hide(match[0][len(visible) :])

        if _PRIVATE_KEY.marker in text:  # the only secret of several lines
            text = _PRIVATE_KEY.pattern.sub(hide_match, text)
        if len(text) <= _ONE_BLOCK:  # as almost every text
            return _hide_tokens(text, hide_match)
        return "".join(
            _hide_tokens(block, hide_match) for block in blocks_of_lines(text, _ONE_BLOCK)
        )

    def may_contain(self, text: str, reduce: Callable[[str], str]) -> bool:
        """Return False if a reduced text certainly had no secret before.

        `reduce` is the function that has removed characters from the text. Its results for the
        configured secrets are kept, so it must be a function of a module.
        """
        reduced = self._reduced_values.get(reduce)
        if reduced is None:
            reduced = self._reduced_values[reduce] = tuple(map(reduce, self._values))
        return (
            any(value in text for value in reduced)
            or any(each.marker in text and each.core.search(text) for each in _PATTERNS)
            or bool(_DISCORD_MIDDLE.search(text))
        )


def _hide_tokens(text: str, hide_match: Callable[[re.Match[str]], str]) -> str:
    for shape in _TOKENS:
        if shape.marker in text:
            text = shape.pattern.sub(hide_match, text)
    if _DISCORD_MIDDLE.search(text):
        text = _DISCORD.sub(hide_match, text)
    return text


def _replace_value(text: str, value: str, replacement: str) -> str:
    """Replace a secret, but not inside of placeholders, which contain ordinary words."""
    if PLACEHOLDER_HEAD not in text:
        return text.replace(value, replacement)
    parts = _PLACEHOLDERS.split(text)
    parts[::2] = [part.replace(value, replacement) for part in parts[::2]]
    return "".join(parts)


def _show_mask(_secret: str) -> str:
    return MASK


def _forms_of(secret: str) -> frozenset[str]:
    """Return the forms in which a secret may appear; of a header `Bearer TOKEN` also the token."""
    forms = {secret, quote(secret, safe=""), *secret.splitlines()}
    if credential := _SCHEME.match(secret):
        forms.add(secret[credential.end() :])
    return frozenset(form for form in forms if len(form) >= _MIN_SECRET_LENGTH)


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
