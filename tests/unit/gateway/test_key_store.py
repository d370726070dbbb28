"""Stored API keys: what survives a restart, and when their use is recorded."""

import asyncio
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


async def test_the_policy_knows_the_present_keys(kit: Kit) -> None:
    one, two = (await kit.add("one")).key, (await kit.add("two")).key
    assert kit.people.current_policy().keys == {one.sender: one, two.sender: two}
    await kit.keys.revoke("one")
    assert kit.people.current_policy().keys == {two.sender: two}
    kit.people.apply_settings(AccessSettings())
    assert kit.people.current_policy().keys == {two.sender: two}


async def test_key_of_a_removed_person_has_no_access(kit: Kit) -> None:
    added = await kit.keys.add(
        "ann", person="telegram:1001", role=KeyRole.MEMBER, limits=KeyLimits()
    )
    assert kit.keys.has_access(added.key)
    kit.people.apply_settings(AccessSettings())
    assert not kit.keys.has_access(added.key)
    assert kit.keys.describe(added.key)["access"] is None


@pytest.mark.parametrize(
    ("name", "person", "role", "problem"),
    [
        pytest.param("key", "", KeyRole.MEMBER, "http.api_key", id="reserved name"),
        pytest.param("A", "", KeyRole.MEMBER, "lower-case", id="name"),
        pytest.param("a", "1001", KeyRole.MEMBER, "platform:id", id="person"),
        pytest.param("a", "telegram:9", KeyRole.GUEST, "has no access", id="a stranger"),
        pytest.param("a", "telegram:1001", KeyRole.ADMIN, "only a member", id="too much"),
        pytest.param("taken", "", KeyRole.MEMBER, "already", id="taken name"),
    ],
)
async def test_refused_key_is_not_stored(
    kit: Kit, name: str, person: str, role: KeyRole, problem: str
) -> None:
    await kit.add("taken")
    before = await kit.store.values("api_keys")
    with pytest.raises(KeyRefused, match=problem):
        await kit.keys.add(name, person=person, role=role, limits=KeyLimits())
    assert await kit.store.values("api_keys") == before


async def test_added_key_is_random_and_described_without_its_hash(kit: Kit) -> None:
    limits = KeyLimits(messages_per_minute=1, tokens_per_day=2, usd_per_day=3.0)
    added = await kit.keys.add("one", role=KeyRole.GUEST, limits=limits)
    assert added.text.startswith("hf-")
    assert len(added.text) == 46
    assert added.text != (await kit.add("two")).text
    assert kit.keys.describe(added.key) == {
        "name": "one",
        "id": added.key.id,
        "person": "api:one",
        "role": "guest",
        "access": "guest",
        "limits": {"messages_per_minute": 1, "tokens_per_day": 2, "usd_per_day": 3.0},
        "created_at": "1970-01-12T13:46:40.000Z",
        "last_used_at": None,
    }
    await kit.keys.record_use(added.key)
    assert kit.keys.describe(added.key)["last_used_at"] == "1970-01-12T13:46:40.000Z"
    assert kit.people.current_policy().keys[added.key.sender] == added.key


async def test_two_keys_added_at_once_cannot_have_the_same_name(kit: Kit) -> None:
    outcomes: list[str] = []

    async def adding() -> None:
        try:
            outcomes.append((await kit.add("one")).key.name)
        except KeyRefused:
            outcomes.append("refused")

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(adding())
    assert sorted(outcomes) == ["one", "refused", "refused"]
    assert len(await kit.store.values("api_keys")) == 1


async def test_key_revoked_twice_at_once_is_revoked_once(kit: Kit) -> None:
    key = (await kit.add("one")).key
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(kit.keys.revoke("one")) for _ in range(2)]
    assert [task.result() for task in tasks] == [key, None]


async def test_keys_are_listed_by_age(kit: Kit) -> None:
    for name in ("z", "a", "m"):
        await kit.add(name)
        kit.clock.time += 1
    for keys in (kit.keys, await kit.reopened()):
        assert [each["name"] for each in keys.describe_all()] == ["z", "a", "m"]


async def test_use_that_cannot_be_stored_is_no_error(kit: Kit) -> None:
    key = (await kit.add("one")).key
    await kit.store.close()
    await kit.keys.record_use(key)
    assert kit.keys.describe(key)["last_used_at"] is not None


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
    assert MAX_KEYS == 1_000
    with pytest.raises(KeyRefused, match="Revoke one first"):
        await kit.add("last")
