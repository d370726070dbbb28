"""Stored API keys: what survives a restart, and when their use is recorded."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.access.api_keys import MAX_KEYS, KeyLimits, KeyRole, StoredKey
from gateway.access.key_store import AddedKey, ApiKeys, KeyRefused
from gateway.access.people import People
from gateway.access.settings import AccessSettings
from sessions.store.store import SessionStore
from tests.fakes.set_clock import SetClock

MINUTE = 60_000


class Kit:
    """Keys on a store, and a clock that the test moves."""

    def __init__(self, store: SessionStore, clock: SetClock) -> None:
        self.store = store
        self.clock = clock
        self.people = People(store, clock, AccessSettings(allow=("telegram:1001",)))
        self.keys = ApiKeys(store, clock, self.people)

    async def add(self, name: str) -> AddedKey:
        return await self.keys.add(name, role=KeyRole.MEMBER, limits=KeyLimits())

    async def reopened(self) -> ApiKeys:
        """Return the keys as the next start loads them."""
        keys = ApiKeys(self.store, self.clock, self.people)
        await keys.load()
        return keys


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Kit]:
    clock = SetClock()
    store = await SessionStore.open(f"sqlite:///{tmp_path / 'keys.db'}", clock=clock)
    found = Kit(store, clock)
    await found.people.load()
    await found.keys.load()
    yield found
    await store.close()


async def test_keys_and_their_last_use_survive_a_restart(kit: Kit) -> None:
    one, two = await kit.add("one"), await kit.add("two")
    await kit.keys.record_use(one.key)
    await kit.keys.revoke("two")
    again = await kit.reopened()
    assert again.describe_all() == kit.keys.describe_all()
    assert again.find(one.text) == one.key
    assert again.find(two.text) is None


async def test_use_is_stored_once_a_minute(kit: Kit) -> None:
    key = (await kit.add("one")).key
    stored = []
    for pause in (0, MINUTE // 2, MINUTE // 2, -10 * MINUTE):  # the last: the clock was set back
        kit.clock.time += pause
        await kit.keys.record_use(key)
        stored.append(await kit.store.get_value("api_key_uses", key.id))
    assert stored[0] == stored[1]
    assert len(set(stored)) == 3


async def test_revoked_key_leaves_nothing_in_the_store(kit: Kit) -> None:
    key = (await kit.add("one")).key
    await kit.keys.record_use(key)
    assert await kit.keys.revoke("one") == key
    assert await kit.keys.revoke("one") is None
    assert await kit.store.values("api_keys") == {}
    assert await kit.store.values("api_key_uses") == {}
    assert kit.people.current_policy().keys == {}


async def test_key_of_a_removed_person_has_no_access(kit: Kit) -> None:
    added = await kit.keys.add(
        "ann", person="telegram:1001", role=KeyRole.MEMBER, limits=KeyLimits()
    )
    assert kit.keys.has_access(added.key)
    kit.people.apply_settings(AccessSettings())
    assert not kit.keys.has_access(added.key)
    assert kit.keys.describe(added.key)["access"] is None


async def test_ids_of_keys_with_the_same_name_differ(kit: Kit) -> None:
    ids = set()
    for _ in range(5):
        ids.add((await kit.add("one")).key.id)
        await kit.keys.revoke("one")
    assert len(ids) == 5


async def test_number_of_keys_is_bounded(kit: Kit) -> None:
    keys: dict[str, StoredKey] = {}
    for number in range(MAX_KEYS):
        added = await kit.add(f"k{number}")
        keys[added.text] = added.key
    assert len(keys) == MAX_KEYS
    with pytest.raises(KeyRefused, match="Revoke one first"):
        await kit.add("last")
