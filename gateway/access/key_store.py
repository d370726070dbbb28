"""`ApiKeys`: the API keys of this installation: adds, revokes, lists and recognises them.

The texts of the keys are nowhere in the store. Only this module writes the stored keys.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping

import msgspec

from gateway.access.api_keys import (
    KEY_PREFIX,
    MAX_KEYS,
    KeyLimits,
    KeyRole,
    StoredKey,
    find_key,
    key_digest,
    name_error,
    own_person,
    person_error,
)
from gateway.access.people import People
from gateway.access.policy import role_of_key
from sessions.changes import PutValue
from sessions.errors import StoreError
from sessions.store.store import SessionStore
from sessions.values.clock import Clock, rfc3339

log = logging.getLogger(__name__)

_KEYS_SHELF = "api_keys"
_USES_SHELF = "api_key_uses"
_KEY_BYTES, _ID_BYTES = 32, 3
_USE_INTERVAL_MS = 60_000
"""Uses of a key within this time are stored once."""


class KeyRefused(ValueError):
    """The key cannot be added as requested; the message says why."""


class AddedKey(msgspec.Struct, frozen=True):
    """A new key, and its text, which is not kept anywhere."""

    key: StoredKey
    text: str


class ApiKeys:
    """The stored keys; the policy of `people` has them too."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        people: People,
        generate_token: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self._store = store
        self._clock = clock
        self._people = people
        self._generate_token = generate_token
        self._lock = asyncio.Lock()
        self._keys: dict[str, StoredKey] = {}  # by name
        self._used_at: dict[str, int] = {}  # by id

    async def load(self) -> None:
        """Load the keys."""
        stored = await self._store.values(_KEYS_SHELF)
        keys = [msgspec.json.decode(text, type=StoredKey) for text in stored.values()]
        uses = await self._store.values(_USES_SHELF)
        self._used_at = {id_: int(at) for id_, at in uses.items()}
        self._set_keys({key.name: key for key in sorted(keys, key=lambda key: key.created_at)})

    def find(self, text: str) -> StoredKey | None:
        """Return the key with this text, or None."""
        return find_key(self._keys.values(), text)

    def has_access(self, key: StoredKey) -> bool:
        """Return True if the person of a key has access now."""
        return role_of_key(self._people.current_policy(), key) is not None

    async def record_use(self, key: StoredKey) -> None:
        """Record that a key was used now, in the store at most once a minute."""
        now = self._clock.now()
        if abs(now - self._used_at.get(key.id, 0)) < _USE_INTERVAL_MS:
            return
        self._used_at[key.id] = now
        try:
            await self._store.put_value(_USES_SHELF, key.id, str(now))
        except StoreError as error:
            log.debug("the last use of an API key was not stored: %s", error)

    async def add(
        self, name: str, *, person: str = "", role: KeyRole, limits: KeyLimits
    ) -> AddedKey:
        """Create a key, for a person of its own by default; raises `KeyRefused`."""
        person = person or own_person(name)
        async with self._lock:
            text = KEY_PREFIX + self._generate_token(_KEY_BYTES)
            key = StoredKey(
                id=f"{name}.{secrets.token_hex(_ID_BYTES)}",
                name=name,
                digest=key_digest(text),
                person=person,
                role=role,
                limits=limits,
                created_at=self._clock.now(),
            )
            if problem := self._problem_of(key):
                raise KeyRefused(problem)
            value = msgspec.json.encode(key).decode()
            await self._store.apply(PutValue(_KEYS_SHELF, key.id, value))
            self._set_keys({**self._keys, name: key})
        log.info("API key %s added for %s, as %s", key.id, person, role)
        return AddedKey(key, text)

    async def revoke(self, name: str) -> StoredKey | None:
        """Delete a key; None if there is none.

        The caller stops the work of the key, see `gateway.commands.enforcement`.
        """
        async with self._lock:
            key = self._keys.get(name)
            if key is None:
                return None
            await self._store.apply(
                PutValue(_KEYS_SHELF, key.id, None), PutValue(_USES_SHELF, key.id, None)
            )
            self._used_at.pop(key.id, None)
            self._set_keys({name: each for name, each in self._keys.items() if each is not key})
        log.info("API key %s revoked", key.id)
        return key

    def describe_all(self) -> list[dict[str, object]]:
        """Return the keys as JSON data, the oldest first."""
        return [self.describe(key) for key in self._keys.values()]

    def describe(self, key: StoredKey) -> dict[str, object]:
        """Return a key as JSON data; `access` is the role in effect."""
        used = self._used_at.get(key.id)
        role = role_of_key(self._people.current_policy(), key)
        return {
            "name": key.name,
            "id": key.id,
            "person": key.person,
            "role": key.role.value,
            "access": role and role.name.lower(),
            "limits": _limits_data(key.limits),
            "created_at": rfc3339(key.created_at),
            "last_used_at": None if used is None else rfc3339(used),
        }

    def _problem_of(self, key: StoredKey) -> str:
        problem = name_error(key.name) or person_error(key.name, key.person)
        if problem:
            return problem
        if key.name in self._keys:
            return f"There is a key “{key.name}” already. Choose another name, or revoke that key."
        if len(self._keys) >= MAX_KEYS:
            return f"There are {MAX_KEYS} keys, which is the most. Revoke one first."
        role = role_of_key(self._people.current_policy(), key)
        if role is None:
            return (
                f"{key.person} has no access. A key can only act for a person who is listed in "
                "access.allow or access.admins, or paired."
            )
        if role.name != key.role.name:
            return f"{key.person} is only a {role.name.lower()}, so the role cannot be {key.role}."
        return ""

    def _set_keys(self, keys: Mapping[str, StoredKey]) -> None:
        self._keys = dict(keys)
        self._people.apply_api_keys(self._keys.values())


def _limits_data(limits: KeyLimits) -> dict[str, object]:
    return {
        "messages_per_minute": limits.messages_per_minute,
        "tokens_per_day": limits.tokens_per_day,
        "usd_per_day": limits.usd_per_day,
    }
