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

from platforms.core.error_table import ErrorRow, FailedCall, translate
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

_CHAT_GONE = re.compile(
    r"chat not found|PEER_ID_INVALID|chat was deactivated|CHAT_WRITE_FORBIDDEN|"
    r"user is deactivated|no rights to send|not enough rights to send|"
    r"need administrator rights in the channel|CHAT_RESTRICTED|group chat was upgraded|"
    r"bot is not a member",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"entity too large|file is too big", re.IGNORECASE)
_UNFINISHED = re.compile(r"abort|restart|timed? ?out", re.IGNORECASE)
_NOT_FOUND = re.compile("not found", re.IGNORECASE)
_WEBHOOK = re.compile("webhook", re.IGNORECASE)

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
_NOT_CONFIRMED = "Telegram did not confirm the call: {text:.100}"


class GroupMigrated(ChatGone):
    """The group became a supergroup with the id `chat`; the call was not carried out."""

    def __init__(self, chat: int) -> None:
        super().__init__(f"the group is now the supergroup {chat}")
        self.chat = chat


def _is_from_telegram(failure: FailedCall) -> bool:
    """Return True for a failure that Telegram itself reported."""
    return failure.error is not None and failure.error.__cause__ is None


_EXCEPTIONS = (
    ErrorRow(Unavailable, "{text}", TooManyRequests, keeps_wait=True),
    ErrorRow(Rejected, "{text}", EndPointNotFound),
    # The library raises this both for a wrong token and for a server that is not Telegram.
    ErrorRow(Unauthorized, _BOT_NOT_FOUND, InvalidToken, text=_NOT_FOUND),
    ErrorRow(Unauthorized, _TOKEN_REFUSED, InvalidToken),
    ErrorRow(Unavailable, "{text}", Conflict, text=_WEBHOOK),
    ErrorRow(Unavailable, _COMPETING_POLLER, Conflict),
    ErrorRow(ChatGone, "{text}", Forbidden),
    ErrorRow(ChatGone, "{text}", BadRequest, text=_CHAT_GONE),
    ErrorRow(Rejected, "{text}", BadRequest),
    # The first three prove that the request never reached Telegram.
    ErrorRow(
        Unavailable,
        "Telegram cannot be reached (the connection timed out)",
        aiohttp.ConnectionTimeoutError,
    ),
    ErrorRow(
        Unavailable,
        "Telegram cannot be reached "
        "(platforms.telegram.base_url is not an http:// or https:// address)",
        aiohttp.InvalidURL,
    ),
    ErrorRow(
        Unavailable, "Telegram cannot be reached (no connection)", aiohttp.ClientConnectorError
    ),
    ErrorRow(Unconfirmed, "the connection to Telegram broke ({kind})", _TRANSPORT_ERRORS),
    ErrorRow(Rejected, "{text}", NetworkError, text=_TOO_LARGE),
    ErrorRow(Unconfirmed, _NOT_CONFIRMED, NetworkError, text=_UNFINISHED),
    ErrorRow(
        Unavailable, "Telegram reported a failure: {text}", NetworkError, when=_is_from_telegram
    ),
    ErrorRow(Unconfirmed, _NOT_CONFIRMED, NetworkError),
    ErrorRow(Unconfirmed, "{text}"),  # an unreadable response
)


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
    """Return the contract's error for an exception.

    Messages of the HTTP client may contain the URL, and the URL contains the token, so only the
    exception's type is reported.
    """
    cause = error.__cause__
    if isinstance(error, aiohttp.ClientError):
        return translate(_EXCEPTIONS, FailedCall(error=error))
    if isinstance(error, BadRequest):  # a subclass of `NetworkError`
        return translate(_EXCEPTIONS, FailedCall(error=error, text=error.message))
    if isinstance(error, NetworkError) and isinstance(cause, _TRANSPORT_ERRORS):
        return translate(_EXCEPTIONS, FailedCall(error=cause))
    if isinstance(error, InvalidToken) and isinstance(cause, InvalidToken):
        return translate(_EXCEPTIONS, FailedCall(error=error, text=str(cause)))
    wait = error.seconds if isinstance(error, TooManyRequests) else None
    return translate(_EXCEPTIONS, FailedCall(error=error, text=error.message, retry_after=wait))
