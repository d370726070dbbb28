"""Webhook receiver; answers Telegram with 200 only after the update is stored."""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from telegram import Bot

from platforms.core.errors import Unavailable
from platforms.telegram.errors import translate_errors
from platforms.telegram.payloads import UPDATE_TYPES

log = logging.getLogger(__name__)

_CHECK_INTERVAL_SECONDS = 60.0
_MAX_BODY_BYTES = 1_000_000
_MAX_CONNECTIONS = 40

_HEADER = "x-telegram-bot-api-secret-token"

UpdatesHandler = Callable[[Sequence[bytes]], Awaitable[None]]


class Webhook:
    """One route on the gateway's HTTP port and its registration with Telegram."""

    def __init__(
        self, url: str, secret: str, *, check_seconds: float = _CHECK_INTERVAL_SECONDS
    ) -> None:
        self._url = url
        self._secret = secret
        self._check_seconds = check_seconds
        self._on_updates: UpdatesHandler | None = None  # while connected
        self._broken = asyncio.Event()

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        return [Route(urlsplit(self._url).path or "/", self._on_request, methods=["POST"])]

    def hosts(self) -> Sequence[str]:
        """See `OffersHosts`."""
        name = urlsplit(self._url).hostname or ""
        return [f"[{name}]" if ":" in name else name]

    async def run(self, bot: Bot, on_updates: UpdatesHandler, ready: Callable[[], None]) -> None:
        """Register the webhook and receive until cancelled.

        Raises `Unavailable` when another program changes the registration or an update could not
        be stored.
        """
        self._broken.clear()
        with translate_errors():
            await bot.set_webhook(
                self._url,
                allowed_updates=UPDATE_TYPES,
                secret_token=self._secret,
                max_connections=_MAX_CONNECTIONS,
                drop_pending_updates=False,
            )
        self._on_updates = on_updates
        try:
            ready()
            reported_at = 0
            while not await self._wait_broken(self._check_seconds):
                reported_at = await self._check_registration(bot, reported_at)
        finally:
            self._on_updates = None
        msg = "an update from Telegram could not be stored"
        raise Unavailable(msg)

    async def _wait_broken(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._broken.wait()
        except TimeoutError:
            return False

    async def _check_registration(self, bot: Bot, reported_at: int) -> int:
        """Verify the registration and log new delivery errors; return the time of the newest."""
        with translate_errors():
            info = await bot.get_webhook_info()
        if info.url != self._url:
            msg = "another program replaced this bot's Telegram webhook"
            raise Unavailable(msg)
        at = int(info.last_error_date.timestamp()) if info.last_error_date else 0
        if at > reported_at:
            log.warning(
                "telegram: Telegram cannot reach %s: %s", self._url, info.last_error_message
            )
        return max(at, reported_at)

    async def _on_request(self, request: Request) -> Response:
        secret = request.headers.get(_HEADER, "")
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            return Response(status_code=403)
        on_updates = self._on_updates
        if on_updates is None:
            return Response(status_code=503, headers={"retry-after": "5"})
        body = await request.body()
        if len(body) > _MAX_BODY_BYTES:
            return Response(status_code=413)
        stored = False
        try:
            await on_updates([body])
            stored = True
        finally:
            if not stored:  # restart the adapter, so that held pieces are reloaded from the shelf
                self._broken.set()
        return Response(status_code=200)


def derive_secret(token: str) -> str:
    """Derive a webhook secret from the token; the same token always gives the same secret."""
    return hmac.new(token.encode(), b"holdfast webhook", hashlib.sha256).hexdigest()
