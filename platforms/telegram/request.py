"""The library's HTTP layer: connections in several pools, and updates that stay unread.

One pool for all chats would cost more with every request that is under way: the HTTP client walks
through all of a pool's connections for each.
"""

import ssl
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
from telegram.error import TelegramError
from telegram.request import BaseRequest, HTTPXRequest, RequestData

from platforms.telegram.wire import Envelope, Refusal

POOLS = 8
POOL_SIZE = 32

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
UPLOAD_SECONDS = 600.0
POOL_SECONDS = 60.0

_KEEPALIVE = 30.0
_MOST_BLOCKED = 1_000
_read_envelope = msgspec.json.Decoder(Envelope).decode
_read_json = msgspec.json.Decoder().decode
_read_refusal = msgspec.json.Decoder(Refusal).decode


class TooMany(TelegramError):
    """Telegram asks to wait.

    Raised here before the library raises its own, which warns that its attributes will change.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram asks to wait {seconds:g} s")
        self.seconds = seconds


def trust(base_url: str) -> ssl.SSLContext | bool:
    """Read the certificates once for all connections; that takes longer than all the rest."""
    return httpx.create_ssl_context() if base_url.startswith("https") else False


class _Pool(HTTPXRequest):
    """Connections of one pool."""

    __slots__ = ()

    def __init__(self, trusted: ssl.SSLContext | bool, size: int) -> None:
        limits = httpx.Limits(
            max_connections=size, max_keepalive_connections=size, keepalive_expiry=_KEEPALIVE
        )
        super().__init__(
            connection_pool_size=size,
            read_timeout=ANSWER_SECONDS,
            write_timeout=ANSWER_SECONDS,
            connect_timeout=CONNECT_SECONDS,
            pool_timeout=POOL_SECONDS,
            media_write_timeout=UPLOAD_SECONDS,
            httpx_kwargs={"limits": limits, "verify": trusted},
        )

    async def do_request(self, *args: Any, **more: Any) -> tuple[int, bytes]:  # noqa: ANN401
        """See `BaseRequest`; raises `TooMany`."""
        status, payload = await super().do_request(*args, **more)
        if status == httpx.codes.TOO_MANY_REQUESTS:
            try:
                refusal = _read_refusal(payload)
            except msgspec.DecodeError:
                refusal = Refusal()
            raise TooMany(float(refusal.parameters.retry_after))
        return status, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Read an answer; a gateway's HTML page is no answer of Telegram's."""
        try:
            answer = _read_json(payload)
        except msgspec.DecodeError as error:
            msg = "Invalid server response"
            raise TelegramError(msg) from error
        if not isinstance(answer, dict):
            msg = "Invalid server response"
            raise TelegramError(msg)
        return answer


class Pools(BaseRequest):
    """Several pools; what belongs to one chat uses one of them.

    Whatever met a 429 in a chat, nothing more is sent about this chat before its time is over:
    signs and questions about members do not go through the budget that the gateway keeps.
    """

    __slots__ = ("_blocked", "_count", "_now", "_pools", "_trusted")

    def __init__(
        self, trusted: ssl.SSLContext | bool, now: Callable[[], float], count: int = POOLS
    ) -> None:
        self._now = now  # monotonic
        self._blocked: dict[str, float] = {}  # chats, or methods that are about none
        self._trusted = trusted
        self._count = count
        self._pools: dict[int, HTTPXRequest] = {}  # made when first used

    @property
    def read_timeout(self) -> float | None:
        """See `BaseRequest`."""
        return ANSWER_SECONDS

    async def initialize(self) -> None:
        """See `BaseRequest`. A pool opens its connections when they are needed."""

    async def shutdown(self) -> None:
        """See `BaseRequest`."""
        for pool in list(self._pools.values()):
            await pool.shutdown()
        self._pools.clear()

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """See `_Pool`."""
        return _Pool.parse_json_payload(payload)

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        *args: Any,  # noqa: ANN401 - timeouts, passed on as they are
        **timeouts: Any,  # noqa: ANN401
    ) -> tuple[int, bytes]:
        """See `BaseRequest`."""
        chat = request_data.parameters.get("chat_id", "") if request_data else ""
        number = zlib.crc32(str(chat).encode()) % self._count
        pool = self._pools.get(number)
        if pool is None:
            pool = self._pools[number] = _Pool(self._trusted, POOL_SIZE)
        what = str(chat) or url.rpartition("/")[2]
        left = self._blocked.get(what, 0.0) - self._now()
        if left > 0:
            raise TooMany(left)
        try:
            return await pool.do_request(url, method, request_data, *args, **timeouts)
        except TooMany as error:
            self._block(what, error.seconds)
            raise

    def _block(self, what: str, seconds: float) -> None:
        now = self._now()
        if len(self._blocked) >= _MOST_BLOCKED:
            self._blocked = {key: end for key, end in self._blocked.items() if end > now}
        self._blocked[what] = max(now + seconds, self._blocked.get(what, 0.0))


class Updates(_Pool):
    """The connection on which updates come; they are handed on unread, one by one.

    One that cannot be read would otherwise make all that came with it unreadable, for ever.
    """

    __slots__ = ()

    def __init__(self, trusted: ssl.SSLContext | bool) -> None:
        super().__init__(trusted, 2)

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """See `BaseRequest`."""
        try:
            envelope = _read_envelope(payload)
        except msgspec.DecodeError as error:
            msg = "Invalid server response"
            raise TelegramError(msg) from error
        return {
            "result": envelope.result,
            "description": envelope.description,
            "parameters": envelope.parameters,
        }
