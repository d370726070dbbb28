"""The library's client: one gateway socket and the REST calls, under our own pace.

The library keeps the socket: heartbeats, resuming, identifying anew. What comes in is taken raw and
in order; its caches and its tasks per event are not used.
"""

import asyncio
import logging
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
"""Seconds without a sign of life, heartbeats included, after which the socket is given up."""

RECONNECT_TIMEOUT_SECONDS = 60.0
"""Seconds in which the library may get a lost connection back, before everything is built anew."""

REIDENTIFY_SECONDS = 5.0
"""Discord wants this long between two identifications."""

PUBLIC_API_URL = "https://discord.com/api/v10"
_CLOSE_TIMEOUT_SECONDS = 5.0
_SOCKET_CLOSE_TIMEOUT_SECONDS = 2.0
_NOT_RATE_LIMITED: ContextVar[bool] = ContextVar("unpaced", default=False)
_TOO_MANY_REQUESTS = 429


def _without_traceback(record: logging.LogRecord) -> bool:
    """The library shows a traceback for every try to reconnect; the line itself says enough."""
    record.exc_info = None
    return True


logging.getLogger("discord.client").addFilter(_without_traceback)


class _DiscordSocket(discord.gateway.DiscordClientWebSocketResponse):
    """The library's socket; it would wait half a minute for the goodbye of a silent Discord."""

    async def close(self, *, code: int = 4000, message: bytes = b"") -> bool:
        """See the library."""
        try:
            async with asyncio.timeout(_SOCKET_CLOSE_TIMEOUT_SECONDS):
                return await super().close(code=code, message=message)
        except TimeoutError:
            return True


discord.http.DiscordClientWebSocketResponse = _DiscordSocket  # type: ignore[attr-defined]


class DiscordClient(discord.Client):
    """The library's client, with everything in it that is not needed here switched off."""

    def __init__(
        self,
        clock: Clock,
        on_frame: Callable[[str], None],
        *,
        heartbeat_timeout_seconds: float,
        reidentify_seconds: float,
    ) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody talks here
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
            enable_debug_events=True,  # hands over what is received, raw
            http_trace=trace,
            allowed_mentions=discord.AllowedMentions.none(),
        )
        for event in set(self._connection.parsers) - {"READY", "RESUMED"}:
            del self._connection.parsers[event]  # they would only fill caches
        self.http.get_ratelimit = self._create_limiter  # type: ignore[method-assign, assignment]
        self.disconnected = asyncio.Event()
        self.reconnected = asyncio.Event()
        self.rate_limit = RestRateLimit(clock.monotonic())
        self._send_lock = asyncio.Lock()
        self._clock = clock
        self._on_frame = on_frame
        self._reidentify_seconds = reidentify_seconds

    # --- the gateway -------------------------------------------------------------------------

    def dispatch(self, event: str, /, *args: Any, **_: Any) -> None:  # noqa: ANN401 - the library's
        """Take what the library tells; it would start a task for each."""
        if event == "socket_raw_receive":
            self._on_frame(args[0])
        elif event == "disconnect":
            self.reconnected.clear()
            self.disconnected.set()
        elif event in {"connect", "resumed"}:
            self.disconnected.clear()
            self.reconnected.set()

    async def before_identify_hook(self, _shard_id: int | None, *, initial: bool = False) -> None:
        """See the library."""
        if not initial:
            await asyncio.sleep(self._reidentify_seconds)

    async def stay_connected(self) -> None:
        """Keep the gateway's socket until it is lost for good; raises errors of ours."""
        with translate_errors():
            try:
                await self.connect(reconnect=True)
            except AttributeError as error:
                socket: object = self.ws
                if socket is not None:
                    raise
                # The library trips over its own socket when the very first try fails.
                msg = "Discord's gateway cannot be reached"
                raise Unavailable(msg) from error
        msg = "the connection to Discord's gateway ended"
        raise Unavailable(msg)

    async def raise_when_lost(self, seconds: float) -> None:
        """Raise once the gateway has been gone for too long: the library would try for ever."""
        while True:
            await self.disconnected.wait()
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
        """Raise what the library would otherwise wait out or try again by itself."""
        response = params.response
        if "Upgrade" in params.headers:
            return  # the gateway's socket, which the library tries again
        if response.status == _TOO_MANY_REQUESTS:
            answer = await _read_json(response)
            seconds = _retry_after(response, answer)
            everything = bool(answer.get("global")) or "Via" not in response.headers
            if everything or response.headers.get("X-RateLimit-Global"):
                self.rate_limit.block(seconds, self._clock.monotonic())
            msg = f"Discord says: too many requests, wait {seconds:g} s"
            raise Unavailable(msg, seconds)
        if response.status >= 500:  # noqa: PLR2004 - HTTP
            answer = await _read_json(response)
            raise error_for_response(response.status, 0, str(answer.get("message", "")))


