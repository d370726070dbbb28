"""Translation of errors of Slack and slack-sdk to those of `platforms.core.errors`."""

import contextlib
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

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
    """Slack refused a call with the error `code`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


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

_LIBRARY_ERRORS: tuple[tuple[type[BaseException], type[PlatformError]], ...] = (
    # The first match counts, so errors before sending come before errors of unknown outcome.
    (aiohttp.ClientConnectorError, Unavailable),
    (aiohttp.ConnectionTimeoutError, Unavailable),
    (aiohttp.InvalidURL, Rejected),
    (aiohttp.ClientError, Unconfirmed),
    (TimeoutError, Unconfirmed),
    (OSError, Unconfirmed),
    (SlackClientError, Rejected),
    # Raised by the client when a proxy answers with a page of text in place of Slack.
    (AttributeError, Unconfirmed),
)


def translate_error(error: BaseException) -> PlatformError:
    """Return the platform error for an error of the library; raise unknown errors again."""
    if isinstance(error, SlackApiError):
        return _response_error(error)
    for foreign, ours in _LIBRARY_ERRORS:
        if isinstance(error, foreign):
            return ours(_describe(error))
    raise error


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError):  # has no message
        return "Slack did not answer in time"
    return f"Slack: {str(error) or type(error).__name__}"


def _response_error(error: SlackApiError) -> PlatformError:
    response = error.response
    status = getattr(response, "status_code", 0)
    data = getattr(response, "data", None)
    answer: dict[str, Any] = data if isinstance(data, dict) else {}
    code = str(answer.get("error") or "")
    if status == 429 or code in _LIMITED:  # noqa: PLR2004 - the status has no better name
        return Unavailable("Slack has rate-limited this call.", retry_after(response.headers))
    if code in _CREDENTIALS:
        return Unauthorized(f"Slack does not accept the token ({code})")
    if code in _UNAVAILABLE or status == 503:  # noqa: PLR2004
        return Unavailable(f"Slack is not available ({code or status})")
    if not code or code in _UNCONFIRMED:
        return Unconfirmed(f"Slack failed ({code or status})")
    if code in _CHAT_GONE:
        return ChatGone(f"Slack: {code}")
    hint = answer.get("needed")
    return SlackRefusal(
        code, f"Slack refused: {code}" + (f"; the app needs the scope {hint}" if hint else "")
    )


def retry_after(headers: Any) -> float:  # noqa: ANN401 - a mapping of the library
    """Return the seconds of the Retry-After header, or a default."""
    for name, value in dict(headers or {}).items():
        if str(name).lower() == "retry-after":
            with contextlib.suppress(ValueError):
                return max(0.0, float(value))
    return _DEFAULT_RETRY_AFTER_SECONDS
