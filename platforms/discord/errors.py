"""Translation of errors of discord.py and aiohttp into errors of the contract.

No other exception of the libraries leaves the adapter.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator

import aiohttp
import discord

from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)

UNKNOWN_CHANNEL, UNKNOWN_MESSAGE = 10003, 10008

_CHAT_GONE = {
    UNKNOWN_CHANNEL,
    10004,  # unknown guild
    10013,  # unknown user
    50001,  # missing access to the channel
    50007,  # the person does not accept direct messages from the bot
    50013,  # missing permission to write
    160005,  # the thread is locked
}

_INTENTS = (
    "Discord refuses the connection because the bot's Message Content Intent is switched off. "
    "Switch it on at https://discord.com/developers/applications (your application, Bot, "
    "Privileged Gateway Intents) and start again"
)

_FATAL_CLOSE_CODES = {
    4004: "Discord does not accept the bot's token; set platforms.discord.token to a new one",
    4010: "Discord refuses the connection: invalid shard (4010)",
    4011: "Discord refuses the connection: the bot is in too many servers for one connection (4011)",
    4012: "Discord refuses the connection: its API no longer supports this version (4012)",
    4013: "Discord refuses the connection: a requested intent is unknown (4013)",
    4014: _INTENTS,
}

_LIBRARY_ERRORS: tuple[type[BaseException], ...] = (
    discord.DiscordException,
    aiohttp.ClientError,
    asyncio.TimeoutError,
    OSError,
    json.JSONDecodeError,
    RuntimeError,
)


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise exceptions of the libraries as errors of the contract."""
    try:
        yield
    except PlatformError:
        raise
    except _LIBRARY_ERRORS as error:
        raise translate_error(error) from error


def translate_error(error: BaseException) -> PlatformError:
    """Return the contract's error for an exception; the first matching case wins."""
    match error:
        case discord.LoginFailure():
            return Unauthorized(_FATAL_CLOSE_CODES[4004])
        case discord.PrivilegedIntentsRequired():
            return Unauthorized(_INTENTS)
        case discord.ConnectionClosed(code=code) if code in _FATAL_CLOSE_CODES:
            return Unauthorized(_FATAL_CLOSE_CODES[code])
        case discord.ConnectionClosed(code=code):
            return Unavailable(f"Discord closed the connection ({code})")
        case discord.GatewayNotFound():
            return Unavailable("Discord's gateway cannot be found")
        case discord.RateLimited(retry_after=seconds):
            return Unavailable(f"Discord asks to wait {seconds:g} s (too many requests)", seconds)
        case discord.HTTPException(status=status, code=code, text=text):
            return error_for_response(status, code, text)
        case aiohttp.ClientConnectorError():
            return Unavailable(f"Discord cannot be reached: {error}")
        case aiohttp.InvalidURL():
            return Rejected("The URL is invalid.")
        case aiohttp.ClientError() | OSError() | asyncio.TimeoutError():
            reason = str(error) or type(error).__name__
            return Unconfirmed(f"the connection to Discord broke: {reason}")
        case RuntimeError():  # a closed session raises this before sending anything
            return Unavailable(f"the connection to Discord is closed: {error}")
        case json.JSONDecodeError():
            return Unconfirmed("Discord's response is unreadable")
        case _:
            return Unavailable(f"{type(error).__name__}: {error}")


def error_for_response(status: int, code: int, text: str) -> PlatformError:
    """Return the contract's error for an HTTP error response; `code` is Discord's error code."""
    message = f"Discord answered with an error: {text or 'no reason given'} ({status}, {code})"
    if status == 401:  # noqa: PLR2004 - HTTP
        return Unauthorized(_FATAL_CLOSE_CODES[4004])
    if status == 503:  # noqa: PLR2004 - HTTP
        return Unavailable(message)
    if status >= 500:  # noqa: PLR2004 - HTTP: the call may have taken effect
        return Unconfirmed(message)
    if code in _CHAT_GONE:
        return ChatGoneWithCode(code, message)
    return RejectedWithCode(code, message)


class RejectedWithCode(Rejected):
    """Refusal with Discord's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ChatGoneWithCode(ChatGone):
    """Missing or forbidden chat with Discord's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
