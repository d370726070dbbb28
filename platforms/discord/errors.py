"""Translation of errors of discord.py and aiohttp into errors of the contract.

No other exception of the libraries leaves the adapter.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator

import aiohttp
import discord

from platforms.core.error_table import ErrorRow, FailedCall, translate
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

_ANSWERED = "Discord answered with an error: {text} ({status}, {code})"

_RESPONSES = (
    ErrorRow(Unauthorized, _FATAL_CLOSE_CODES[4004], status={401}),
    ErrorRow(Unavailable, _ANSWERED, status={503}),
    ErrorRow(Unconfirmed, _ANSWERED, status=range(500, 1000)),  # the call may have taken effect
    ErrorRow(ChatGone, _ANSWERED, code=_CHAT_GONE),
    ErrorRow(Rejected, _ANSWERED),
)

_EXCEPTIONS = (
    ErrorRow(Unauthorized, _FATAL_CLOSE_CODES[4004], discord.LoginFailure),
    ErrorRow(Unauthorized, _INTENTS, discord.PrivilegedIntentsRequired),
    *(
        ErrorRow(Unauthorized, message, discord.ConnectionClosed, code={code})
        for code, message in _FATAL_CLOSE_CODES.items()
    ),
    ErrorRow(Unavailable, "Discord closed the connection ({code})", discord.ConnectionClosed),
    ErrorRow(Unavailable, "Discord's gateway cannot be found", discord.GatewayNotFound),
    ErrorRow(
        Unavailable,
        "Discord asks to wait {retry_after:g} s (too many requests)",
        discord.RateLimited,
        keeps_wait=True,
    ),
    ErrorRow(Unavailable, "Discord cannot be reached: {error}", aiohttp.ClientConnectorError),
    ErrorRow(Rejected, "The URL is invalid.", aiohttp.InvalidURL),
    ErrorRow(
        Unconfirmed,
        "the connection to Discord broke: {reason}",
        (aiohttp.ClientError, OSError, asyncio.TimeoutError),
    ),
    # A closed session raises this before sending anything.
    ErrorRow(Unavailable, "the connection to Discord is closed: {error}", RuntimeError),
    ErrorRow(Unconfirmed, "Discord's response is unreadable", json.JSONDecodeError),
    ErrorRow(Unavailable, "{kind}: {error}"),
)

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
    """Return the contract's error for an exception."""
    match error:
        case discord.HTTPException(status=status, code=code, text=text):
            return error_for_response(status, code, text)
        case discord.ConnectionClosed(code=code):
            failure = FailedCall(error=error, code=code)
        case discord.RateLimited(retry_after=seconds):
            failure = FailedCall(error=error, retry_after=seconds)
        case _:
            failure = FailedCall(error=error)
    return translate(_EXCEPTIONS, failure)


def error_for_response(status: int, code: int, text: str) -> PlatformError:
    """Return the contract's error for an HTTP error response; `code` is Discord's error code."""
    return translate(
        _RESPONSES, FailedCall(status=status, code=code, text=text or "no reason given")
    )
