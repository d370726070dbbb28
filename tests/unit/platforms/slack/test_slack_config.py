"""The configuration `[platforms.slack]`."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.loader import ConfigOptions, load
from gateway.errors import ConfigError
from platforms.slack import SPEC, SlackConfig
from sessions.values.secret import Secret

SPECS = {"slack": SPEC}
TOKENS = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}


def test_two_environment_variables_are_enough() -> None:
    found = load(ConfigOptions(None), TOKENS, SPECS).settings.platforms["slack"]
    assert isinstance(found, SlackConfig)
    assert (found.bot_token, found.app_token) == (Secret("xoxb-1"), Secret("xapp-1"))
    assert found.mode == "socket"


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"SLACK_BOT_TOKEN": "xoxb-1"}, "app_token"),
        ({"SLACK_APP_TOKEN": "xapp-1"}, "bot_token"),
        (TOKENS | {"HOLDFAST_PLATFORMS__SLACK__MODE": "http"}, "signing_secret"),
        (TOKENS | {"HOLDFAST_PLATFORMS__SLACK__BASE_URL": "slack.com"}, "base_url"),
    ],
)
def test_a_missing_setting_is_named(environment: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load(ConfigOptions(None), environment, SPECS)


@pytest.mark.process
def test_the_libraries_are_loaded_only_when_slack_is_used() -> None:
    program = "import sys, platforms.slack; print(*sys.modules)"
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert {"slack_bolt", "slack_sdk", "aiohttp", "starlette"}.isdisjoint(done.stdout.split())
