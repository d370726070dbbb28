"""What the library raises, as errors of ours. Nothing else of it leaves the adapter."""

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
    50001,  # we may not see the channel
    50007,  # this person takes no direct messages from us
    50013,  # we may not write there
    160005,  # the thread is locked
}

_INTENTS = (
    "Discord refuses the connection because the bot's Message Content Intent is switched off. "
    "Switch it on at https://discord.com/developers/applications (your application, Bot, "
    "Privileged Gateway Intents) and start again"
)

_FATAL_CLOSE_CODES = {
    4004: "Discord does not accept the bot's token; set platforms.discord.token to a new one",
    4010: "Discord refuses the connection: its shard is wrong (4010)",
    4011: "Discord refuses the connection: the bot is in too many servers for one connection (4011)",
    4012: "Discord refuses the connection: this version of its API is no more (4012)",
    4013: "Discord refuses the connection: it does not know an intent that was asked for (4013)",
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
    """Turn what the library raises inside of this block into an error of ours."""
    try:
        yield
    except PlatformError:
        raise
    except _LIBRARY_ERRORS as error:
        raise translate_error(error) from error


def translate_error(error: BaseException) -> PlatformError:
    """The one table; the most specific kinds come first."""
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
            return Unavailable("Too many requests.", seconds)
        case discord.HTTPException(status=status, code=code, text=text):
            return error_for_response(status, code, text)
        case aiohttp.ClientConnectorError():
            return Unavailable(f"Discord cannot be reached: {error}")
        case aiohttp.InvalidURL():
            return Rejected("This is not an address.")
        case aiohttp.ClientError() | OSError() | asyncio.TimeoutError():
            words = str(error) or type(error).__name__
            return Unconfirmed(f"the connection to Discord broke: {words}")
        case RuntimeError():  # what a closed session raises before anything is sent
            return Unavailable(f"the connection to Discord is closed: {error}")
        case json.JSONDecodeError():
            return Unconfirmed("Discord's answer cannot be read")
        case _:
            return Unavailable(f"{type(error).__name__}: {error}")


def error_for_response(status: int, code: int, text: str) -> PlatformError:
    """What an answer with an error status means for the call it answers."""
    words = f"Discord says: {text or 'no'} ({status}, {code})"
    if status == 401:  # noqa: PLR2004 - HTTP
        return Unauthorized(_FATAL_CLOSE_CODES[4004])
    if status == 503:  # noqa: PLR2004 - HTTP
        return Unavailable(words)
    if status >= 500:  # noqa: PLR2004 - HTTP: nobody knows how far it came
        return Unconfirmed(words)
    if code in _CHAT_GONE:
        return ChatGoneWithCode(code, words)
    return RejectedWithCode(code, words)


class RejectedWithCode(Rejected):
    """Discord refused this, and said by a number why."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ChatGoneWithCode(ChatGone):
    """Discord has no such place for us, and said by a number why."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
