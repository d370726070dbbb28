"""Slack's Web API through its own client: one call, once, and errors of ours."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from platforms.slack.rate_limit import SlackRateLimit
from sessions.values.clock import Clock
from sessions.values.secret import Secret

_log = logging.getLogger(__name__)

Json = dict[str, Any]

_DEFAULT_RETRY_AFTER_SECONDS = 30.0  # when Slack does not say how long
_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)


class SlackRefusal(Rejected):
    """Slack said no."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


_LIMITED = {"ratelimited", "rate_limited", "message_limit_exceeded"}
_UNAVAILABLE = {"service_unavailable", "external_channel_migrating"}
_UNCONFIRMED = {"internal_error", "fatal_error", "request_timeout", "messaging_processing_failed"}
"""Of these Slack says that something may have been carried out all the same."""
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

_NOT_URGENT = {
    "reactions.add",
    "reactions.remove",
    "reactions.get",
    "conversations.history",
    "conversations.replies",
    "users.info",
}
"""These need not try whether Slack allows more than it says."""

_LIBRARY_ERRORS: tuple[tuple[type[BaseException], type[PlatformError]], ...] = (
    # The first that fits counts: what was surely not sent stands before what may have been.
    (aiohttp.ClientConnectorError, Unavailable),
    (aiohttp.ConnectionTimeoutError, Unavailable),
    (aiohttp.InvalidURL, Rejected),
    (aiohttp.ClientError, Unconfirmed),
    (TimeoutError, Unconfirmed),
    (OSError, Unconfirmed),
    (SlackClientError, Rejected),
    # The client trips over a page of plain text that some proxy sent in Slack's place.
    (AttributeError, Unconfirmed),
)


def translate_error(error: BaseException) -> PlatformError:
    """Say in our words what went wrong."""
    if isinstance(error, SlackApiError):
        return _response_error(error)
    for foreign, ours in _LIBRARY_ERRORS:
        if isinstance(error, foreign):
            return ours(_describe(error))
    raise error


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError):  # it has no words of its own
        return "Slack did not answer in time"
    return f"Slack: {str(error) or type(error).__name__}"


def _response_error(error: SlackApiError) -> PlatformError:
    response = error.response
    status = getattr(response, "status_code", 0)
    data = getattr(response, "data", None)
    answer: Json = data if isinstance(data, dict) else {}
    code = str(answer.get("error") or "")
    if status == 429 or code in _LIMITED:  # noqa: PLR2004 - the status has no better name
        return Unavailable("Slack asks us to be slower.", retry_after(response.headers))
    if code in _CREDENTIALS:
        return Unauthorized(f"Slack does not accept the token ({code})")
    if code in _UNAVAILABLE or status == 503:  # noqa: PLR2004
        return Unavailable(f"Slack cannot take this now ({code or status})")
    if not code or code in _UNCONFIRMED:
        return Unconfirmed(f"Slack failed ({code or status})")
    if code in _CHAT_GONE:
        return ChatGone(f"Slack: {code}")
    hint = answer.get("needed")
    return SlackRefusal(
        code, f"Slack refused: {code}" + (f", it needs the scope {hint}" if hint else "")
    )


def retry_after(headers: Any) -> float:  # noqa: ANN401 - a mapping of the library
    """Read for how many seconds Slack wants to be left alone."""
    for name, value in dict(headers or {}).items():
        if str(name).lower() == "retry-after":
            with contextlib.suppress(ValueError):
                return max(0.0, float(value))
    return _DEFAULT_RETRY_AFTER_SECONDS


class SlackClient:
    """Calls methods by name under one token."""

    def __init__(self, bot_token: Secret, base_url: str, clock: Clock) -> None:
        self.token = bot_token
        self.base_url = base_url if base_url.endswith("/") else f"{base_url}/"
        self.rate_limit = SlackRateLimit()
        self.clock = clock
        self._session: aiohttp.ClientSession | None = None
        # No retry handlers: the default one posts twice when a connection is cut after the post.
        self._client = AsyncWebClient(
            bot_token.reveal(), self.base_url, timeout=30, retry_handlers=[]
        )
        # The library logs whole requests where everything is logged.
        self._client.logger.setLevel(max(self._client.logger.level, logging.INFO))

    @contextlib.asynccontextmanager
    async def open_session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Keep connections open inside of the block."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            self._session = self._client.session = session
            try:
                yield session
            finally:
                self._session = self._client.session = None

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Give the open session, or one for this block alone."""
        if self._session and not self._session.closed:
            yield self._session
            return
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            yield session

    async def call(self, method: str, *, about_channel: str = "", **arguments: Any) -> Json:  # noqa: ANN401
        """Call a method once; `where` is the channel it is about."""
        now = self.clock.monotonic()
        if wait := self.rate_limit.blocked_seconds(method, about_channel, now):
            msg = f"Slack asked us to be slower with {method}."
            raise Unavailable(msg, wait)
        if method in _NOT_URGENT and (wait := self.rate_limit.seconds_until_free(method, now)):
            msg = f"Slack takes {method} only so often a minute."
            raise Unavailable(msg, wait)
        self.rate_limit.record_call(method, now)
        try:
            response = await getattr(self._client, method.replace(".", "_"))(**arguments)
            data = response.data
        except (SlackClientError, aiohttp.ClientError, OSError, AttributeError) as error:
            ours = translate_error(error)
            if isinstance(ours, Unavailable) and ours.retry_after is not None:
                until = self.clock.monotonic() + ours.retry_after
                self.rate_limit.block(method, about_channel, until)
            raise ours from error
        if not isinstance(data, dict):
            msg = f"Slack answered {method} with something else than JSON."
            raise Unconfirmed(msg)
        return data

    async def read(self, method: str, *, about_channel: str = "", **arguments: Any) -> Json:  # noqa: ANN401
        """Call a method that changes nothing: whatever went wrong, it can be called again."""
        try:
            async with asyncio.timeout(20):
                return await self.call(method, about_channel=about_channel, **arguments)
        except Unconfirmed as error:
            raise Unavailable(str(error)) from error
        except TimeoutError as error:
            msg = f"Slack did not answer {method}."
            raise Unavailable(msg) from error
