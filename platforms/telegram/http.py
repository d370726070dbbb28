"""HTTP layer for python-telegram-bot over aiohttp.

The library's own httpx client needs four times as long per request, and its cost grows with the
number of concurrent requests, because it scans all connections for each request.
"""

import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import getproxies

import aiohttp
import httpx
import msgspec
from telegram.error import NetworkError, TelegramError, TimedOut
from telegram.request import BaseRequest, RequestData

from platforms.telegram.payloads import RateLimitError, UpdatesEnvelope

_MAX_CONNECTIONS = 256

_CONNECT_TIMEOUT_SECONDS = 10.0
READ_TIMEOUT_SECONDS = 30.0
_POOL_TIMEOUT_SECONDS = 60.0

_KEEPALIVE_SECONDS = 30.0
_LIBRARY_DEFAULT = BaseRequest.DEFAULT_NONE
_NOT_IN_NAMES = {ord(sign): quote(sign) for sign in ('"', *map(chr, range(32)))}
"""Characters that would break a multipart file name, percent-encoded as browsers do."""

_MAX_BLOCKED = 1_000
_read_envelope = msgspec.json.Decoder(UpdatesEnvelope).decode
_read_json = msgspec.json.Decoder().decode
_read_refusal = msgspec.json.Decoder(RateLimitError).decode


class TooManyRequests(TelegramError):
    """Telegram answered 429; `seconds` is the wait it asks for.

    Raised before the library can raise `RetryAfter`, whose `retry_after` emits a deprecation
    warning.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram asks to wait {seconds:g} s")
        self.seconds = seconds


def create_ssl_context(base_url: str) -> ssl.SSLContext | bool:
    """Return the TLS context for all connections, or False for plain http.

    Loading the certificates dominates the start time, so share one context.
    """
    if not base_url.startswith("https"):
        return False
    return httpx.create_ssl_context()  # the same certificates as the library's client


class AiohttpRequest(BaseRequest):
    """Request backend of the library; opens its session on first use and again after `shutdown`.

    After a 429 for a chat, every call about this chat raises `TooManyRequests` until the wait is
    over, because typing indicators and membership lookups bypass the delivery queue's rate limit.
    """

    __slots__ = ("_blocked", "_client", "_most", "_now", "_trusted")

    def __init__(
        self,
        trusted: ssl.SSLContext | bool,
        now: Callable[[], float],
        most: int = _MAX_CONNECTIONS,
    ) -> None:
        self._trusted = trusted
        self._now = now  # monotonic
        self._most = most
        self._blocked: dict[str, float] = {}  # end of the block by chat, or by method without chat
        self._client: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float | None:
        """See `BaseRequest`."""
        return READ_TIMEOUT_SECONDS

    async def initialize(self) -> None:
        """See `BaseRequest`. Does nothing, because connections open on demand."""

    async def shutdown(self) -> None:
        """See `BaseRequest`."""
        client, self._client = self._client, None
        if client:
            await client.close()

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = _LIBRARY_DEFAULT,  # noqa: ANN401 - a number, None, or the library's marker
        write_timeout: Any = _LIBRARY_DEFAULT,  # noqa: ANN401, ARG002 - the caller limits the whole op
        connect_timeout: Any = _LIBRARY_DEFAULT,  # noqa: ANN401
        pool_timeout: Any = _LIBRARY_DEFAULT,  # noqa: ANN401
    ) -> tuple[int, bytes]:
        """See `BaseRequest`; raises `TooManyRequests`."""
        chat = request_data.parameters.get("chat_id", "") if request_data else ""
        target = str(chat) or url.rpartition("/")[2]
        remaining = self._blocked.get(target, 0.0) - self._now()
        if remaining > 0:
            raise TooManyRequests(remaining)
        timeout = aiohttp.ClientTimeout(
            total=None,
            connect=_timeout(pool_timeout, _POOL_TIMEOUT_SECONDS),
            sock_connect=_timeout(connect_timeout, _CONNECT_TIMEOUT_SECONDS),
            sock_read=_timeout(read_timeout, READ_TIMEOUT_SECONDS),
        )
        try:
            async with self._get_session().request(
                method,
                url,
                data=_request_body(request_data) if request_data else None,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                status, payload = answer.status, await answer.read()
        except TimeoutError as error:
            raise TimedOut from error
        except (aiohttp.ClientError, OSError) as error:
            # Only the type: the message may contain the URL, which contains the token.
            raise NetworkError(type(error).__name__) from error
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            seconds = _retry_after(payload)
            self._block(target, seconds)
            raise TooManyRequests(seconds)
        return status, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Return the decoded response; raise `TelegramError` for anything but a JSON object.

        A proxy in between may answer with an HTML error page.
        """
        try:
            answer = _read_json(payload)
        except msgspec.DecodeError as error:
            msg = "Invalid server response"
            raise TelegramError(msg) from error
        if not isinstance(answer, dict):
            msg = "Invalid server response"
            raise TelegramError(msg)
        return answer

    def _block(self, target: str, seconds: float) -> None:
        now = self._now()
        if len(self._blocked) >= _MAX_BLOCKED:
            self._blocked = {key: end for key, end in self._blocked.items() if end > now}
        self._blocked[target] = max(now + seconds, self._blocked.get(target, 0.0))

    def _get_session(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = create_session(self._trusted, self._most)
        return self._client


def create_session(
    ssl_context: ssl.SSLContext | bool, max_connections: int
) -> aiohttp.ClientSession:
    """Return a client session with at most `max_connections`; the caller closes it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=max_connections, keepalive_timeout=_KEEPALIVE_SECONDS, ssl=ssl_context or True
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=bool(getproxies()),  # without proxies, skip aiohttp's lookup on every request
    )


def _timeout(given: Any, default: float) -> float | None:  # noqa: ANN401
    return default if given is _LIBRARY_DEFAULT else given


def _request_body(data: RequestData) -> aiohttp.BytesPayload | aiohttp.FormData:
    if not data.contains_files:
        return aiohttp.BytesPayload(
            urlencode(data.json_parameters).encode(),
            content_type="application/x-www-form-urlencoded",
        )
    form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, media_type) in data.multipart_data.items():
        escaped = filename.translate(_NOT_IN_NAMES)
        form.add_field(name, content, filename=escaped, content_type=media_type)
    return form


def _retry_after(payload: bytes) -> float:
    try:
        refusal = _read_refusal(payload)
    except msgspec.DecodeError:
        refusal = RateLimitError()
    return float(refusal.parameters.retry_after)


class UpdatesRequest(AiohttpRequest):
    """Request backend for getUpdates that returns each update undecoded.

    Decoding the whole batch at once would let one malformed update block its batch permanently.
    """

    __slots__ = ()

    def __init__(self, trusted: ssl.SSLContext | bool, now: Callable[[], float]) -> None:
        super().__init__(trusted, now, 2)

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
