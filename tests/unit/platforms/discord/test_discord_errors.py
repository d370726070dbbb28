"""The error of the contract for each failure that discord.py, aiohttp and Discord report."""

import json
from typing import Any
from unittest.mock import Mock

import aiohttp
import discord
import pytest
from aiohttp.client_reqrep import ConnectionKey

from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from platforms.discord.errors import error_for_response, translate_error, translate_errors

_HOST: Any = ConnectionKey("h", 443, True, True, None, None, None)  # noqa: FBT003 - no keywords
_NEW_TOKEN = "Discord does not accept the bot's token; set platforms.discord.token to a new one"
_REFUSED = "Discord refuses the connection: "
_GATEWAY_NOT_FOUND = discord.GatewayNotFound()  # type: ignore[no-untyped-call]  # the library has no types


def _closed(code: int) -> discord.ConnectionClosed:
    return discord.ConnectionClosed(Mock(close_code=code), shard_id=None, code=code)


def _response(status: int, code: int, text: str = "") -> discord.HTTPException:
    return discord.HTTPException(Mock(status=status), {"code": code, "message": text})


def _answered(text: str, status: int, code: int) -> str:
    return f"Discord answered with an error: {text} ({status}, {code})"


@pytest.mark.parametrize(
    ("error", "ours", "message"),
    [
        (discord.LoginFailure("x"), Unauthorized, _NEW_TOKEN),
        (_closed(4004), Unauthorized, _NEW_TOKEN),
        (_closed(4010), Unauthorized, f"{_REFUSED}invalid shard (4010)"),
        (
            _closed(4011),
            Unauthorized,
            f"{_REFUSED}the bot is in too many servers for one connection (4011)",
        ),
        (
            _closed(4012),
            Unauthorized,
            f"{_REFUSED}its API no longer supports this version (4012)",
        ),
        (_closed(4013), Unauthorized, f"{_REFUSED}a requested intent is unknown (4013)"),
        (_closed(4000), Unavailable, "Discord closed the connection (4000)"),
        (_closed(1006), Unavailable, "Discord closed the connection (1006)"),
        (_GATEWAY_NOT_FOUND, Unavailable, "Discord's gateway cannot be found"),
        (
            aiohttp.ClientConnectorError(_HOST, OSError(111, "refused")),
            Unavailable,
            "Discord cannot be reached: Cannot connect to host h:443 ssl:default [refused]",
        ),
        (aiohttp.InvalidURL("x y"), Rejected, "The URL is invalid."),
        (aiohttp.ClientError("cut"), Unconfirmed, "the connection to Discord broke: cut"),
        (OSError(5, "io"), Unconfirmed, "the connection to Discord broke: [Errno 5] io"),
        (TimeoutError(), Unconfirmed, "the connection to Discord broke: TimeoutError"),
        (
            aiohttp.ConnectionTimeoutError("late"),
            Unconfirmed,
            "the connection to Discord broke: late",
        ),
        (
            RuntimeError("Session is closed"),
            Unavailable,
            "the connection to Discord is closed: Session is closed",
        ),
        (json.JSONDecodeError("m", "d", 0), Unconfirmed, "Discord's response is unreadable"),
        (discord.DiscordException("odd"), Unavailable, "DiscordException: odd"),
        (discord.InvalidData("odd"), Unavailable, "InvalidData: odd"),
    ],
)
def test_each_exception_becomes_its_contract_error(
    error: Exception, ours: type[PlatformError], message: str
) -> None:
    with pytest.raises(PlatformError) as raised, translate_errors():
        raise error
    assert type(raised.value) is ours
    assert str(raised.value) == message
    assert getattr(raised.value, "retry_after", None) is None


@pytest.mark.parametrize("error", [discord.PrivilegedIntentsRequired(None), _closed(4014)])
def test_a_missing_intent_is_explained(error: Exception) -> None:
    ours = translate_error(error)
    assert type(ours) is Unauthorized
    assert "Message Content Intent is switched off" in str(ours)


def test_the_wait_that_discord_asks_for_is_kept() -> None:
    error = translate_error(discord.RateLimited(2.5))
    assert isinstance(error, Unavailable)
    assert error.retry_after == 2.5
    assert str(error) == "Discord asks to wait 2.5 s (too many requests)"


@pytest.mark.parametrize(
    ("status", "code", "text", "ours", "message"),
    [
        (401, 0, "x", Unauthorized, _NEW_TOKEN),
        (401, 50001, "x", Unauthorized, _NEW_TOKEN),
        (503, 0, "x", Unavailable, _answered("x", 503, 0)),
        (500, 0, "", Unconfirmed, _answered("no reason given", 500, 0)),
        (502, 10003, "x", Unconfirmed, _answered("x", 502, 10003)),
        (400, 50035, "x", Rejected, _answered("x", 400, 50035)),
        (404, 10008, "", Rejected, _answered("no reason given", 404, 10008)),
        (429, 0, "x", Rejected, _answered("x", 429, 0)),
        *(
            (404, code, "{x}", ChatGone, _answered("{x}", 404, code))
            for code in (10003, 10004, 10013, 50001, 50007, 50013, 160005)
        ),
    ],
)
def test_each_error_response_becomes_its_contract_error(
    status: int, code: int, text: str, ours: type[PlatformError], message: str
) -> None:
    for error in (
        error_for_response(status, code, text),
        translate_error(_response(status, code, text)),
    ):
        assert isinstance(error, ours)
        assert isinstance(error, ChatGone) == (ours is ChatGone)
        assert str(error) == message
        if isinstance(error, Rejected):
            assert error.code == code
