"""`holdfast keys`, with a running daemon and without one."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_cli import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "http://127.0.0.1:9/v1")


@contextlib.contextmanager
def running(place: Place) -> Iterator[tuple[str, int]]:
    """Run a daemon on the demo model; yields host and port."""
    with place.daemon("--set", "model.provider=demo"):
        url = place.json("status")["url"]
        host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        yield host, int(port)


def status_with(where: tuple[str, int], key: str) -> int:
    connection = http.client.HTTPConnection(*where, timeout=10)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_keys_are_added_listed_and_revoked_through_the_daemon(place: Place) -> None:
    with running(place) as where:
        limits = ("--messages-per-minute", "5", "--tokens-per-day", "1000", "--usd-per-day", "0.5")
        added = place.run("keys", "add", "laptop", "--role", "guest", *limits)
        key = added.stdout.strip()
        assert added.returncode == 0
        assert key.startswith("hf-")
        assert "cannot be shown again" in added.stderr
        assert status_with(where, key) == 200
        (row,) = place.json("keys", "list")
        assert (row["name"], row["person"], row["role"]) == ("laptop", "api:laptop", "guest")
        assert row["limits"] == {
            "messages_per_minute": 5,
            "tokens_per_day": 1000,
            "usd_per_day": 0.5,
        }
        assert row["last_used_at"] is not None
        shown = place.run("keys", "list").stdout
        assert "laptop" in shown
        assert key not in shown
        assert place.run("keys", "revoke", "laptop").stdout == (
            "The key “laptop” no longer works.\n"
        )
        assert status_with(where, key) == 401
        assert place.json("keys", "list") == []
        assert place.run("keys", "revoke", "laptop").returncode == 1


def test_keys_are_added_listed_and_revoked_without_a_daemon(place: Place) -> None:
    kept = place.json("keys", "add", "kept")
    gone = place.json("keys", "add", "gone", "--role", "admin")
    assert [row["name"] for row in place.json("keys", "list")] == ["kept", "gone"]
    assert place.json("keys", "revoke", "gone")["id"] == gone["id"]
    with running(place) as where:
        assert [status_with(where, each["key"]) for each in (kept, gone)] == [200, 401]


def test_no_key_is_an_answer_too(place: Place) -> None:
    with running(place):
        assert place.run("keys", "list").stdout.startswith("There are no keys besides the one of")
        assert place.json("keys", "list") == []


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        pytest.param(("Laptop",), 1, "lower-case", id="name"),
        pytest.param(("key",), 1, "http.api_key", id="reserved name"),
        pytest.param(("a", "--person", "telegram:1001"), 1, "has no access", id="stranger"),
        pytest.param(("a", "--role", "owner"), 2, "owner", id="role"),
        pytest.param(("a", "--messages-per-minute", "0"), 2, "0", id="limit"),
    ],
)
def test_keys_that_cannot_be_added_say_why(
    place: Place, words: tuple[str, ...], code: int, problem: str
) -> None:
    found = place.run("keys", "add", *words)
    assert (found.returncode, found.stdout) == (code, "")
    assert problem in found.stderr
    assert "Traceback" not in found.stderr
    document = json.loads(place.run("keys", "add", *words, "--json").stdout)
    assert document["exit_code"] == code


def test_key_for_a_person_of_the_configuration_needs_no_daemon(place: Place) -> None:
    allow = ("--set", 'access.allow=["telegram:1001"]')
    assert place.run("keys", "add", "ann", "--person", "telegram:1001", *allow).returncode == 0
    (row,) = place.json("keys", "list", *allow)
    assert (row["role"], row["access"]) == ("member", "member")
    (row,) = place.json("keys", "list")
    assert (row["role"], row["access"]) == ("member", None)
    assert "has no access" in place.run("keys", "list").stdout
