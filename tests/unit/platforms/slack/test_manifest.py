"""The app as Slack is told to make it."""

import re
from pathlib import Path

import platforms.slack
from platforms.slack.manifest import COMMAND, EVENTS, LEGACY_EVENTS, SCOPES, manifest
from tests.fakes.slack.server import COMMAND as TYPED
from tests.fakes.slack.workspace import METHOD_SCOPES

EVENT_SCOPES = {
    "agent_session_stopped": {"chat:write"},
    "app_home_opened": set[str](),
    "app_mention": {"app_mentions:read"},
    "message.channels": {"channels:history"},
    "message.groups": {"groups:history"},
    "message.im": {"im:history"},
    "message.mpim": {"mpim:history"},
}
"""What docs.slack.dev asks for."""

_METHOD = re.compile(
    r'"((?:agents|assistant|auth|chat|conversations|files|reactions|users)\.\w[\w.]*)"'
)
_KIND = re.compile(r'kind (?:==|in) (?:"(\w+)"|\{([^}]*)\})')


def _code() -> dict[str, str]:
    folder = Path(platforms.slack.__file__).parent
    return {path.name: path.read_text() for path in folder.glob("*.py")}


def _methods() -> set[str]:
    """Every method that the adapter may call; its names are written out in full."""
    return {found for text in _code().values() for found in _METHOD.findall(text)}


def test_every_scope_is_needed_by_a_method_an_event_or_the_command_and_none_is_missing() -> None:
    methods = _methods()
    assert methods == set(METHOD_SCOPES) - {"apps.connections.open"}
    needed = set[str]().union(*(METHOD_SCOPES[method] for method in methods))
    needed |= set[str]().union(*(EVENT_SCOPES[event] for event in EVENTS))
    assert set(SCOPES) == needed | {"commands"}
    assert len(SCOPES) == len(set(SCOPES))


def test_every_event_that_is_read_is_asked_for_and_no_other() -> None:
    found = _KIND.findall(_code()["decode.py"])
    read = {name for one, many in found for name in (one, *re.findall(r'"(\w+)"', many)) if name}
    assert read - set(LEGACY_EVENTS) == {event.partition(".")[0] for event in EVENTS}
    assert set(LEGACY_EVENTS) <= read
    assert set(EVENT_SCOPES) == set(EVENTS)


def test_without_an_address_the_app_uses_socket_mode() -> None:
    app = manifest()
    assert app["settings"]["socket_mode_enabled"]
    assert "request_url" not in app["settings"]["event_subscriptions"]
    assert app["features"]["slash_commands"][0]["command"] == COMMAND == TYPED


def test_with_an_address_slack_sends_everything_there() -> None:
    app = manifest(url="https://example.org/slack/events")
    assert not app["settings"]["socket_mode_enabled"]
    assert app["settings"]["event_subscriptions"]["request_url"].endswith("/slack/events")
    assert app["settings"]["interactivity"]["request_url"].endswith("/slack/events")
    assert app["features"]["slash_commands"][0]["url"].endswith("/slack/events")
