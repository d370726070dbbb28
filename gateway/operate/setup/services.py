"""Sans-IO: recognizes model services by key and URL."""

import ipaddress
import re
from urllib.parse import urlsplit

from msgspec import Struct

from sessions.values.loopback import is_loopback

_MIN_KEY_LENGTH = 8
_BARE_ADDRESS = re.compile(
    r"""(?: localhost | \d+(?:\.\d+){3} | \[[0-9a-f:]+\] )(?: :\d{1,5} )?(?: /\S* )?  # local
    | [a-z0-9-]+(?:\.[a-z0-9-]+)* :\d{1,5} (?: /\S* )?  # a name with its port
    | (?: [a-z0-9-]+\.)+[a-z]{2,6} (?: /\S* )?  # a domain""",
    re.VERBOSE,
)
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


class KnownService(Struct, frozen=True):
    """A model service."""

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
    ("sk-", OPENAI),  # other services use this prefix too; the check decides
)


def service_of_key(key: str) -> KnownService | None:
    """Return the service of a key; None for an unknown prefix."""
    return next((known for start, known in _SERVICE_BY_KEY_PREFIX if key.startswith(start)), None)


def looks_like_key(text: str) -> bool:
    """Return True if the text can be an API key."""
    plain = text.isascii() and text.isprintable()
    return plain and len(text) >= _MIN_KEY_LENGTH and not any(part in text for part in (" ", "://"))


def is_url(text: str) -> bool:
    """Return True for an http or https URL."""
    return text.startswith(("http://", "https://")) and bool(urlsplit(text).hostname)


def assume_scheme(text: str) -> str | None:
    """Return the URL meant by an address without `http://`; None if the text is no address.

    A local address gets `http://`, any other `https://`.
    """
    if not _BARE_ADDRESS.fullmatch(text):
        return None
    for scheme in ("http", "https"):
        url = f"{scheme}://{text}"
        if is_url(url) and (scheme == "https" or is_local_network(url)):
            return url
    return None


def complete_url(text: str) -> str:
    """Complete a URL without a path by /v1."""
    return text.rstrip("/") + ("" if urlsplit(text).path.strip("/") else "/v1")


def is_local_network(base_url: str | None) -> bool:
    """Return True if a service is on this machine or a local network, which makes it free."""
    host = urlsplit(base_url or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return is_loopback(host)


def preferred_model(models: tuple[str, ...]) -> str:
    """Return the best guess, by name, for a model that chats."""
    chatting = [
        name for name in models if not any(word in name.lower() for word in _NON_CHAT_WORDS)
    ]
    return next((name for name in chatting if name in _PREFERRED), (*chatting, *models)[0])


_PREFERRED = {"openrouter/auto"}
