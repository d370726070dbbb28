"""Sans-IO: how somebody gets an app on Slack."""

import json

from platforms.core.guide import Guide, Token
from platforms.slack.manifest import manifest


def _at_length() -> str:
    return json.dumps(manifest(), indent=2)


GUIDE = Guide(
    tokens=(
        Token(
            key="bot_token",
            words="bot token",
            form=r"xoxb-[\w-]+",
            looks="xoxb-…",
            steps=(
                "Open https://api.slack.com/apps: Create New App, From a manifest (Enter prints it).",
                "Then Install App; it shows the Bot User OAuth Token.",
            ),
        ),
        Token(
            key="app_token",
            words="app token",
            form=r"xapp-[\w-]+",
            looks="xapp-…",
            steps=(
                "On the app's page: Basic Information, App-Level Tokens, Generate Token,",
                "with the scope connections:write.",
            ),
            unless_mode="http",
        ),
    ),
    at_length=_at_length,
)
