"""Library client for one gateway socket and REST calls, with the adapter's own rate limit.

The library maintains the socket: heartbeats, resume and identify. Frames are handed over raw and in
order, without the library's caches and per-event tasks.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from platforms.core.errors import PlatformError, Unauthorized, Unavailable
from platforms.discord.errors import error_for_response, translate_errors
from platforms.discord.rate_limit import RestRateLimit, RouteBucket
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_SECONDS = 55.0
"""Seconds without any frame, heartbeat acknowledgements included, after which a socket is dead."""

RECONNECT_TIMEOUT_SECONDS = 60.0
"""Time limit for the library's reconnect; afterwards the adapter starts over with a new client."""

_MAX_RECONNECTS, _RECONNECT_WINDOW_SECONDS = 10, 60.0
"""Connections within the window after which the adapter starts over, because the library answers a
request to reconnect at once, however often it comes."""

REIDENTIFY_SECONDS = 5.0
"""Discord's minimum pause between two IDENTIFY calls."""

_PUBLIC_API_URL = "https://discord.com/api/v10"
_CLOSE_TIMEOUT_SECONDS = 5.0
_SOCKET_CLOSE_TIMEOUT_SECONDS = 2.0
_NOT_RATE_LIMITED: ContextVar[bool] = ContextVar("unpaced", default=False)
_TOO_MANY_REQUESTS = 429


def _without_traceback(record: logging.LogRecord) -> bool:
    """Drop the traceback that the library logs at every reconnect attempt."""
    record.exc_info = None
    return True


logging.getLogger("discord.client").addFilter(_without_traceback)


class _DiscordSocket(discord.gateway.DiscordClientWebSocketResponse):
    """The library's socket, without its 30-second wait for a close frame from a silent server."""

    async def close(self, *, code: int = 4000, message: bytes = b"") -> bool:
        """See the library."""
        try:
            async with asyncio.timeout(_SOCKET_CLOSE_TIMEOUT_SECONDS):
                return await super().close(code=code, message=message)
        except TimeoutError:
            return True


discord.http.DiscordClientWebSocketResponse = _DiscordSocket  # type: ignore[attr-defined]


class DiscordClient(discord.Client):
    """The library's client with caches and event parsers switched off.

    `on_frame` receives every raw gateway frame; `rate_limit` paces all REST calls.
    """

    def __init__(
        self,
        clock: Clock,
        on_frame: Callable[[str], None],
        *,
        heartbeat_timeout_seconds: float,
        reidentify_seconds: float,
    ) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # voice is not used
        intents = discord.Intents.none()
        intents.guilds = True
        intents.messages = True
        intents.message_content = True
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._check_response)
        super().__init__(
            intents=intents,
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0.0,
            heartbeat_timeout=heartbeat_timeout_seconds,
            enable_debug_events=True,  # dispatches raw frames
            http_trace=trace,
            allowed_mentions=discord.AllowedMentions.none(),
        )
        for event in set(self._connection.parsers) - {"READY", "RESUMED"}:
            del self._connection.parsers[event]  # these parsers only fill caches
        self.http.get_ratelimit = self._create_limiter  # type: ignore[method-assign, assignment]
        self.disconnected = asyncio.Event()
        self.reconnected = asyncio.Event()
        self._connected_at: deque[float] = deque(maxlen=_MAX_RECONNECTS + 1)
        self.rate_limit = RestRateLimit(clock.monotonic())
        self._send_lock = asyncio.Lock()
        self._clock = clock
        self._on_frame = on_frame
        self._reidentify_seconds = reidentify_seconds

    # --- the gateway -------------------------------------------------------------------------

    def dispatch(self, event: str, /, *args: Any, **_: Any) -> None:  # noqa: ANN401 - the library's
        """Handle the library's events synchronously instead of in a task for each event."""
        if event == "socket_raw_receive":
            self._on_frame(args[0])
        elif event == "disconnect":
            self.reconnected.clear()
            self.disconnected.set()
        elif event in {"connect", "resumed"}:
            if event == "connect":
                self._connected_at.append(self._clock.monotonic())
            self.disconnected.clear()
            self.reconnected.set()

    async def before_identify_hook(self, _shard_id: int | None, *, initial: bool = False) -> None:
        """See the library."""
        if not initial:
            await asyncio.sleep(self._reidentify_seconds)

    async def stay_connected(self) -> None:
        """Run the gateway connection until it is lost permanently; always raises a platform error."""
        with translate_errors():
            try:
                await self.connect(reconnect=True)
            except AttributeError as error:
                socket: object = self.ws
                if socket is not None:
                    raise
                # discord.py accesses its unset socket when the first connection attempt fails.
                msg = "Discord's gateway cannot be reached"
                raise Unavailable(msg) from error
        msg = "the connection to Discord's gateway ended"
        raise Unavailable(msg)

    async def raise_when_lost(self, seconds: float) -> None:
        """Raise `Unavailable` after `seconds` without a gateway; the library retries forever.

        Also raises it after many connections in a row that ended soon.
        """
        while True:
            await self.disconnected.wait()
            oldest = self._clock.monotonic() - _RECONNECT_WINDOW_SECONDS
            if len(self._connected_at) > _MAX_RECONNECTS and self._connected_at[0] > oldest:
                msg = "Discord keeps closing the connection"
                raise Unavailable(msg)
            try:
                async with asyncio.timeout(seconds):
                    await self.reconnected.wait()
            except TimeoutError:
                msg = f"Discord's gateway has been gone for {seconds:g} s"
                raise Unavailable(msg) from None

    # --- REST --------------------------------------------------------------------------------

    def _create_limiter(self, key: str) -> "_RequestLimiter":
        if _NOT_RATE_LIMITED.get():
            return _RequestLimiter(self.rate_limit, RouteBucket(), None, self._clock)
        return _RequestLimiter(
            self.rate_limit, self.rate_limit.bucket(key), self._send_lock, self._clock
        )

    async def _check_response(
        self,
        _session: aiohttp.ClientSession,
        _context: object,
        params: aiohttp.TraceRequestEndParams,
    ) -> None:
        """Raise for responses that the library would otherwise wait out or retry itself."""
        response = params.response
        if "Upgrade" in params.headers:
            return  # the gateway socket, which the library may retry
        if response.status == _TOO_MANY_REQUESTS:
            answer = await _read_json(response)
            seconds = _retry_after(response, answer)
            everything = bool(answer.get("global")) or "Via" not in response.headers
            if everything or response.headers.get("X-RateLimit-Global"):
                self.rate_limit.block(seconds, self._clock.monotonic())
            msg = f"Discord asks to wait {seconds:g} s (too many requests)"
            raise Unavailable(msg, seconds)
        if response.status >= 500:  # noqa: PLR2004 - HTTP
            answer = await _read_json(response)
            raise error_for_response(response.status, 0, str(answer.get("message", "")))


