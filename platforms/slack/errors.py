"""Translation of errors of Slack and slack-sdk to those of `platforms.core.errors`."""

import contextlib
import re
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

from platforms.core.error_table import ErrorRow, FailedCall, translate
from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)

_DEFAULT_RETRY_AFTER_SECONDS = 30.0  # when Slack does not say how long


class SlackRefusal(Rejected):
    """Slack refused a call in a chat that exists; `code` is Slack's error."""


_LIMITED = {"ratelimited", "rate_limited", "message_limit_exceeded"}
_UNAVAILABLE = {"service_unavailable", "external_channel_migrating"}
_UNCONFIRMED = {"internal_error", "fatal_error", "request_timeout", "messaging_processing_failed"}
"""Codes after which the call may have taken effect, according to Slack's documentation."""
_CREDENTIALS = {
    "invalid_auth",
    "not_authed",
    "account_inactive",
    "token_revoked",
    "token_expired",
    "not_allowed_token_type",
    "app_uninstalled",
    "org_login_required",
}
_CHAT_GONE = {
    "channel_not_found",
    "is_archived",
    "is_inactive",
    "not_in_channel",
    "cannot_dm_bot",
    "messages_tab_disabled",
    "restricted_action",
    "restricted_action_read_only_channel",
}

_NO_ANSWER = "Slack did not answer in time"  # errors of timeouts have no message
_RATE_LIMITED = "Slack has rate-limited this call."
_REFUSED = "Slack refused: {code}"

_RESPONSES = (
    ErrorRow(Unavailable, _RATE_LIMITED, status={429}, keeps_wait=True),
    ErrorRow(Unavailable, _RATE_LIMITED, code=_LIMITED, keeps_wait=True),
    ErrorRow(Unauthorized, "Slack does not accept the token ({code})", code=_CREDENTIALS),
    ErrorRow(Unavailable, "Slack is not available ({code})", code=_UNAVAILABLE),
    ErrorRow(Unavailable, "Slack is not available ({code_or_status})", status={503}),
    ErrorRow(Unconfirmed, "Slack failed ({code_or_status})", code={"", *_UNCONFIRMED}),
    ErrorRow(ChatGone, "Slack: {code}", code=_CHAT_GONE),
    ErrorRow(SlackRefusal, f"{_REFUSED}; the app needs the scope {{text}}", text=re.compile(".")),
    ErrorRow(SlackRefusal, _REFUSED),
)

_EXCEPTIONS = (
    # Errors before sending come before errors of unknown outcome.
    ErrorRow(Unavailable, "Slack: {reason}", aiohttp.ClientConnectorError),
    ErrorRow(Unavailable, _NO_ANSWER, aiohttp.ConnectionTimeoutError),
    ErrorRow(Rejected, "Slack: {reason}", aiohttp.InvalidURL),
    ErrorRow(Unconfirmed, _NO_ANSWER, TimeoutError),
    ErrorRow(Unconfirmed, "Slack: {reason}", (aiohttp.ClientError, OSError)),
    ErrorRow(Rejected, "Slack: {reason}", SlackClientError),
    # Raised by the client when a proxy answers with a page of text in place of Slack.
    ErrorRow(Unconfirmed, "Slack: {reason}", AttributeError),
)


def translate_error(error: BaseException) -> PlatformError:
    """Return the contract's error for an exception; raise unknown exceptions again."""
    if isinstance(error, SlackApiError):
        return translate(_RESPONSES, _read_response(error))
    return translate(_EXCEPTIONS, FailedCall(error=error))


def _read_response(error: SlackApiError) -> FailedCall:
    response = error.response
    data = getattr(response, "data", None)
    answer: dict[str, Any] = data if isinstance(data, dict) else {}
    return FailedCall(
        error=error,
        status=getattr(response, "status_code", 0),
        code=str(answer.get("error") or ""),
        text=str(answer.get("needed") or ""),
        retry_after=retry_after(getattr(response, "headers", None)),
    )


def retry_after(headers: Any) -> float:  # noqa: ANN401 - a mapping of the library
    """Return the seconds of the Retry-After header, or a default."""
    for name, value in dict(headers or {}).items():
        if str(name).lower() == "retry-after":
            with contextlib.suppress(ValueError):
                return max(0.0, float(value))
    return _DEFAULT_RETRY_AFTER_SECONDS
