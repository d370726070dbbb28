"""Slack's Web API through slack-sdk: each call is made once and raises our errors."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from platforms.core.errors import Unavailable, Unconfirmed
from platforms.slack.errors import translate_error
from platforms.slack.rate_limit import SlackRateLimit
from sessions.values.clock import Clock
from sessions.values.secret import Secret

Json = dict[str, Any]

_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)

_NOT_URGENT = {
    "reactions.add",
    "reactions.remove",
    "reactions.get",
    "conversations.history",
    "conversations.replies",
    "users.info",
}
"""Methods kept strictly within the documented limits."""


class SlackClient:
    """Calls methods of the Web API by name, with one token."""

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
        # At debug level the library logs whole requests.
        self._client.logger.setLevel(max(self._client.logger.level, logging.INFO))

    @contextlib.asynccontextmanager
    async def open_session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Keep one HTTP session open inside the block."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            self._session = self._client.session = session
            try:
                yield session
            finally:
                self._session = self._client.session = None

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Yield the open session, or a new one for this block."""
        if self._session and not self._session.closed:
            yield self._session
            return
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            yield session

    async def call(self, method: str, *, about_channel: str = "", **arguments: Any) -> Json:  # noqa: ANN401
        """Call a method once.

        `about_channel` is the channel whose rate limit the call counts towards.
        """
        now = self.clock.monotonic()
        if wait := self.rate_limit.blocked_seconds(method, about_channel, now):
            msg = f"Slack has rate-limited {method}."
            raise Unavailable(msg, wait)
        if method in _NOT_URGENT and (wait := self.rate_limit.seconds_until_free(method, now)):
            msg = f"The limit of {method} per minute is used up."
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
            msg = f"Slack's answer to {method} is not JSON."
            raise Unconfirmed(msg)
        return data

    async def read(self, method: str, *, about_channel: str = "", **arguments: Any) -> Json:  # noqa: ANN401
        """Call a method that only reads, so an unconfirmed failure is raised as `Unavailable`."""
        try:
            async with asyncio.timeout(20):
                return await self.call(method, about_channel=about_channel, **arguments)
        except Unconfirmed as error:
            raise Unavailable(str(error)) from error
        except TimeoutError as error:
            msg = f"Slack did not answer {method}."
            raise Unavailable(msg) from error
