"""Lookup of the link that adds the bot to a server, given only the bot's token."""

import asyncio

import aiohttp

from platforms.core.errors import Unavailable
from platforms.discord.errors import error_for_response, translate_errors
from platforms.discord.payloads import invite_link

_TIMEOUT_SECONDS = 5.0
_OK = 200
USER_AGENT = "DiscordBot (holdfast, 1)"  # the form that Discord requires of bots


async def fetch_invite_link(token: str, base_url: str, seconds: float = _TIMEOUT_SECONDS) -> str:
    """Return the invite link of the token's application; raises platform errors."""
    headers = {"Authorization": f"Bot {token}", "User-Agent": USER_AGENT}
    try:
        async with asyncio.timeout(seconds):
            with translate_errors():
                answer = await _get_json(f"{base_url.rstrip('/')}/oauth2/applications/@me", headers)
    except TimeoutError:
        msg = f"Discord did not answer within {seconds:g} s"
        raise Unavailable(msg) from None
    application = answer.get("id") if isinstance(answer, dict) else None
    if not (isinstance(application, str) and application.isdecimal()):
        msg = "Discord's response does not name the application"
        raise Unavailable(msg)
    return invite_link(application)


async def _get_json(url: str, headers: dict[str, str]) -> object:
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(url, allow_redirects=False) as response,  # never send the token elsewhere
    ):
        if response.status != _OK:
            raise error_for_response(response.status, 0, response.reason or "")
        answer: object = await response.json(content_type=None)
        return answer
