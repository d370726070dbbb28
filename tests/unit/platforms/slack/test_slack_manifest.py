"""The manifest of the Slack app."""

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
"""Scopes per event, as documented on docs.slack.dev."""

_METHOD = re.compile(
    r'"((?:agents|assistant|auth|chat|conversations|files|reactions|users)\.\w[\w.]*)"'
)
_KIND = re.compile(r'kind (?:==|in) (?:"(\w+)"|\{([^}]*)\})')


def _code() -> dict[str, str]:
    folder = Path(platforms.slack.__file__).parent
    return {path.name: path.read_text() for path in folder.glob("*.py")}


def _methods() -> set[str]:
    """Return every method that the adapter may call; their names are literals in its code."""
    return {found for text in _code().values() for found in _METHOD.findall(text)}


def test_the_manifest_asks_for_exactly_the_scopes_that_methods_events_and_the_command_need() -> (
    None
):
    methods = _methods()
    assert methods == set(METHOD_SCOPES) - {"apps.connections.open"}
    needed = set[str]().union(*(METHOD_SCOPES[method] for method in methods))
    needed |= set[str]().union(*(EVENT_SCOPES[event] for event in EVENTS))
    assert set(SCOPES) == needed | {"commands"}
    assert len(SCOPES) == len(set(SCOPES))


def test_the_manifest_subscribes_to_exactly_the_events_that_are_decoded() -> None:
    found = _KIND.findall(_code()["decode.py"])
    read = {name for one, many in found for name in (one, *re.findall(r'"(\w+)"', many)) if name}
    assert read - set(LEGACY_EVENTS) == {event.partition(".")[0] for event in EVENTS}
    assert set(LEGACY_EVENTS) <= read
    assert set(EVENT_SCOPES) == set(EVENTS)


def test_without_a_url_the_app_uses_socket_mode() -> None:
    app = manifest()
    assert app["settings"]["socket_mode_enabled"]
    assert "request_url" not in app["settings"]["event_subscriptions"]
    assert app["features"]["slash_commands"][0]["command"] == COMMAND == TYPED


def test_with_a_url_slack_sends_everything_there() -> None:
    app = manifest(url="https://example.org/slack/events")
    assert not app["settings"]["socket_mode_enabled"]
    assert app["settings"]["event_subscriptions"]["request_url"].endswith("/slack/events")
    assert app["settings"]["interactivity"]["request_url"].endswith("/slack/events")
    assert app["features"]["slash_commands"][0]["url"].endswith("/slack/events")
