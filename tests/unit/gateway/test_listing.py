"""The list of people with access, and of people who have asked for it."""

import pytest

from gateway.access.listing import AccessSource, ListedPerson, merge_people

NOW = 1_790_000_000_000
MINUTE = 60_000


def requested(principal: str, name: str = "") -> ListedPerson:
    return ListedPerson(
        principal=principal,
        name=name,
        source=AccessSource.REQUEST,
        since=NOW - 5 * MINUTE,
        code_expires_at=NOW + 55 * MINUTE,
    )


def configured(principal: str, role: str = "member") -> ListedPerson:
    return ListedPerson(principal=principal, role=role, source=AccessSource.CONFIGURATION)


def paired(principal: str, role: str = "member", name: str = "") -> ListedPerson:
    return ListedPerson(
        principal=principal, name=name, role=role, source=AccessSource.PAIRING, since=NOW
    )


def since(time: int) -> ListedPerson:
    return ListedPerson(
        principal="telegram:1", role="member", source=AccessSource.PAIRING, since=time
    )


@pytest.mark.parametrize(
    ("person", "state"),
    [
        (configured("telegram:1"), "member, in the configuration"),
        (configured("telegram:1", "admin"), "admin, in the configuration"),
        (paired("telegram:1"), "member since 2026-09-21"),
        (
            requested("telegram:1"),
            "asks for access, 5 min ago; the code is valid for 55 min",
        ),
    ],
)
def test_the_state_of_a_person_is_described(person: ListedPerson, state: str) -> None:
    assert person.describe(NOW) == state


def test_a_request_as_data() -> None:
    assert requested("telegram:1", "Ann").data(NOW) == {
        "principal": "telegram:1",
        "name": "Ann",
        "role": None,
        "source": "request",
        "state": "asks for access, 5 min ago; the code is valid for 55 min",
        "since": "2026-09-21T14:08:20.000Z",
        "code_expires_at": "2026-09-21T15:08:20.000Z",
    }


def test_an_entry_of_the_configuration_as_data() -> None:
    assert configured("telegram:*").data(NOW) == {
        "principal": "telegram:*",
        "name": None,
        "role": "member",
        "source": "configuration",
        "state": "member, in the configuration",
        "since": None,
        "code_expires_at": None,
    }


@pytest.mark.parametrize(
    ("found", "listed"),
    [
        pytest.param([], [], id="nobody"),
        pytest.param(
            [paired("telegram:1"), configured("telegram:2"), requested("telegram:3")],
            [requested("telegram:3"), configured("telegram:2"), paired("telegram:1")],
            id="open requests come first, then the configuration",
        ),
        pytest.param(
            [configured("telegram:2"), configured("telegram:1")],
            [configured("telegram:2"), configured("telegram:1")],
            id="entries of the configuration keep their order",
        ),
        pytest.param(
            [requested("telegram:1"), paired("telegram:1")],
            [paired("telegram:1")],
            id="access counts more than a request",
        ),
        pytest.param(
            [configured("telegram:1"), paired("telegram:1", "admin")],
            [paired("telegram:1", "admin")],
            id="the higher role counts, found last",
        ),
        pytest.param(
            [configured("telegram:1", "admin"), paired("telegram:1")],
            [configured("telegram:1", "admin")],
            id="the higher role counts, found first",
        ),
        pytest.param(
            [paired("telegram:1"), configured("telegram:1")],
            [configured("telegram:1")],
            id="between equal roles the configuration counts, found last",
        ),
        pytest.param(
            [configured("telegram:1"), paired("telegram:1")],
            [configured("telegram:1")],
            id="between equal roles the configuration counts, found first",
        ),
        pytest.param(
            [paired("telegram:1"), configured("telegram:1"), configured("telegram:1", "admin")],
            [configured("telegram:1", "admin")],
            id="an admin is not listed as a member too",
        ),
        pytest.param([since(1), since(2)], [since(1)], id="of equal entries the first counts"),
    ],
)
def test_each_person_is_listed_once(found: list[ListedPerson], listed: list[ListedPerson]) -> None:
    assert merge_people(found) == listed


def test_the_name_is_taken_from_any_entry_of_the_person() -> None:
    (person,) = merge_people([configured("telegram:1"), paired("telegram:1", name="Ann")])
    assert (person.source, person.name) == (AccessSource.CONFIGURATION, "Ann")
    (person,) = merge_people([paired("telegram:1", name="Ann"), configured("telegram:1")])
    assert (person.source, person.name) == (AccessSource.CONFIGURATION, "Ann")
