"""Checks of an app's tokens, scopes and delivery of events."""

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from platforms.core.asking import probe_session
from platforms.core.errors import Unauthorized, Unavailable
from platforms.core.probed import Finding, ProbeResult
from platforms.slack.calls import Json, SlackClient
from platforms.slack.config import SlackConfig
from platforms.slack.errors import SlackRefusal, translate_error
from platforms.slack.manifest import SCOPES
from sessions.values.clock import SystemClock
from sessions.values.finding import fail, ok

_TIMEOUT_SECONDS = 8.0

_HEADER = "x-oauth-scopes"
_APPS = "https://api.slack.com/apps"


async def probe(
    config: SlackConfig, *, alone: bool = False, seconds: float = _TIMEOUT_SECONDS
) -> ProbeResult:
    """See `Probe`."""
    del alone  # none of these calls disturbs a running gateway
    calls = SlackClient(config.bot_token, config.base_url, SystemClock())
    async with probe_session("Slack", config.base_url, seconds), calls.open_session() as session:
        client = AsyncWebClient(
            config.bot_token.reveal(), calls.base_url, session=session, retry_handlers=[]
        )
        with _translate_errors():
            answer = await client.auth_test()
        found = answer.data
        if not isinstance(found, dict) or not found.get("user_id"):
            msg = "the server at this address is not Slack"
            raise Unavailable(msg)
        who = _token_finding(found)
        scopes = _scopes_finding(dict(answer.headers))
        events = await _events_finding(config, calls, session)
    team, user = str(found.get("team_id", "")), str(found["user_id"])
    name = str(found.get("user") or user)
    link = f"slack://user?team={team}&id={user}" if team else ""
    return ProbeResult(name, f"@{name}", link, tuple(filter(None, (who, scopes, events))))


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (SlackClientError, aiohttp.ClientError, OSError, AttributeError) as error:
        raise translate_error(error) from error


async def _events_finding(
    config: SlackConfig, calls: SlackClient, session: aiohttp.ClientSession
) -> Finding:
    """Check that Slack would open a connection, without opening one."""
    if config.mode == "http" or config.app_token is None:
        return ok("events", "Slack sends signed requests to /slack/events")
    client = AsyncWebClient(base_url=calls.base_url, session=session, retry_handlers=[])
    try:
        with _translate_errors():
            await client.apps_connections_open(app_token=config.app_token.reveal())
    except Unauthorized as error:
        msg = f"{error}; Slack refused the app token (xapp-…)"
        raise Unauthorized(msg) from error
    except SlackRefusal as error:
        if error.code == "missing_scope":
            return fail(
                "events",
                "the app token lacks the scope connections:write",
                f"Create a new one with that scope at {_APPS}: your app, Basic Information, "
                "App-Level Tokens.",
            )
        return fail(
            "events",
            f"Slack refuses to open a connection for the app token ({error.code})",
            f"Switch Socket Mode on at {_APPS}: your app, Socket Mode.",
        )
    return ok("events", "Slack accepts the app token, for Socket Mode")


def _token_finding(found: Json) -> Finding:
    name, team = found.get("user"), found.get("team")
    if not found.get("bot_id"):
        return fail(
            "token",
            f"this token belongs to a person ({name} in {team}), not to the app",
            f"Take the Bot User OAuth Token (xoxb-…) from {_APPS}: your app, OAuth & Permissions.",
        )
    return ok("token", f"Slack knows the app as {name} in {team}")


def _scopes_finding(headers: dict[str, str]) -> Finding | None:
    """Compare the token's scopes with the manifest; None if the response does not list them."""
    told = next((text for name, text in headers.items() if name.lower() == _HEADER), None)
    if told is None:
        return None
    missing = sorted(set(SCOPES) - {each.strip() for each in told.split(",")})
    if not missing:
        return ok("scopes", f"the app has all {len(SCOPES)} scopes it needs")
    return fail(
        "scopes",
        f"the app is missing {', '.join(missing)}",
        f"Paste the output of `holdfast config slack-manifest` at {_APPS} (your app, App Manifest), "
        "then install the app again.",
    )
