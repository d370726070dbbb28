"""Conversations of messages, routes and command parsing."""

from typing import Literal

import pytest

from gateway.inbound.routing import (
    ParsedCommand,
    UnknownCommand,
    find_route,
    is_stale,
    parse_command,
    session_key_for,
)
from gateway.settings import RouteSettings
from platforms.core.contract import (
    Address,
    Inbound,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    Sender,
    Text,
)
from sessions.key import SessionKey

ANN = Sender("1001", "Ann")


def message(address: Address, *, direct: bool = False, sender: Sender = ANN) -> InboundMessage:
    return InboundMessage(
        "1",
        0,
        address=address,
        sender=sender,
        parts=(Text("hello"),),
        direct=direct,
        addressed=True,
    )


@pytest.mark.parametrize(
    ("event", "scope", "key"),
    [
        (message(Address("telegram", "1001"), direct=True), "user", "telegram:1001"),
        (message(Address("telegram", "1001"), direct=True), "shared", "telegram:1001"),
        (message(Address("telegram", "-100123")), "user", "telegram:-100123:u=1001"),
        (message(Address("telegram", "-100123")), "shared", "telegram:-100123"),
        (message(Address("telegram", "-100123", thread="7")), "user", "telegram:-100123:t=7"),
        (message(Address("telegram", "-100123", thread="7")), "shared", "telegram:-100123:t=7"),
        (
            message(Address("telegram", "1001", thread="7"), direct=True),
            "user",
            "telegram:1001:t=7",
        ),
        (message(Address("slack", "T1/D1"), direct=True), "user", "slack:T1/D1"),
        (
            message(Address("slack", "T1/C1"), sender=Sender("T1/U3003")),
            "user",
            "slack:T1/C1:u=T1/U3003",
        ),
        (
            message(Address("telegram", "1001", account="work"), direct=True),
            "user",
            "telegram@work:1001",
        ),
    ],
)
def test_an_event_is_routed_to_its_conversation(
    event: Inbound, scope: Literal["user", "shared"], key: str
) -> None:
    assert str(session_key_for(event, scope)) == key


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("thread", ["", "7"])
@pytest.mark.parametrize("scope", ["user", "shared"])
def test_edits_deletes_and_buttons_belong_to_the_conversation_of_the_message(
    *, direct: bool, thread: str, scope: Literal["user", "shared"]
) -> None:
    place = Address("telegram", "5", thread=thread)
    others: list[Inbound] = [
        InboundEdit("2", 0, address=place, sender=ANN, message="1", parts=(), direct=direct),
        InboundDelete("3", 0, address=place, sender=ANN, message="1", direct=direct),
        InboundAction("4", 0, address=place, sender=ANN, action="stop", direct=direct),
    ]
    expected = session_key_for(message(place, direct=direct), scope)
    assert [session_key_for(event, scope) for event in others] == [expected] * 3


def test_a_changed_display_name_keeps_the_conversation() -> None:
    place = Address("telegram", "-5")
    first = session_key_for(message(place, sender=Sender("1001", "Ann")), "user")
    assert session_key_for(message(place, sender=Sender("1001", "Bea")), "user") == first


@pytest.mark.parametrize(("age", "stale"), [(59_999, False), (60_000, False), (60_001, True)])
def test_a_message_older_than_the_limit_is_stale(age: int, *, stale: bool) -> None:
    assert is_stale(age, stale_after_seconds=60.0) == stale


