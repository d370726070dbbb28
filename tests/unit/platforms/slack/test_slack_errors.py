"""The error of the contract for each failure that slack-sdk, aiohttp and Slack report."""

from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from slack_sdk.errors import SlackApiError, SlackClientError, SlackRequestError

from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from platforms.slack.errors import SlackRefusal, translate_error

_HOST: Any = ConnectionKey("h", 443, True, True, None, None, None)  # noqa: FBT003 - no keywords
_NO_ANSWER = "Slack did not answer in time"


def _response(
    code: str | None, status: int = 200, headers: dict[str, str] | None = None, needed: str = ""
) -> SlackApiError:
    """Return the library's error; without a code the body is no JSON."""
    data: Any = {"ok": False, "error": code} | ({"needed": needed} if needed else {})
    answer = Mock(
        status_code=status, data="<html>" if code is None else data, headers=headers or {}
    )
    return SlackApiError("m", answer)  # type: ignore[no-untyped-call]  # the library has no types


@pytest.mark.parametrize(
    ("error", "ours", "message"),
    [
        (
            aiohttp.ClientConnectorError(_HOST, OSError(111, "refused")),
            Unavailable,
            "Slack: Cannot connect to host h:443 ssl:default [refused]",
        ),
        (aiohttp.ConnectionTimeoutError("t"), Unavailable, _NO_ANSWER),
        (aiohttp.InvalidURL("x y"), Rejected, "Slack: x y"),
        (aiohttp.SocketTimeoutError("t"), Unconfirmed, _NO_ANSWER),
        (aiohttp.ClientError("cut"), Unconfirmed, "Slack: cut"),
        (aiohttp.ClientError(), Unconfirmed, "Slack: ClientError"),
        (TimeoutError("t"), Unconfirmed, _NO_ANSWER),
        (OSError(5, "io"), Unconfirmed, "Slack: [Errno 5] io"),
        (SlackClientError("odd"), Rejected, "Slack: odd"),
        (SlackRequestError("odd"), Rejected, "Slack: odd"),
        (AttributeError("a page of a proxy"), Unconfirmed, "Slack: a page of a proxy"),
    ],
)
def test_each_exception_becomes_its_contract_error(
    error: Exception, ours: type[PlatformError], message: str
) -> None:
    translated = translate_error(error)
    assert type(translated) is ours
    assert str(translated) == message
    assert getattr(translated, "retry_after", None) is None


def test_an_unknown_exception_is_raised_again() -> None:
    error = KeyError("x")
    with pytest.raises(KeyError) as raised:
        translate_error(error)
    assert raised.value is error


@pytest.mark.parametrize(
    ("error", "ours", "message"),
    [
        *(
            (_response(code), Unauthorized, f"Slack does not accept the token ({code})")
            for code in (
                "invalid_auth",
                "not_authed",
                "account_inactive",
                "token_revoked",
                "token_expired",
                "not_allowed_token_type",
                "app_uninstalled",
                "org_login_required",
            )
        ),
        (
            _response("invalid_auth", 503),
            Unauthorized,
            "Slack does not accept the token (invalid_auth)",
        ),
        *(
            (_response(code, status), Unavailable, f"Slack is not available ({shown})")
            for code, status, shown in (
                ("service_unavailable", 200, "service_unavailable"),
                ("external_channel_migrating", 200, "external_channel_migrating"),
                ("internal_error", 503, "internal_error"),
                ("no_text", 503, "no_text"),
                (None, 503, "503"),
            )
        ),
        *(
            (_response(code, status), Unconfirmed, f"Slack failed ({shown})")
            for code, status, shown in (
                ("internal_error", 200, "internal_error"),
                ("fatal_error", 200, "fatal_error"),
                ("request_timeout", 200, "request_timeout"),
                ("messaging_processing_failed", 200, "messaging_processing_failed"),
                (None, 500, "500"),
                ("", 200, "200"),
            )
        ),
        *(
            (_response(code, 500), ChatGone, f"Slack: {code}")
            for code in (
                "channel_not_found",
                "is_archived",
                "is_inactive",
                "not_in_channel",
                "cannot_dm_bot",
                "messages_tab_disabled",
                "restricted_action",
                "restricted_action_read_only_channel",
            )
        ),
    ],
)
def test_each_error_code_becomes_its_contract_error(
    error: SlackApiError, ours: type[PlatformError], message: str
) -> None:
    translated = translate_error(error)
    assert type(translated) is ours
    assert str(translated) == message
    assert getattr(translated, "retry_after", None) is None


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (_response("ratelimited", 429, {"Retry-After": "7"}), 7.0),
        (_response("x", 429, {"retry-after": "-1"}), 0.0),
        (_response(None, 429), 30.0),
        (_response("ratelimited"), 30.0),
        (_response("rate_limited", 200, {"Retry-After": "soon"}), 30.0),
        (_response("message_limit_exceeded"), 30.0),
    ],
)
def test_a_rate_limit_keeps_the_wait(error: SlackApiError, seconds: float) -> None:
    translated = translate_error(error)
    assert isinstance(translated, Unavailable)
    assert translated.retry_after == seconds
    assert str(translated) == "Slack has rate-limited this call."


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (_response("no_text"), "no_text", "Slack refused: no_text"),
        (
            _response("missing_scope", needed="chat:write"),
            "missing_scope",
            "Slack refused: missing_scope; the app needs the scope chat:write",
        ),
    ],
)
def test_any_other_code_is_a_refusal(error: SlackApiError, code: str, message: str) -> None:
    translated = translate_error(error)
    assert isinstance(translated, SlackRefusal)
    assert (translated.code, str(translated)) == (code, message)
