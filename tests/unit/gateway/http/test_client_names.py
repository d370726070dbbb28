"""The user and the chat that a client names."""

import pytest
from starlette.datastructures import Headers

from gateway.access.api_keys import Requester
from gateway.http.client_names import MAX_NAME_LENGTH, ClientNames, UserLabel

USER, CHAT = "x-openwebui-user-id", "x-openwebui-chat-id"


def named(
    headers: dict[str, str], user: str = "", *, trusted: bool = False
) -> tuple[Requester, list[UserLabel]]:
    labels: list[UserLabel] = []
    names = ClientNames(trusted=trusted, on_request=lambda _, label: labels.append(label))
    return names.identify(Requester(), Headers(headers), user), labels


@pytest.mark.parametrize(
    ("headers", "user", "expected"),
    [
        pytest.param({}, "", ("", ""), id="none"),
        pytest.param({}, "ann", ("ann", ""), id="user of the body"),
        pytest.param({USER: "ada", CHAT: "c1"}, "", ("ada", "c1"), id="headers"),
        pytest.param({USER: "ada"}, "ann", ("ada", ""), id="the header wins"),
        pytest.param({USER: " ada\t"}, "", ("ada", ""), id="white space"),
        pytest.param({}, "x" * 999, ("x" * MAX_NAME_LENGTH, ""), id="too long"),
    ],
)
def test_names_are_kept_and_not_believed(
    headers: dict[str, str], user: str, expected: tuple[str, str]
) -> None:
    found, labels = named(headers, user)
    assert (found.named_user, found.named_chat, found.user) == (*expected, "")
    assert labels == [UserLabel.NAMED if expected[0] else UserLabel.NONE]


@pytest.mark.parametrize("user", ["ada", "3f1c-77", "ada@example.org", "a.b_c+d"])
def test_trusted_user_is_counted_by_name(user: str) -> None:
    found, labels = named({USER: user}, trusted=True)
    assert (found.user, labels) == (user, [UserLabel.TRUSTED])


@pytest.mark.parametrize("user", ["a b", "a/b", "*", "ä", "x" * 65, "a\nb"])
def test_other_trusted_names_are_counted_by_a_hash(user: str) -> None:
    found, _ = named({}, user, trusted=True)
    again, _ = named({}, user, trusted=True)
    assert found.user == again.user != user
    assert found.user.isalnum()


def test_trusted_request_without_a_user_is_one_of_the_key() -> None:
    assert named({CHAT: "c1"}, trusted=True)[0].user == ""
