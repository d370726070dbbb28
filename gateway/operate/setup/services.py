"""Sans-IO: what a key and an address tell of a model service."""

import ipaddress
from urllib.parse import urlsplit

from msgspec import Struct

from sessions.values.loopback import is_loopback


class KnownService(Struct, frozen=True):
    """A service."""

    name: str
    provider: str = "openai"
    base_url: str | None = None  # None: the provider's own


OPENAI = KnownService("OpenAI")
ANTHROPIC = KnownService("Anthropic", "anthropic")

_SERVICE_BY_KEY_PREFIX = (
    ("sk-ant-", ANTHROPIC),
    ("sk-or-", KnownService("OpenRouter", base_url="https://openrouter.ai/api/v1")),
    ("gsk_", KnownService("Groq", base_url="https://api.groq.com/openai/v1")),
    ("xai-", KnownService("xAI", base_url="https://api.x.ai/v1")),
    ("sk-", OPENAI),  # others begin so as well; the check tells
)
_MIN_KEY_LENGTH = 8


def service_of_key(key: str) -> KnownService | None:
    """Tell whose key it is; None when that cannot be seen."""
    return next((known for start, known in _SERVICE_BY_KEY_PREFIX if key.startswith(start)), None)


def looks_like_key(text: str) -> bool:
    """Whether this can be a key at all."""
    plain = text.isascii() and text.isprintable()
    return plain and len(text) >= _MIN_KEY_LENGTH and not any(each in text for each in (" ", "://"))


def is_url(text: str) -> bool:
    """Whether this is an address of a service."""
    return text.startswith(("http://", "https://")) and bool(urlsplit(text).hostname)


def complete_url(text: str) -> str:
    """Complete an address; where it names no path, services speak at /v1."""
    return text.rstrip("/") + ("" if urlsplit(text).path.strip("/") else "/v1")


def is_local_network(base_url: str | None) -> bool:
    """Whether a service is on this machine or in its network: using it costs no money."""
    host = urlsplit(base_url or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return is_loopback(host)


def preferred_model(models: tuple[str, ...]) -> str:
    """Of several models the one that is meant to talk, as far as names tell."""
    talking = [each for each in models if not any(word in each.lower() for word in _NON_CHAT_WORDS)]
    return next((each for each in talking if each in _PREFERRED), (*talking, *models)[0])


_NON_CHAT_WORDS = (
    "embed",
    "whisper",
    "tts",
    "rerank",
    "moderation",
    "dall-e",
    "image",
    "bge-",
    "guard",
)
_PREFERRED = {"openrouter/auto"}
