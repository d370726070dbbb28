"""What goes wrong in the library and its HTTP client, as the errors of the contract."""

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

TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
"""What goes wrong below HTTP, or in it."""

NOT_SENT_ERRORS = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
"""The request surely never reached Telegram."""

_CONNECT_FAILURES = {
    aiohttp.ConnectionTimeoutError: "no connection in time",
    aiohttp.InvalidURL: "platforms.telegram.base_url is no http:// or https:// address",
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
"""An edit that changes nothing has done its work."""

DELETE_NOT_FOUND = re.compile(r"message to delete not found", re.IGNORECASE)
"""A delete of what is gone has done its work, too."""

COMPETING_POLLER = (
    "another program receives this bot's messages (Telegram allows one getUpdates at a time); "
    "stop it, or give it a bot of its own"
)
TOKEN_REFUSED = "Telegram does not accept the token (platforms.telegram.token, TELEGRAM_BOT_TOKEN)"  # noqa: S105 - a message
BOT_NOT_FOUND = (
    "there is no such bot at this address (platforms.telegram.token, platforms.telegram.base_url)"
)


class GroupMigrated(ChatGone):
    """The group has become a supergroup, which has another id; nothing was carried out."""

    def __init__(self, chat: int) -> None:
        super().__init__(f"the group is called {chat} now")
        self.chat = chat


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Turn the library's exceptions into those of the contract."""
    try:
        yield
    except ChatMigrated as error:
        raise GroupMigrated(error.new_chat_id) from error
    except (TelegramError, aiohttp.ClientError) as error:
        raise translate_error(error) from error


@contextlib.contextmanager
def detect_missing_method() -> Iterator[None]:
    """The library takes a method that the server lacks for a wrong token."""
    try:
        yield
    except InvalidToken as error:
        if "not found" not in error.message.lower():
            raise
        msg = "Endpoint of this name not found in Bot API"
        raise EndPointNotFound(msg) from error


def translate_error(error: TelegramError | aiohttp.ClientError) -> PlatformError:
    """Find the error of the contract; the first line that fits counts.

    Messages of the HTTP client may name the address, which holds the token: only its kind is told.
    """
    text = error.message if isinstance(error, TelegramError) else ""
    match error:
        case TooManyRequests():
            return Unavailable(text, retry_after=error.seconds)
        case EndPointNotFound():
            return Rejected(text)
        case InvalidToken():
            # The library says both of a wrong token and of an address where no Telegram is.
            said = str(error.__cause__) if isinstance(error.__cause__, InvalidToken) else text
            return Unauthorized(BOT_NOT_FOUND if "not found" in said.lower() else TOKEN_REFUSED)
        case Conflict():
            return Unavailable(text if "webhook" in text.lower() else COMPETING_POLLER)
        case Forbidden():
            return ChatGone(text)
        case BadRequest():
            return ChatGone(text) if _CHAT_GONE.search(text) else Rejected(text)
        case NetworkError():
            return _translate_network(error)
        case aiohttp.ClientError():
            return _translate_transport(error)
        case _:
            return Unconfirmed(text)  # an answer that cannot be read


def _translate_network(error: NetworkError) -> PlatformError:
    cause = error.__cause__
    if isinstance(cause, TRANSPORT_ERRORS):
        return _translate_transport(cause)
    if _TOO_LARGE.search(error.message):
        return Rejected(error.message)
    if cause is None and not _UNFINISHED.search(error.message):
        # Telegram's own servers answered that they failed, in their own words.
        return Unavailable(f"Telegram has failed: {error.message}")
    return Unconfirmed(f"Telegram did not say what came of it: {error.message[:100]}")


def _translate_transport(cause: Exception) -> PlatformError:
    kind = type(cause).__name__
    if isinstance(cause, NOT_SENT_ERRORS):
        why = _CONNECT_FAILURES.get(type(cause), "no connection")
        return Unavailable(f"Telegram cannot be reached ({why})")
    return Unconfirmed(f"the connection to Telegram broke ({kind})")
