"""Authentication of API requests, and access to the metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway.access.api_keys import (
    KeyRole,
    Requester,
    StoredKey,
    find_key,
    key_digest,
    requester_with,
)
from gateway.http import build_app, metrics_route
from gateway.http.auth import (
    INVALID_API_KEY,
    KEY_WITHOUT_ACCESS,
    _constant_time_equal,
    authenticator,
    has_valid_key,
    is_local,
    requester_of,
    set_requester,
)
from gateway.http.errors import HttpFailure
from gateway.http.responses import failure_response
from sessions.values.secret import Secret

KEY = "hf-" + "k" * 43


class Healthy:
    async def problems(self) -> tuple[str, ...]:
        return ()

    def mode(self) -> str:
        return "running"


async def figures() -> tuple[bytes, str]:
    return b"holdfast_x 1\n", "text/plain; version=1.0.0"


@asynccontextmanager
async def asked(
    key: str | None = KEY,
    *,
    peer: str = "127.0.0.1",
    name: str = "127.0.0.1:8420",
    open_metrics: bool = False,
) -> AsyncIterator[httpx2.AsyncClient]:
    secret = Secret(key) if key else None

    async def who(request: Request) -> Response:
        right = has_valid_key(request, secret)
        return PlainTextResponse("welcome") if right else failure_response(INVALID_API_KEY)

    app = build_app(
        [Route("/who", who), metrics_route(figures, secret, open_to_local=open_metrics)],
        health=Healthy(),
        allowed_hosts=["chat.example"],
    )
    transport = httpx2.ASGITransport(app, client=(peer, 5))
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{name}") as client:
        yield client


class Keys:
    """Stored keys, of which some have a person without access."""

    def __init__(self, *keys: StoredKey, without_access: StoredKey | None = None) -> None:
        self._keys = keys
        self._without_access = without_access
        self.sought: list[str] = []
        self.used: list[str] = []

    def find(self, text: str) -> StoredKey | None:
        self.sought.append(text)
        return find_key(self._keys, text)

    def has_access(self, key: StoredKey) -> bool:
        return key is not self._without_access

    async def record_use(self, key: StoredKey) -> None:
        self.used.append(key.name)


def stored(name: str) -> StoredKey:
    return StoredKey(
        id=f"{name}.1",
        name=name,
        digest=key_digest(f"hf-{name}"),
        person="telegram:1001",
        role=KeyRole.MEMBER,
        created_at=0,
    )


def test_key_of_a_person_without_access_is_a_403() -> None:
    failure = KEY_WITHOUT_ACCESS
    assert (failure.status, failure.code) == (403, "not_allowed")
    assert failure.type == "permission_error"


def test_sender_stays_attached_to_its_request() -> None:
    request = Request({"type": "http", "headers": []})
    set_requester(request, requester_with(LAPTOP))
    assert requester_of(request) == requester_with(LAPTOP)


LAPTOP, GONE = stored("laptop"), stored("gone")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param(f"Bearer {KEY}", Requester(), id="the configured key"),
        pytest.param("Bearer hf-laptop", requester_with(LAPTOP), id="a stored key"),
        pytest.param("bearer  hf-laptop ", requester_with(LAPTOP), id="white space"),
        pytest.param("Bearer hf-gone", KEY_WITHOUT_ACCESS, id="a person without access"),
        pytest.param("Bearer hf-other", INVALID_API_KEY, id="an unknown key"),
        pytest.param("Basic hf-laptop", INVALID_API_KEY, id="another scheme"),
        pytest.param("Bearer", INVALID_API_KEY, id="no key"),
        pytest.param("", INVALID_API_KEY, id="no header"),
    ],
)
async def test_sender_of_a_request_is_known_by_its_key(
    header: str, expected: Requester | HttpFailure
) -> None:
    keys = Keys(LAPTOP, GONE, without_access=GONE)
    authenticate = authenticator(Secret(KEY), keys)
    scope = {"type": "http", "path": "/v1/models", "headers": [(b"authorization", header.encode())]}
    assert await authenticate(Request(scope)) == expected
    assert keys.used == (["laptop"] if expected == requester_with(LAPTOP) else [])


@pytest.mark.parametrize(
    ("path", "headers", "shown"),
    [
        pytest.param("/v1/models", {"x-api-key": "hf-a"}, "hf-a", id="below /v1/"),
        pytest.param("/v1/models", {"x-api-key": " hf-a "}, "hf-a", id="white space"),
        pytest.param("/v1/models", {}, "", id="no header"),
        pytest.param("/metrics", {"x-api-key": "hf-a"}, "", id="outside of /v1/"),
        pytest.param("/v1", {"x-api-key": "hf-a"}, "", id="the folder itself"),
        pytest.param("/x/v1/models", {"x-api-key": "hf-a"}, "", id="another folder"),
        pytest.param("/metrics", {"authorization": "Bearer hf-b"}, "hf-b", id="bearer elsewhere"),
        pytest.param(
            "/v1/models",
            {"authorization": "Bearer hf-b", "x-api-key": "hf-a"},
            "hf-b",
            id="bearer takes precedence",
        ),
        pytest.param(
            "/v1/models",
            {"authorization": "Basic hf-b", "x-api-key": "hf-a"},
            "hf-a",
            id="another scheme besides",
        ),
    ],
)
async def test_x_api_key_counts_only_below_the_api_and_after_a_bearer_key(
    path: str, headers: dict[str, str], shown: str
) -> None:
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    request = Request({"type": "http", "path": path, "headers": fields})
    keys = Keys()
    assert await authenticator(None, keys)(request) is INVALID_API_KEY
    assert keys.sought == [shown]
    assert has_valid_key(request, Secret("hf-a")) is (shown == "hf-a")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer "])
def test_an_empty_configured_key_authorizes_no_request(header: str) -> None:
    headers = [(b"authorization", header.encode())]
    request = Request({"type": "http", "path": "/v1/models", "headers": headers})
    assert has_valid_key(request, Secret("")) is False


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer   {KEY}", 200),
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        (KEY, 401),
        (f"Basic {KEY}", 401),
        (f"Bearer {KEY[:-1]}", 401),
        (f"Bearer {KEY}k", 401),
        (f"Bearer {KEY.upper()}", 401),
        (f"Bearer {KEY} {KEY}", 401),
        ("Bearer None", 401),
        ("Bearer \xff\xfe", 401),
    ],
)
async def test_only_the_configured_key_is_accepted(shown: str | None, status: int) -> None:
    async with asked() as client:
        headers = [] if shown is None else [(b"authorization", shown.encode("latin-1"))]
        answer = await client.get("/who", headers=headers)
    assert answer.status_code == status
    if status == 200:
        assert answer.text == "welcome"
        return
    assert answer.headers["www-authenticate"].startswith("Bearer")
    error = answer.json()["error"]
    assert {"type": "invalid_request_error", "code": "invalid_api_key", "param": None}.items() <= (
        error.items()
    )
    assert "config show --secrets" in error["message"]
    assert KEY not in answer.text


@pytest.mark.parametrize("shown", ["Bearer ", "Bearer None", f"Bearer {KEY}"])
async def test_no_request_is_authorized_without_a_configured_key(shown: str) -> None:
    async with asked(None) as client:
        assert (await client.get("/who", headers={"authorization": shown})).status_code == 401


@pytest.mark.parametrize("key", ["two words", "a=b&c;d,e", "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", "x"])
async def test_key_can_contain_every_printable_character(key: str) -> None:
    async with asked(key) as client:
        headers = {"authorization": f"Bearer {key}"}
        assert (await client.get("/who", headers=headers)).status_code == 200
        headers = {"authorization": f"Bearer {key}."}
        assert (await client.get("/who", headers=headers)).status_code == 401


async def test_only_the_first_authorization_header_counts() -> None:
    async with asked() as client:
        shown = [(b"authorization", b"Bearer guess"), (b"authorization", f"Bearer {KEY}".encode())]
        assert (await client.get("/who", headers=shown)).status_code == 401


async def test_keys_are_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []

    def comparing(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", comparing)
    async with asked() as client:
        for guess in (KEY, KEY[:-1], "x"):
            await client.get("/who", headers={"authorization": f"Bearer {guess}"})
    assert compared == [(guess.encode(), KEY.encode()) for guess in (KEY, KEY[:-1], "x")]


def test_key_with_a_lone_surrogate_is_wrong_and_no_error() -> None:
    assert not _constant_time_equal("\udcff", KEY)


@given(st.text(), st.text(st.characters(codec="utf-8")))
def test_key_comparison_is_exact(shown: str, expected: str) -> None:
    assert _constant_time_equal(shown, expected) == (shown == expected)
    assert _constant_time_equal(expected, expected)


@pytest.mark.parametrize(
    ("peer", "name", "headers", "local"),
    [
        ("127.0.0.1", "127.0.0.1:8420", {}, True),
        ("127.9.9.9", "localhost", {}, True),
        ("::1", "[::1]:8420", {}, True),
        ("::ffff:127.0.0.1", "localhost", {}, True),
        ("10.0.0.7", "127.0.0.1:8420", {}, False),
        ("::ffff:10.0.0.7", "localhost", {}, False),
        ("2001:db8::1", "localhost", {}, False),
        ("127.0.0.1", "chat.example", {}, False),  # a proxy that forwards the host name
        ("127.0.0.1", "localhost", {"x-forwarded-for": "127.0.0.1"}, False),
        ("127.0.0.1", "localhost", {"forwarded": "for=10.0.0.7"}, False),
        ("127.0.0.1", "localhost", {"via": "1.1 proxy"}, False),
        ("127.0.0.1", "localhost", {"x-real-ip": "10.0.0.7"}, False),
        ("127.0.0.1", "localhost", {"x-forwarded-host": "chat.example"}, False),
        ("somewhere", "localhost", {}, False),
    ],
)
async def test_open_metrics_need_a_key_except_for_local_clients(
    peer: str, name: str, headers: dict[str, str], *, local: bool
) -> None:
    async with asked(peer=peer, name=name, open_metrics=True) as client:
        answer = await client.get("/metrics", headers=headers)
        assert answer.status_code == (200 if local else 401)
        headers = {**headers, "authorization": f"Bearer {KEY}"}
        answer = await client.get("/metrics", headers=headers)
    assert answer.text == "holdfast_x 1\n"
    assert answer.headers["content-type"] == "text/plain; version=1.0.0"


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "10.0.0.7"])
async def test_metrics_need_a_key_on_this_machine_too(peer: str) -> None:
    async with asked(peer=peer) as client:
        assert (await client.get("/metrics")).status_code == 401
        headers = {"authorization": f"Bearer {KEY}"}
        assert (await client.get("/metrics", headers=headers)).status_code == 200


async def test_metrics_without_a_configured_key_are_closed() -> None:
    async with asked(None) as client:
        assert (await client.get("/metrics")).status_code == 401


def test_client_without_an_address_is_not_local() -> None:
    scope: dict[str, Any] = {"type": "http", "headers": [(b"host", b"localhost")], "client": None}
    assert not is_local(Request(scope))
