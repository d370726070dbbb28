"""Signed users of front ends, as Open WebUI signs them."""

import base64
import json
from typing import Any

import jwt
import pytest
from starlette.datastructures import Headers

from gateway.access.api_keys import Requester
from gateway.http.client_names import ClientNames, UserLabel
from gateway.http.user_token import InvalidUserToken, SignedUsers, read_signed_user
from sessions.values.secret import Secret
from tests.fakes.set_clock import SetClock

SECRET = "shared-secret-of-both-programs-0123456789"
LONG = SECRET * 2
NOW = 1_800_000_000
CLAIMS: dict[str, Any] = {
    "sub": "3f1c-77",
    "email": "ada@example.org",
    "name": "Ada",
    "role": "user",
    "iss": "open-webui",
    "iat": NOW,
    "exp": NOW + 300,
}
HEADER = "x-openwebui-user-jwt"
# The example of jwt.io, which has no time of expiry.
KNOWN = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
    ".eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
    ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)


def signed(secret: str = SECRET, algorithm: str = "HS256", **changes: Any) -> str:
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not None}
    return jwt.encode(claims, secret, algorithm=algorithm)


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_the_subject_of_a_signed_token_is_the_user() -> None:
    assert read_signed_user(signed(), SECRET, NOW) == "3f1c-77"


@pytest.mark.parametrize("now", [NOW - 60, NOW + 299, NOW + 360])
def test_clocks_may_differ_by_a_minute(now: int) -> None:
    assert read_signed_user(signed(), SECRET, now) == "3f1c-77"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        pytest.param(signed("other-secret-0123456789-0123456789"), "signature", id="other secret"),
        pytest.param(signed()[:-2] + "AA", "signature", id="changed signature"),
        pytest.param(
            ".".join((signed().split(".")[0], part(CLAIMS | {"sub": "root"}), "x")),
            "signature",
            id="changed user",
        ),
        pytest.param(signed(LONG, algorithm="HS512"), "HS256", id="another algorithm"),
        pytest.param(f"{part({'alg': 'none'})}.{part(CLAIMS)}.", "HS256", id="no algorithm"),
        pytest.param(signed(exp=NOW - 61), "expired", id="expired"),
        pytest.param(signed(exp=None), "expired", id="without an end"),
        pytest.param(signed(exp=True), "not a token", id="end of another type"),
        pytest.param(signed(nbf=NOW + 61), "not valid yet", id="not yet valid"),
        pytest.param(signed(iat=NOW + 61), "not valid yet", id="from the future"),
        pytest.param(signed(sub=None), "user", id="without a user"),
        pytest.param(signed(sub="  "), "user", id="blank user"),
        pytest.param("", "not a token", id="empty"),
        pytest.param("a.b", "not a token", id="two parts"),
        pytest.param("ä.ö.ü", "not a token", id="not ASCII"),
        pytest.param("a.b.c", "not a token", id="not base64"),
        pytest.param(f"{part({})}.{part(CLAIMS)}.x", "not a token", id="no algorithm named"),
        pytest.param(f"{part([])}.{part(CLAIMS)}.x", "not a token", id="no object"),
    ],
)
def test_other_tokens_are_invalid(token: str, reason: str) -> None:
    with pytest.raises(InvalidUserToken, match=reason):
        read_signed_user(token, SECRET, NOW)


@pytest.mark.parametrize(("late", "valid"), [(0, True), (1, False)])
def test_the_clock_counts_in_milliseconds(late: int, *, valid: bool) -> None:
    clock = SetClock((NOW + 360) * 1000 + late)
    users = SignedUsers(secret=Secret(SECRET), clock=clock)
    if valid:
        assert users.read(signed()) == "3f1c-77"
    else:
        with pytest.raises(InvalidUserToken, match="expired"):
            users.read(signed())


def test_a_token_without_times_of_its_start_is_valid() -> None:
    assert read_signed_user(signed(iat=None), SECRET, NOW) == "3f1c-77"


def test_a_known_signature_is_recognized() -> None:
    with pytest.raises(InvalidUserToken, match="expired"):
        read_signed_user(KNOWN, "your-256-bit-secret", NOW)
    with pytest.raises(InvalidUserToken, match="signature"):
        read_signed_user(KNOWN, "your-257-bit-secret", NOW)


def named(headers: dict[str, str], body: str = "") -> tuple[Requester, list[UserLabel]]:
    labels: list[UserLabel] = []
    names = ClientNames(
        trusted=True,
        on_request=lambda _, label: labels.append(label),
        read_token=lambda token: read_signed_user(token, SECRET, NOW),
    )
    return names.identify(Requester(), Headers(headers), body), labels


def test_only_a_signed_user_is_trusted_if_there_is_a_secret() -> None:
    found, labels = named({HEADER: signed(), "x-openwebui-user-id": "eve"}, "eve")
    assert (found.user, found.named_user, labels) == ("3f1c-77", "3f1c-77", [UserLabel.TRUSTED])
    found, labels = named({"x-openwebui-user-id": "eve"}, "eve")
    assert (found.user, found.named_user, labels) == ("", "eve", [UserLabel.NAMED])


def test_an_invalid_token_is_not_ignored() -> None:
    with pytest.raises(InvalidUserToken, match="expired"):
        named({HEADER: signed(iat=1, exp=2)})


@pytest.mark.parametrize("trusted", [True, False])
def test_without_a_secret_the_token_does_not_count(*, trusted: bool) -> None:
    names = ClientNames(trusted=trusted, on_request=lambda _, __: None)
    found = names.identify(Requester(), Headers({HEADER: signed()}), "")
    assert (found.user, found.named_user) == ("", "")
