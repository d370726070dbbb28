"""The error of the contract for each failure that the library, aiohttp and Telegram report."""

from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    TelegramError,
    TimedOut,
)

from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from platforms.telegram.errors import GroupMigrated, translate_errors
from platforms.telegram.http import TooManyRequests

_HOST: Any = ConnectionKey("h", 443, True, True, None, None, None)  # noqa: FBT003 - no keywords
_REFUSED_TOKEN = "Telegram does not accept the token (platforms.telegram.token, TELEGRAM_BOT_TOKEN)"
_NO_BOT = (
    "Telegram knows no such bot at this address "
    "(platforms.telegram.token, platforms.telegram.base_url)"
)
_NO_CONNECTION = "Telegram cannot be reached (no connection)"
_NOT_CONNECTED_IN_TIME = "Telegram cannot be reached (the connection timed out)"
_BAD_ADDRESS = (
    "Telegram cannot be reached (platforms.telegram.base_url is not an http:// or https:// address)"
)
_COMPETING_POLLER = (
    "another program receives this bot's messages (Telegram allows one getUpdates at a time); "
    "stop that program, or give it a bot of its own"
)
_WEBHOOK = "Conflict: can't use getUpdates method while webhook is active"


def _caused(error: TelegramError, cause: Exception) -> TelegramError:
    error.__cause__ = cause
    return error


def _translate(error: Exception) -> PlatformError:
    with pytest.raises(PlatformError) as raised, translate_errors():
        raise error from error.__cause__
    return raised.value


@pytest.mark.parametrize(
    ("error", "ours", "message"),
    [
        (EndPointNotFound("nope"), Rejected, "nope"),
        (InvalidToken("Unauthorized"), Unauthorized, _REFUSED_TOKEN),
        (InvalidToken("Not Found"), Unauthorized, _NO_BOT),
        (_caused(InvalidToken("The token"), InvalidToken("Not Found")), Unauthorized, _NO_BOT),
        (
            _caused(InvalidToken("`not found` is refused"), InvalidToken("Unauthorized")),
            Unauthorized,
            _REFUSED_TOKEN,
        ),
        (Conflict(_WEBHOOK), Unavailable, _WEBHOOK),
        (
            Conflict("Conflict: terminated by other getUpdates request"),
            Unavailable,
            _COMPETING_POLLER,
        ),
        (Forbidden("bot was blocked by the user"), ChatGone, "bot was blocked by the user"),
        *(
            (BadRequest(text), ChatGone, text)
            for text in (
                "Chat not found",
                "PEER_ID_INVALID",
                "chat was deactivated",
                "CHAT_WRITE_FORBIDDEN",
                "user is deactivated",
                "have no rights to send a message",
                "not enough rights to send text messages",
                "need administrator rights in the channel chat",
                "CHAT_RESTRICTED",
                "group chat was upgraded to a supergroup chat",
                "bot is not a member of the channel chat",
            )
        ),
        (BadRequest("Message text is empty"), Rejected, "Message text is empty"),
        (BadRequest("file is too big"), Rejected, "file is too big"),
        (
            _caused(NetworkError("x"), aiohttp.ClientConnectorError(_HOST, OSError(111, "no"))),
            Unavailable,
            _NO_CONNECTION,
        ),
        (aiohttp.ClientConnectorError(_HOST, OSError(111, "no")), Unavailable, _NO_CONNECTION),
        (
            _caused(TimedOut("x"), aiohttp.ConnectionTimeoutError("t")),
            Unavailable,
            _NOT_CONNECTED_IN_TIME,
        ),
        (_caused(NetworkError("x"), aiohttp.InvalidURL("http://s")), Unavailable, _BAD_ADDRESS),
        (aiohttp.InvalidURL("http://s"), Unavailable, _BAD_ADDRESS),
        *(
            (
                _caused(NetworkError("file is too big"), cause),
                Unconfirmed,
                f"the connection to Telegram broke ({type(cause).__name__})",
            )
            for cause in (aiohttp.ServerDisconnectedError(), TimeoutError(), OSError(5, "secret"))
        ),
        (
            aiohttp.ServerDisconnectedError("secret"),
            Unconfirmed,
            "the connection to Telegram broke (ServerDisconnectedError)",
        ),
        (NetworkError("Request Entity Too Large"), Rejected, "Request Entity Too Large"),
        (NetworkError("Bad Gateway"), Unavailable, "Telegram reported a failure: Bad Gateway"),
        *(
            (NetworkError(text), Unconfirmed, f"Telegram did not confirm the call: {text[:100]}")
            for text in ("Internal Server Error: restart", "Aborted", "timeout", "restart " * 20)
        ),
        (TimedOut(), Unconfirmed, "Telegram did not confirm the call: Timed out"),
        (
            _caused(NetworkError("odd"), ValueError()),
            Unconfirmed,
            "Telegram did not confirm the call: odd",
        ),
        (TelegramError("Invalid {response}"), Unconfirmed, "Invalid {response}"),
    ],
)
def test_each_exception_becomes_its_contract_error(
    error: Exception, ours: type[PlatformError], message: str
) -> None:
    translated = _translate(error)
    assert type(translated) is ours
    assert str(translated) == message
    assert getattr(translated, "retry_after", None) is None


def test_a_rate_limit_keeps_the_wait() -> None:
    translated = _translate(TooManyRequests(7))
    assert isinstance(translated, Unavailable)
    assert (translated.retry_after, str(translated)) == (7, "Telegram asks to wait 7 s")


def test_a_migrated_group_names_its_successor() -> None:
    translated = _translate(ChatMigrated(-1005))
    assert isinstance(translated, GroupMigrated)
    assert (translated.chat, str(translated)) == (-1005, "the group is now the supergroup -1005")
