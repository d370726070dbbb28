"""Sans-IO: stored API keys: their text and hash, their conversations, and who sends with a key.

A key is shown once and stored as a hash. A fast hash is enough, because a key is 256 random bits.

Everything of a key is named by its id, which is never used again: the sender of its requests is
`api:ID`, and its conversations are `api:ID~NAME`. No client can choose a name with `~`, so no key
reaches the conversations of another one, nor those of the key in the configuration, which are
`api:NAME`.
"""

import enum
import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from gateway.access.entries import PersonEntry, parse_entry

API_PLATFORM = "api"
_CONFIGURED_SENDER = "key"
"""Sender of requests with the key of the configuration, or with the generated one."""
CONFIGURED_PERSON = f"{API_PLATFORM}:{_CONFIGURED_SENDER}"

KEY_PREFIX = "hf-"
MAX_KEYS = 1_000

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_SEPARATOR = "~"  # clients cannot use this character in the name of a conversation


class KeyRole(enum.StrEnum):
    """The most that a key may do; the role of its person is the other bound."""

    GUEST = "guest"
    MEMBER = "member"
    ADMIN = "admin"


class KeyLimits(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Limits of a key; None means no limit of its own."""

    messages_per_minute: Annotated[int, Meta(ge=1)] | None = None
    tokens_per_day: Annotated[int, Meta(ge=0)] | None = None
    usd_per_day: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None


class StoredKey(Struct, frozen=True, kw_only=True):
    """A key as stored. Nothing of a key changes after its creation."""

    id: str
    name: str  # unique among the present keys
    digest: str
    person: str  # stable id whose authority the requests have
    role: KeyRole
    limits: KeyLimits = KeyLimits()
    created_at: int

    @property
    def sender(self) -> str:
        """Principal of the sender of requests with this key."""
        return f"{API_PLATFORM}:{self.id}"

    @property
    def has_own_person(self) -> bool:
        """True if the person exists only through this key."""
        return self.person == own_person(self.name)


class Requester(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The sender of an API request: a key, and the person whose authority the request has.

    Without a key id, the key is the one of the configuration or the generated one.
    """

    key: str = ""
    name: str = "API"
    person: str = CONFIGURED_PERSON
    role: KeyRole = KeyRole.ADMIN
    limits: KeyLimits = KeyLimits()
    has_own_person: bool = False
    named_user: str = ""  # user and chat, as the client names them
    named_chat: str = ""
    user: str = ""  # user for whom limits count; only with `http.trust_user_header`

    @property
    def sender_id(self) -> str:
        """Id of the sender in stored messages."""
        return self.key or _CONFIGURED_SENDER

    def conversation(self, name: str) -> str:
        """Return the chat of the conversation that a client of this key calls `name`."""
        return f"{self.key}{_SEPARATOR}{name}" if self.key else name

    def generated_conversation(self, id_: str) -> str:
        """Return a chat that no client can name, for a request without a session."""
        return self.conversation(f"{_SEPARATOR}{id_}")


def requester_with(key: StoredKey) -> Requester:
    """Return the sender of requests with a stored key."""
    return Requester(
        key=key.id,
        name=key.name,
        person=key.person,
        role=key.role,
        limits=key.limits,
        has_own_person=key.has_own_person,
    )


def is_generated(chat: str) -> bool:
    """Return True if `Requester.generated_conversation` made this chat."""
    owner, _, rest = chat.partition(_SEPARATOR)
    return rest.startswith(_SEPARATOR) if owner else chat.startswith(_SEPARATOR)


def own_person(name: str) -> str:
    """Return the person of a key that is bound to no other one."""
    return f"{API_PLATFORM}:{name}"


def key_digest(text: str) -> str:
    """Return the hash under which a key is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def find_key(keys: Iterable[StoredKey], text: str) -> StoredKey | None:
    """Return the key with this text; compares all keys, so that the time taken reveals nothing."""
    digest = key_digest(text)
    found = [key for key in keys if hmac.compare_digest(key.digest, digest)]
    return found[0] if found else None


def name_error(name: str) -> str:
    """Return the problem of a name for a key; empty if there is none."""
    if not _NAME.fullmatch(name):
        return (
            "The name of a key has up to 32 lower-case letters, digits, - and _, and begins with a "
            "letter or digit."
        )
    if name == _CONFIGURED_SENDER:
        return f"“{name}” is the name of the key in the configuration (http.api_key)."
    return ""


def person_error(name: str, person: str) -> str:
    """Return the problem of a person for the key of this name; empty if there is none."""
    try:
        entry = parse_entry(person)
    except ValueError as error:
        return f'"{person}" {error}.'
    if not isinstance(entry, PersonEntry) or entry.account:
        return f'"{person}" is not one person; a stable id looks like telegram:1001.'
    if entry.platform == API_PLATFORM and name_error(entry.id):
        return f'"{person}" is not a person of keys; one looks like {own_person(name)}.'
    return ""
