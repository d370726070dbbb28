"""Probe of the bot account: token, intents, servers and remaining gateway connections."""

from typing import Any

import aiohttp
import msgspec

from platforms.core.asking import probe_session
from platforms.core.errors import Unavailable
from platforms.core.probed import Finding, ProbeResult
from platforms.discord import DiscordConfig
from platforms.discord.errors import error_for_response, translate_errors
from platforms.discord.invite import USER_AGENT
from platforms.discord.payloads import invite_link
from sessions.values.finding import fail, ok, warn

_TIMEOUT_SECONDS = 8.0
_OK = 200

_CONTENT = 1 << 18
_CONTENT_LIMITED = 1 << 19
"""Application flags of the Message Content Intent; the second is for bots in under 100 servers."""

_PORTAL = "https://discord.com/developers/applications"
_LOW_CONNECTIONS = 50


class _User(msgspec.Struct, frozen=True):
    username: str
    global_name: str | None = None
    discriminator: str = "0"

    @property
    def handle(self) -> str:
        tag = f"#{self.discriminator}" if self.discriminator.strip("0") else ""
        return f"@{self.username}{tag}"


class _Application(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    flags: int = 0
    bot_public: bool = True
    approximate_guild_count: int | None = None
    interactions_endpoint_url: str | None = None


class _Starts(msgspec.Struct, frozen=True):
    total: int
    remaining: int
    reset_after: int  # milliseconds


class _Gateway(msgspec.Struct, frozen=True):
    session_start_limit: _Starts


async def probe(
    config: DiscordConfig, *, alone: bool = False, seconds: float = _TIMEOUT_SECONDS
) -> ProbeResult:
    """See `Probe`."""
    del alone  # these calls never disturb a running gateway
    base = config.base_url.rstrip("/")
    headers = {"Authorization": f"Bot {config.token.reveal()}", "User-Agent": USER_AGENT}
    async with probe_session("Discord", base, seconds):
        with translate_errors():
            async with aiohttp.ClientSession(headers=headers) as session:
                user = await _get(session, f"{base}/users/@me", _User)
                application = await _get(session, f"{base}/applications/@me", _Application)
                gateway = await _get(session, f"{base}/gateway/bot", _Gateway)
    name = user.global_name or user.username
    findings = (
        ok("token", f"Discord knows the bot as {name} ({user.handle})"),
        _intent_finding(application),
        _servers_finding(application),
        *_endpoint_findings(application),
        _connections_finding(gateway.session_start_limit),
    )
    return ProbeResult(name, user.handle, invite_link(application.id), findings)


async def _get(session: aiohttp.ClientSession, url: str, kind: type[Any]) -> Any:  # noqa: ANN401 - an object of this kind
    async with session.get(
        url, allow_redirects=False
    ) as response:  # never send the token elsewhere
        if response.status != _OK:
            raise error_for_response(response.status, 0, response.reason or "")
        try:
            return msgspec.json.decode(await response.read(), type=kind)
        except msgspec.DecodeError as error:
            msg = f"the server at {response.url.host} is not Discord ({error})"
            raise Unavailable(msg) from error


# --- findings ------------------------------------------------------------------------------------


def _intent_finding(application: _Application) -> Finding:
    if application.flags & _CONTENT:
        return ok("message content", "the bot may read messages (Message Content Intent)")
    if application.flags & _CONTENT_LIMITED:
        return ok(
            "message content",
            "the bot may read messages (Message Content Intent, up to 100 servers)",
        )
    return fail(
        "message content",
        "the Message Content Intent is switched off, so Discord refuses the connection",
        f"Switch it on at {_PORTAL}: your application, Bot, Privileged Gateway Intents.",
    )


def _servers_finding(application: _Application) -> Finding:
    count = application.approximate_guild_count
    if count == 0:
        return warn(
            "servers",
            "the bot is in no server, and only people who share a server with it can write to it",
            f"Open {invite_link(application.id)} and choose a server.",
        )
    return ok("servers", "the number is unknown" if count is None else f"the bot is in {count}")


def _endpoint_findings(application: _Application) -> tuple[Finding, ...]:
    if not application.interactions_endpoint_url:
        return ()
    finding = fail(
        "buttons",
        "Discord sends button presses and commands to the application's endpoint URL instead of "
        "the bot",
        f"Clear “Interactions Endpoint URL” at {_PORTAL}: your application, General Information.",
    )
    return (finding,)


def _connections_finding(starts: _Starts) -> Finding:
    text = f"{starts.remaining} of {starts.total} connections left for today"
    again = f"in {max(1, round(starts.reset_after / 60_000))} min"
    if starts.remaining == 0:
        return fail(
            "connections",
            f"{text}: Discord refuses new ones",
            f"Wait: Discord allows them again {again}; until then, do not restart the gateway.",
        )
    if starts.remaining < min(_LOW_CONNECTIONS, starts.total // 2):
        return warn(
            "connections",
            text,
            f"Find out which program keeps connecting as this bot; the count resets {again}.",
        )
    return ok("connections", text)
