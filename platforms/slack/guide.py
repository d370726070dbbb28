"""Sans-IO: set-up steps for a Slack app."""

import json

from platforms.core.guide import SetupGuide, TokenGuide
from platforms.slack.manifest import manifest


def _at_length() -> str:
    return json.dumps(manifest(), indent=2)


GUIDE = SetupGuide(
    tokens=(
        TokenGuide(
            key="bot_token",
            label="bot token",
            pattern=r"xoxb-[\w-]+",
            example="xoxb-…",
            steps=(
                "Open https://api.slack.com/apps: Create New App, From a manifest (Enter prints it).",
                "Then Install App; it shows the Bot User OAuth Token.",
            ),
        ),
        TokenGuide(
            key="app_token",
            label="app token",
            pattern=r"xapp-[\w-]+",
            example="xapp-…",
            steps=(
                "On the app's page: Basic Information, App-Level Tokens, Generate Token,",
                "with the scope connections:write.",
            ),
            unless_mode="http",
        ),
    ),
    details=_at_length,
)
