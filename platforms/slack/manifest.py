"""Sans-IO: the manifest of the Slack app, with scopes, events and the command."""

from typing import Any

SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "im:history",
    "im:write",
    "mpim:history",
    "reactions:read",
    "reactions:write",
    "users:read",
)
EVENTS = (
    "agent_session_stopped",
    "app_home_opened",
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
)
LEGACY_EVENTS = ("assistant_thread_started",)
"""Also handled, but Slack sends these only to older apps (`assistant_view`)."""

EVENT_TYPES = tuple(
    dict.fromkeys(
        name.partition(".")[0]
        for name in ("message.im", "app_mention", *EVENTS, *LEGACY_EVENTS)  # frequent ones first
    )
)
"""Types of these events in payloads; all four `message.*` subscriptions arrive as `message`."""

COMMAND = "/holdfast"


def manifest(name: str = "Holdfast", url: str = "") -> dict[str, Any]:
    """Return the manifest; `url`, the public address of `/slack/events`, replaces Socket Mode."""
    command: dict[str, Any] = {
        "command": COMMAND,
        "description": "Commands: help, new, stop, status …",
        "usage_hint": "WORD",
        "should_escape": False,
    }
    events: dict[str, Any] = {"bot_events": list(EVENTS)}
    interactivity: dict[str, Any] = {"is_enabled": True}
    if url:
        command["url"] = events["request_url"] = interactivity["request_url"] = url
    return {
        "display_information": {"name": name},
        "features": {
            "app_home": {"messages_tab_enabled": True, "messages_tab_read_only_enabled": False},
            "agent_view": {
                "agent_description": "Talks, works with files and tools, and asks first."
            },
            "bot_user": {"display_name": name, "always_online": True},
            "slash_commands": [command],
        },
        "oauth_config": {"scopes": {"bot": list(SCOPES)}},
        "settings": {
            "event_subscriptions": events,
            "interactivity": interactivity,
            "socket_mode_enabled": not url,
            "org_deploy_enabled": False,
            "token_rotation_enabled": False,
        },
    }