class _RequestLimiter:
    """What the library enters around every call: here our own pace takes the place of its own."""

    remaining = 0  # asked by the library only after a 429, which never comes that far

    def __init__(
        self,
        rate_limit: RestRateLimit,
        bucket: RouteBucket,
        send_lock: asyncio.Lock | None,
        clock: Clock,
    ) -> None:
        self._rate_limit = rate_limit
        self._bucket = bucket
        self._send_lock = send_lock  # None: what goes here is not counted, and goes at once
        self._clock = clock

    async def __aenter__(self) -> Self:
        if self._send_lock is None:
            return self
        now = self._clock.monotonic()
        blocked = self._rate_limit.blocked_seconds(now)
        if blocked:
            msg = f"Discord refuses this for another {blocked:.1f} s"
            raise Unavailable(msg, blocked)
        await self._sleep_until(self._bucket.wait_seconds)
        self._bucket.take()
        with self._rate_limit.queued():
            async with self._send_lock:  # in the order in which they came
                await self._sleep_until(self._rate_limit.wait_seconds)
                self._rate_limit.take(self._clock.monotonic())
        return self

    async def _sleep_until(self, wait: Callable[[float], float]) -> None:
        """Sleep until there is nothing to wait for: others may have used up what had come."""
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
        """Learn from an answer's headers; called by the library."""
        left = response.headers.get("X-RateLimit-Remaining")
        after = response.headers.get("X-RateLimit-Reset-After")
        if left is not None and after is not None and not use_clock:
            self._bucket.update(int(left), float(after), self._clock.monotonic())


async def _read_json(response: aiohttp.ClientResponse) -> dict[str, Any]:
    try:
        answer = await response.json(content_type=None)
    except (aiohttp.ClientError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _retry_after(response: aiohttp.ClientResponse, answer: dict[str, Any]) -> float:
    written = answer.get("retry_after", response.headers.get("Retry-After", 1.0))
    try:
        return max(0.0, float(written))
    except (TypeError, ValueError):
        return 1.0


@contextmanager
def without_rate_limit() -> Iterator[None]:
    """Make calls that count for nothing: answers to interactions, due within 3 seconds."""
    token = _NOT_RATE_LIMITED.set(True)
    try:
        yield
    finally:
        _NOT_RATE_LIMITED.reset(token)


# --- opening and closing -------------------------------------------------------------------------


@asynccontextmanager
async def open_session(client: DiscordClient, token: str, base_url: str) -> AsyncIterator[None]:
    """Log in, find the gateway, and close everything at the end."""
    Route.BASE = base_url.rstrip("/")
    try:
        with translate_errors():
            await client.login(token)
        DiscordWebSocket.DEFAULT_GATEWAY = await _find_gateway_url(client, base_url)
        yield
    finally:
        await close_client(client)


async def close_client(client: DiscordClient) -> None:
    """Close the gateway's socket and the REST session; does nothing the second time."""
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
            await client.close()
    except TimeoutError:
        log.warning("the connection to Discord did not close in time")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise
        # Else only the library's own closing was cancelled, some time before.
    finally:
        await client.http.close()


async def _find_gateway_url(client: DiscordClient, base_url: str) -> yarl.URL:
    """Ask for the gateway's address; where nobody says it, it stands beside the REST API."""
    public = base_url.rstrip("/") == PUBLIC_API_URL
    try:
        with translate_errors():
            _, named, _ = await client.http.get_bot_gateway()
        url = yarl.URL(named)
        if public or not (url.host or "").endswith(".discord.gg"):
            return url
    except Unauthorized:
        raise
    except (PlatformError, KeyError, TypeError, ValueError) as error:
        log.debug("Discord does not say where its gateway is: %s", error)
    if public:
        return yarl.URL("wss://gateway.discord.gg/")
    root = yarl.URL(base_url)
    return root.with_scheme("wss" if root.scheme == "https" else "ws").with_path("/gateway")