class _RequestLimiter:
    """Context manager that the library enters around every call; applies `RestRateLimit`."""

    remaining = 0  # read by the library only after a 429, which `_check_response` raises first

    def __init__(
        self,
        rate_limit: RestRateLimit,
        bucket: RouteBucket,
        send_lock: asyncio.Lock | None,
        clock: Clock,
    ) -> None:
        self._rate_limit = rate_limit
        self._bucket = bucket
        self._send_lock = send_lock  # None: the call is not counted and goes out at once
        self._clock = clock

    async def __aenter__(self) -> Self:
        if self._send_lock is None:
            return self
        now = self._clock.monotonic()
        blocked = self._rate_limit.blocked_seconds(now)
        if blocked:
            msg = f"Discord refuses all requests for another {blocked:.1f} s"
            raise Unavailable(msg, blocked)
        await self._sleep_until(self._bucket.wait_seconds)
        self._bucket.take()
        with self._rate_limit.queued():
            async with self._send_lock:  # first in, first out
                await self._sleep_until(self._rate_limit.wait_seconds)
                self._rate_limit.take(self._clock.monotonic())
        return self

    async def _sleep_until(self, wait: Callable[[float], float]) -> None:
        """Sleep until `wait` returns 0; checks again because another call may have been faster."""
        seconds = wait(self._clock.monotonic())
        while seconds:
            await asyncio.sleep(seconds)
            seconds = wait(self._clock.monotonic())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def update(self, response: aiohttp.ClientResponse, *, use_clock: bool = False) -> None:
        """Update the bucket from a response's headers; called by the library."""
        remaining = response.headers.get("X-RateLimit-Remaining")
        reset_after = response.headers.get("X-RateLimit-Reset-After")
        if remaining is not None and reset_after is not None and not use_clock:
            self._bucket.update(int(remaining), float(reset_after), self._clock.monotonic())


async def _read_json(response: aiohttp.ClientResponse) -> dict[str, Any]:
    try:
        answer = await response.json(content_type=None)
    except (aiohttp.ClientError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _retry_after(response: aiohttp.ClientResponse, answer: dict[str, Any]) -> float:
    seconds = answer.get("retry_after", response.headers.get("Retry-After", 1.0))
    try:
        return max(0.0, float(seconds))
    except (TypeError, ValueError):
        return 1.0


@contextmanager
def without_rate_limit() -> Iterator[None]:
    """Exempt calls in the block from the rate limit: interaction responses, due within 3 seconds."""
    token = _NOT_RATE_LIMITED.set(True)
    try:
        yield
    finally:
        _NOT_RATE_LIMITED.reset(token)


# --- opening and closing -------------------------------------------------------------------------


@asynccontextmanager
async def open_session(client: DiscordClient, token: str, base_url: str) -> AsyncIterator[None]:
    """Log in and find the gateway's URL; close the client when the block ends."""
    Route.BASE = base_url.rstrip("/")
    try:
        with translate_errors():
            await client.login(token)
        DiscordWebSocket.DEFAULT_GATEWAY = await _find_gateway_url(client, base_url)
        yield
    finally:
        await close_client(client)


async def close_client(client: DiscordClient) -> None:
    """Close the gateway socket and the REST session; a second call does nothing."""
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
            await client.close()
    except TimeoutError:
        log.warning("discord: the connection did not close within %g s", _CLOSE_TIMEOUT_SECONDS)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise
        # Otherwise an earlier cancellation of the library's own close task surfaces here.
    finally:
        await client.http.close()


async def _find_gateway_url(client: DiscordClient, base_url: str) -> yarl.URL:
    """Return the gateway's URL as the REST API names it, else a URL derived from `base_url`.

    If a private REST server names Discord's public gateway, that URL is ignored.
    """
    public = base_url.rstrip("/") == _PUBLIC_API_URL
    try:
        with translate_errors():
            _, address, _ = await client.http.get_bot_gateway()
        url = yarl.URL(address)
        if public or not (url.host or "").endswith(".discord.gg"):
            return url
    except Unauthorized:
        raise
    except (PlatformError, KeyError, TypeError, ValueError) as error:
        log.debug("discord: the REST API did not name its gateway: %s", error)
    if public:
        return yarl.URL("wss://gateway.discord.gg/")
    root = yarl.URL(base_url)
    return root.with_scheme("wss" if root.scheme == "https" else "ws").with_path("/gateway")
