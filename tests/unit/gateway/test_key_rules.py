"""API keys: names, hashes, conversations, and the access that a key gives."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.api_keys import (
    KeyLimits,
    KeyRole,
    Requester,
    StoredKey,
    find_key,
    is_generated,
    key_digest,
    name_error,
    person_error,
    requester_with,
)
from gateway.access.policy import (
    Allowed,
    Policy,
    Role,
    Stranger,
    build_policy,
    decide_access,
)
from gateway.http.api.requests import SESSION_ID_PATTERN
from platforms.core.contract import Address, InboundMessage, Sender, Text

TEXT = "hf-" + "k" * 43


def key(**changes: Any) -> StoredKey:
    made = StoredKey(
        id="laptop.0a1b2c",
        name="laptop",
        digest=key_digest(TEXT),
        person="telegram:1001",
        role=KeyRole.ADMIN,
        created_at=1,
    )
    return StoredKey(**(msgspec.structs.asdict(made) | changes))


def request(sender: str) -> InboundMessage:
    return InboundMessage(
        id="1",
        at=0,
        address=Address("api", "laptop.0a1b2c~x"),
        sender=Sender(id=sender, name="laptop"),
        parts=(Text("hello"),),
        direct=True,
        addressed=True,
    )


# --- texts -----------------------------------------------------------------------------------


def test_key_is_found_by_its_whole_text_only() -> None:
    other = key(id="x.1", name="x", digest=key_digest("hf-other"))
    keys = [other, key()]
    assert find_key(keys, TEXT) == key()
    for text in ("", TEXT[:-1], TEXT + "k", TEXT.upper(), key_digest(TEXT), f" {TEXT}", "\ud800"):
        assert find_key(keys, text) is None, text


def test_stored_key_does_not_contain_its_text() -> None:
    assert TEXT not in repr(key())


@pytest.mark.parametrize("name", ["laptop", "a", "0", "home-assistant", "a_b", "x" * 32])
def test_names_of_keys(name: str) -> None:
    assert name_error(name) == ""


@pytest.mark.parametrize(
    "name", ["", "A", "ä", "a b", "a.b", "a~b", "a:b", "a/b", "-a", "x" * 33, "a\n", "key"]
)
def test_names_that_no_key_can_have(name: str) -> None:
    assert name_error(name)


@pytest.mark.parametrize(
    "person", ["telegram:1001", "slack:T1/U3003", "api:laptop", "api:team", "web:owner"]
)
def test_persons_that_a_key_can_be_bound_to(person: str) -> None:
    assert person_error("laptop", person) == ""


@pytest.mark.parametrize(
    "person",
    [
        pytest.param("", id="empty"),
        pytest.param("1001", id="no platform"),
        pytest.param("telegram:*", id="everyone"),
        pytest.param("telegram:-100/*", id="a group"),
        pytest.param("discord:1/role:2", id="a role"),
        pytest.param("telegram@work:1001", id="an account"),
        pytest.param("api:key", id="the configured key"),
        pytest.param("api:other.0a1b2c", id="the sender of another key"),
    ],
)
def test_persons_that_no_key_can_be_bound_to(person: str) -> None:
    assert person_error("laptop", person)


# --- conversations ---------------------------------------------------------------------------

NAMES = st.from_regex(SESSION_ID_PATTERN, fullmatch=True)
REQUESTERS = [Requester(), Requester(key="laptop.0a1b2c"), Requester(key="laptop.0a1b2d")]


@given(NAMES, NAMES)
def test_no_conversation_belongs_to_two_keys(one: str, two: str) -> None:
    owned = [
        {each.conversation(one), each.conversation(two), each.generated_conversation(one)}
        for each in REQUESTERS
    ]
    assert len(set.union(*owned)) == sum(map(len, owned))


@given(NAMES)
def test_generated_conversations_are_known_by_their_name(name: str) -> None:
    for each in REQUESTERS:
        assert is_generated(each.generated_conversation(name))
        assert not is_generated(each.conversation(name))


def test_conversations_of_the_configured_key_keep_their_names() -> None:
    assert Requester().conversation("mine") == "mine"
    assert Requester().generated_conversation("1") == "~1"
    assert (Requester().sender_id, Requester().person) == ("key", "api:key")
    assert (Requester().name, Requester().role) == ("API", KeyRole.ADMIN)
    assert not Requester().has_own_person


def test_roles_are_stored_under_stable_names() -> None:
    assert [role.value for role in KeyRole] == ["guest", "member", "admin"]


# --- access ----------------------------------------------------------------------------------


def policy(*keys: StoredKey, allow: tuple[str, ...] = (), admins: tuple[str, ...] = ()) -> Policy:
    return build_policy(allow, admins, keys=keys)


@pytest.mark.parametrize(
    ("person", "most", "expected"),
    [
        pytest.param("telegram:1001", KeyRole.GUEST, Role.GUEST, id="admin, guest key"),
        pytest.param("telegram:1001", KeyRole.MEMBER, Role.MEMBER, id="admin, member key"),
        pytest.param("telegram:1001", KeyRole.ADMIN, Role.ADMIN, id="admin, admin key"),
        pytest.param("telegram:1002", KeyRole.GUEST, Role.GUEST, id="member, guest key"),
        pytest.param("telegram:1002", KeyRole.ADMIN, Role.MEMBER, id="member, admin key"),
        pytest.param("slack:T1/U1", KeyRole.ADMIN, Role.MEMBER, id="everyone on a platform"),
        pytest.param("web:owner", KeyRole.MEMBER, Role.MEMBER, id="owner, member key"),
        pytest.param("api:laptop", KeyRole.GUEST, Role.GUEST, id="own person, guest key"),
        pytest.param("api:laptop", KeyRole.ADMIN, Role.ADMIN, id="own person, admin key"),
        pytest.param("telegram:1003", KeyRole.ADMIN, None, id="no access"),
        pytest.param("telegram:1004", KeyRole.ADMIN, None, id="access by an account only"),
        pytest.param("discord:5", KeyRole.ADMIN, None, id="access by a role only"),
    ],
)
def test_key_has_the_smaller_role_of_itself_and_its_person(
    person: str, most: KeyRole, expected: Role | None
) -> None:
    rules = policy(
        key(person=person, role=most),
        allow=("telegram:1002", "slack:*", "telegram@work:1004", "discord:1/role:2"),
        admins=("telegram:1001",),
    )
    found = decide_access(rules, request("laptop.0a1b2c"))
    if expected is None:
        assert isinstance(found, Stranger)
    else:
        assert found == Allowed(person, expected)


@pytest.mark.parametrize(
    "sender", ["laptop", "laptop.0a1b2d", "owner", "", "1001", "telegram:1001", "team"]
)
def test_other_senders_of_the_api_have_no_access(sender: str) -> None:
    rules = policy(key(person="api:laptop"), allow=("api:*", "api:team"), admins=("api:laptop",))
    assert isinstance(decide_access(rules, request(sender)), Stranger)


def test_configured_key_is_an_owner() -> None:
    assert decide_access(Policy(), request("key")) == Allowed("api:key", Role.ADMIN)


def test_requester_has_what_the_key_has() -> None:
    limits = KeyLimits(messages_per_minute=1, tokens_per_day=2, usd_per_day=3.0)
    found = requester_with(key(person="api:laptop", role=KeyRole.GUEST, limits=limits))
    assert found.limits == limits
    assert (found.user, found.named_user, found.named_chat) == ("", "", "")
    assert (found.sender_id, found.name) == ("laptop.0a1b2c", "laptop")
    assert (found.person, found.role) == ("api:laptop", KeyRole.GUEST)
    assert found.has_own_person
    assert not requester_with(key()).has_own_person
