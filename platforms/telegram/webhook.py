"""Receives what Telegram sends us: answered with 200 once it is stored."""

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

CHECK_INTERVAL_SECONDS = 60.0
MAX_BODY_BYTES = 1_000_000
MAX_CONNECTIONS = 40

_HEADER = "x-telegram-bot-api-secret-token"

UpdatesHandler = Callable[[Sequence[bytes]], Awaitable[None]]


class Webhook:
    """One address on our HTTP port, and what Telegram knows of it."""

    def __init__(
        self, url: str, secret: str, *, check_seconds: float = CHECK_INTERVAL_SECONDS
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
        """Receive until cancelled; raises `Unavailable` when something else gets our messages."""
        self._broken.clear()
        with translate_errors():
            await bot.set_webhook(
                self._url,
                allowed_updates=UPDATE_TYPES,
                secret_token=self._secret,
                max_connections=MAX_CONNECTIONS,
                drop_pending_updates=False,
            )
        self._on_updates = on_updates
        try:
            ready()
            complained = 0
            while not await self._wait_broken(self._check_seconds):
                complained = await self._check_registration(bot, complained)
        finally:
            self._on_updates = None
        msg = "what came in could not be stored"
        raise Unavailable(msg)

    async def _wait_broken(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._broken.wait()
        except TimeoutError:
            return False

    async def _check_registration(self, bot: Bot, last_complaint: int) -> int:
        """Ask Telegram whether it still sends to us; gives when it last complained."""
        with translate_errors():
            info = await bot.get_webhook_info()
        if info.url != self._url:
            msg = "another program has changed where Telegram sends this bot's messages"
            raise Unavailable(msg)
        at = int(info.last_error_date.timestamp()) if info.last_error_date else 0
        if at > last_complaint:
            log.warning("Telegram cannot reach %s: %s", self._url, info.last_error_message)
        return max(at, last_complaint)

    async def _on_request(self, request: Request) -> Response:
        shown = request.headers.get(_HEADER, "")
        if not hmac.compare_digest(shown.encode(), self._secret.encode()):
            return Response(status_code=403)
        take = self._on_updates
        if take is None:
            return Response(status_code=503, headers={"retry-after": "5"})
        body = await request.body()
        if len(body) > MAX_BODY_BYTES:
            return Response(status_code=413)
        stored = False
        try:
            await take([body])
            stored = True
        finally:
            if not stored:  # pieces that were held must be read back from where they are kept
                self._broken.set()
        return Response(status_code=200)


def derive_secret(token: str) -> str:
    """Make the secret for which none is configured; it is the same at every start."""
    return hmac.new(token.encode(), b"holdfast webhook", hashlib.sha256).hexdigest()