# --- routes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "key", "hit"),
    [
        ("telegram:-100*", SessionKey(platform="telegram", chat="-1001234", user="7"), True),
        (
            "telegram:-100*",
            SessionKey(platform="telegram", chat="-1001234", account="work", thread="7"),
            True,
        ),
        ("telegram:-1001234", SessionKey(platform="telegram", chat="-1001234", user="7"), True),
        (
            "telegram:-1001234:t=7",
            SessionKey(platform="telegram", chat="-1001234", thread="7"),
            True,
        ),
        (
            "telegram:-1001234:t=7",
            SessionKey(platform="telegram", chat="-1001234", thread="8"),
            False,
        ),
        ("slack:T1/C1", SessionKey(platform="slack", chat="T1/C1"), True),
        ("slack:T1/C1", SessionKey(platform="slack", chat="T1/C12"), False),
        ("*", SessionKey(platform="web", chat="1"), True),
        ("telegram:*", SessionKey(platform="slack", chat="telegram:1"), False),
        ("telegram:1.3", SessionKey(platform="telegram", chat="123"), False),
        ("telegram@work:*", SessionKey(platform="telegram", chat="1", account="work"), True),
        ("telegram@work:*", SessionKey(platform="telegram", chat="1"), False),
    ],
)
def test_a_route_matches_chats_by_their_key(match: str, key: SessionKey, *, hit: bool) -> None:
    route = RouteSettings(match=match)
    assert find_route([route], key) == (route if hit else None)


def test_the_first_matching_route_is_used() -> None:
    special, general = RouteSettings(match="telegram:5"), RouteSettings(match="telegram:*")
    assert find_route([special, general], SessionKey(platform="telegram", chat="5")) is special
    assert find_route([special, general], SessionKey(platform="telegram", chat="6")) is general


# --- commands ----------------------------------------------------------------------------------

KNOWN = ("stop", "new", "reset", "pair", "help")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/stop", ParsedCommand("stop")),
        ("!stop", ParsedCommand("stop")),
        ("/STOP", ParsedCommand("stop")),
        ("!Stop", ParsedCommand("stop")),
        ("  /stop \n", ParsedCommand("stop")),
        ("/stop all", ParsedCommand("stop", "all")),
        ("/stop\nall", ParsedCommand("stop", "all")),
        ("/stop@holdfastbot", ParsedCommand("stop")),
        ("/stop@HoldfastBot all", ParsedCommand("stop", "all")),
        ("/reset", ParsedCommand("reset")),
        ("/pair  approve ABCD EFGH ", ParsedCommand("pair", "approve ABCD EFGH")),
        ("/new\nfirst line\nsecond line", ParsedCommand("new", "first line\nsecond line")),
        ("/stp", UnknownCommand("stp", "stop")),
        ("/stp please", UnknownCommand("stp", "stop")),
        ("/xyzzy", UnknownCommand("xyzzy")),
        ("/usr/bin is full", None),
        ("/Users is full", None),
        ("//x", None),
        ("//stop", None),
        ("/ 5", None),
        ("/ stop", None),
        ("/5", None),
        ("/", None),
        ("!", None),
        ("", None),
        ("stop", None),
        ("please /stop", None),
        ("!important", None),
        ("!!stop", None),
        ("/stop, please", None),
        ("/stop.", None),
        ("/stоp", None),  # noqa: RUF001 - with a Cyrillic letter
        ("/é", None),
    ],
)
def test_commands_are_distinguished_from_other_texts(
    text: str, command: ParsedCommand | UnknownCommand | None
) -> None:
    assert parse_command(text, KNOWN) == command


@pytest.mark.parametrize(
    ("text", "is_login"),
    [
        ("http://127.0.0.1:41231/callback?code=abc&state=xyz", True),
        (" http://localhost/callback?state=xyz&code=abc\n", True),
        ("http://[::1]:8/callback?error=access_denied&state=x", True),
        ("http://127.0.0.1:8/callback?barcode=abc", False),
        ("http://example.org/callback?code=abc", False),
        ("look: http://127.0.0.1:8/callback?code=abc", False),
        ("http://127.0.0.1:8/callback?code=abc what is this?", False),
    ],
)
def test_the_end_of_a_login_is_a_command_so_that_its_code_never_reaches_the_model(
    text: str, *, is_login: bool
) -> None:
    expected = ParsedCommand("mcp", f"pasted {text.strip()}") if is_login else None
    assert parse_command(text, {"mcp"}) == expected
    assert parse_command(text, {"stop"}) is None
