"""Sans-IO: placeholders that stand for secrets in a text that is read, changed and written back."""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping

from msgspec import Struct

MASK = "***"
PLACEHOLDER_HEAD = f"{MASK}secret-"
_PLACEHOLDER_LENGTH = 10
PLACEHOLDER = re.compile(rf"{re.escape(PLACEHOLDER_HEAD)}[a-z2-7]{{{_PLACEHOLDER_LENGTH}}}")


class MaskedText(Struct, frozen=True):
    """A text in which each secret is replaced by its placeholder."""

    text: str
    secrets: Mapping[str, str] = {}  # the hidden text of each placeholder
    literals: frozenset[str] = frozenset()  # placeholders that the original text itself contains


MaskSecrets = Callable[[str], MaskedText]


def placeholder_for(secret: str, key: bytes) -> str:
    """Return the placeholder of a secret; without the key it says nothing about the secret."""
    digest = hmac.digest(key, secret.encode(errors="surrogatepass"), hashlib.sha256)
    return PLACEHOLDER_HEAD + base64.b32encode(digest).decode().lower()[:_PLACEHOLDER_LENGTH]
