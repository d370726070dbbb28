"""The app as Slack is told to make it."""

from platforms.slack.manifest import COMMAND, manifest
from tests.fakes.slack.server import COMMAND as TYPED


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
