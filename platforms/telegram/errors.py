"""Translation of errors of python-telegram-bot and aiohttp into errors of the contract."""

import contextlib
import re
from collections.abc import Iterator

import aiohttp
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    TelegramError,
)

from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from platforms.telegram.http import TooManyRequests

_TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
"""Failures of the HTTP client, including those of the connection."""

_NOT_SENT_ERRORS = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
)
"""Failures that prove that the request never reached Telegram."""

_CONNECT_FAILURES = {
    aiohttp.ConnectionTimeoutError: "the connection timed out",
    aiohttp.InvalidURL: "platforms.telegram.base_url is not an http:// or https:// address",
}

_CHAT_GONE = re.compile(
    r"chat not found|PEER_ID_INVALID|chat was deactivated|CHAT_WRITE_FORBIDDEN|"
    r"user is deactivated|no rights to send|not enough rights to send|"
    r"need administrator rights in the channel|CHAT_RESTRICTED|group chat was upgraded|"
    r"bot is not a member",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"entity too large|file is too big", re.IGNORECASE)
_UNFINISHED = re.compile(r"abort|restart|timed? ?out", re.IGNORECASE)

NOT_MODIFIED = re.compile(r"message is not modified", re.IGNORECASE)
"""Error of an edit that changes nothing; the edit counts as done."""

DELETE_NOT_FOUND = re.compile(r"message to delete not found", re.IGNORECASE)
"""Error of deleting a message that no longer exists; the delete counts as done."""

_COMPETING_POLLER = (
    "another program receives this bot's messages (Telegram allows one getUpdates at a time); "
    "stop that program, or give it a bot of its own"
)
_TOKEN_REFUSED = "Telegram does not accept the token (platforms.telegram.token, TELEGRAM_BOT_TOKEN)"  # noqa: S105 - a message
_BOT_NOT_FOUND = (
    "Telegram knows no such bot at this address "
    "(platforms.telegram.token, platforms.telegram.base_url)"
)


class GroupMigrated(ChatGone):
    """The group became a supergroup with the id `chat`; the call was not carried out."""

    def __init__(self, chat: int) -> None:
        super().__init__(f"the group is now the supergroup {chat}")
        self.chat = chat


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise exceptions of the library and of aiohttp as errors of the contract."""
    try:
        yield
    except ChatMigrated as error:
        raise GroupMigrated(error.new_chat_id) from error
    except (TelegramError, aiohttp.ClientError) as error:
        raise translate_error(error) from error


@contextlib.contextmanager
def detect_missing_method() -> Iterator[None]:
    """Raise `EndPointNotFound` for a method that the server lacks.

    The library reports such a method as an invalid token.
    """
    try:
        yield
    except InvalidToken as error:
        if "not found" not in error.message.lower():
            raise
        msg = "Endpoint of this name not found in Bot API"
        raise EndPointNotFound(msg) from error


def translate_error(error: TelegramError | aiohttp.ClientError) -> PlatformError:
    """Return the contract's error for an exception; the first matching case wins.

    Messages of the HTTP client may contain the URL, and the URL contains the token, so only the
    exception's type is reported.
    """
    text = error.message if isinstance(error, TelegramError) else ""
    match error:
        case TooManyRequests():
            return Unavailable(text, retry_after=error.seconds)
        case EndPointNotFound():
            return Rejected(text)
        case InvalidToken():
            # The library raises this both for a wrong token and for a server that is not Telegram.
            reason = str(error.__cause__) if isinstance(error.__cause__, InvalidToken) else text
            return Unauthorized(_BOT_NOT_FOUND if "not found" in reason.lower() else _TOKEN_REFUSED)
        case Conflict():
            return Unavailable(text if "webhook" in text.lower() else _COMPETING_POLLER)
        case Forbidden():
            return ChatGone(text)
        case BadRequest():
            return ChatGone(text) if _CHAT_GONE.search(text) else Rejected(text)
        case NetworkError():
            return _translate_network(error)
        case aiohttp.ClientError():
            return _translate_transport(error)
        case _:
            return Unconfirmed(text)  # an unreadable response


def _translate_network(error: NetworkError) -> PlatformError:
    cause = error.__cause__
    if isinstance(cause, _TRANSPORT_ERRORS):
        return _translate_transport(cause)
    if _TOO_LARGE.search(error.message):
        return Rejected(error.message)
    if cause is None and not _UNFINISHED.search(error.message):
        # Telegram itself reported an internal failure.
        return Unavailable(f"Telegram reported a failure: {error.message}")
    return Unconfirmed(f"Telegram did not confirm the call: {error.message[:100]}")


def _translate_transport(cause: Exception) -> PlatformError:
    kind = type(cause).__name__
    if isinstance(cause, _NOT_SENT_ERRORS):
        reason = _CONNECT_FAILURES.get(type(cause), "no connection")
        return Unavailable(f"Telegram cannot be reached ({reason})")
    return Unconfirmed(f"the connection to Telegram broke ({kind})")
