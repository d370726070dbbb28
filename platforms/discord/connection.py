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
from platforms.discord.errors import mapped, of_answer
from platforms.discord.rate_limit import Bucket, Gate
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

DEAF_SECONDS = 55.0
"""Seconds without a sign of life, heartbeats included, after which the socket is given up."""

LOST_SECONDS = 60.0
"""Seconds in which the library may get a lost connection back, before everything is built anew."""

REIDENTIFY_SECONDS = 5.0
"""Discord wants this long between two identifications."""

PUBLIC = "https://discord.com/api/v10"
_CLOSE_SECONDS = 5.0
_GOODBYE_SECONDS = 2.0
_UNPACED: ContextVar[bool] = ContextVar("unpaced", default=False)
_TOO_MANY = 429


def _without_traceback(record: logging.LogRecord) -> bool:
    """The library shows a traceback for every try to reconnect; the line itself says enough."""
    record.exc_info = None
    return True


logging.getLogger("discord.client").addFilter(_without_traceback)


class _Socket(discord.gateway.DiscordClientWebSocketResponse):
    """The library's socket; it would wait half a minute for the goodbye of a silent Discord."""

    async def close(self, *, code: int = 4000, message: bytes = b"") -> bool:
        """See the library."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                return await super().close(code=code, message=message)
        except TimeoutError:
            return True


discord.http.DiscordClientWebSocketResponse = _Socket  # type: ignore[attr-defined]


class Client(discord.Client):
    """The library's client, with everything in it that is not needed here switched off."""

    def __init__(
        self,
        clock: Clock,
        heard: Callable[[str], None],
        *,
        deaf_seconds: float,
        reidentify_seconds: float,
    ) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody talks here
        intents = discord.Intents.none()
        intents.guilds = True
        intents.messages = True
        intents.message_content = True
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._judge)
        super().__init__(
            intents=intents,
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0.0,
            heartbeat_timeout=deaf_seconds,
            enable_debug_events=True,  # hands over what is received, raw
            http_trace=trace,
            allowed_mentions=discord.AllowedMentions.none(),
        )
        for event in set(self._connection.parsers) - {"READY", "RESUMED"}:
            del self._connection.parsers[event]  # they would only fill caches
        self.http.get_ratelimit = self._turnstile  # type: ignore[method-assign, assignment]
        self.lost = asyncio.Event()
        self.back = asyncio.Event()
        self.gate = Gate(clock.monotonic())
        self._line = asyncio.Lock()
        self._clock = clock
        self._heard = heard
        self._reidentify_seconds = reidentify_seconds

    # --- the gateway -------------------------------------------------------------------------

    def dispatch(self, event: str, /, *args: Any, **_: Any) -> None:  # noqa: ANN401 - the library's
        """Take what the library tells; it would start a task for each."""
        if event == "socket_raw_receive":
            self._heard(args[0])
        elif event == "disconnect":
            self.back.clear()
            self.lost.set()
        elif event in {"connect", "resumed"}:
            self.lost.clear()
            self.back.set()

    async def before_identify_hook(self, _shard_id: int | None, *, initial: bool = False) -> None:
        """See the library."""
        if not initial:
            await asyncio.sleep(self._reidentify_seconds)

    async def stay_connected(self) -> None:
        """Keep the gateway's socket until it is lost for good; raises errors of ours."""
        with mapped():
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

    async def give_up_when_lost(self, seconds: float) -> None:
        """Raise once the gateway has been gone for too long: the library would try for ever."""
        while True:
            await self.lost.wait()
            try:
                async with asyncio.timeout(seconds):
                    await self.back.wait()
            except TimeoutError:
                msg = f"Discord's gateway has been gone for {seconds:g} s"
                raise Unavailable(msg) from None

    # --- REST --------------------------------------------------------------------------------

    def _turnstile(self, key: str) -> "_Turnstile":
        if _UNPACED.get():
            return _Turnstile(self.gate, Bucket(), None, self._clock)
        return _Turnstile(self.gate, self.gate.bucket(key), self._line, self._clock)

    async def _judge(
        self,
        _session: aiohttp.ClientSession,
        _context: object,
        params: aiohttp.TraceRequestEndParams,
    ) -> None:
        """Raise what the library would otherwise wait out or try again by itself."""
        response = params.response
        if "Upgrade" in params.headers:
            return  # the gateway's socket, which the library tries again
        if response.status == _TOO_MANY:
            answer = await _read_json(response)
            seconds = _retry_after(response, answer)
            everything = bool(answer.get("global")) or "Via" not in response.headers
            if everything or response.headers.get("X-RateLimit-Global"):
                self.gate.block(seconds, self._clock.monotonic())
            msg = f"Discord says: too many requests, wait {seconds:g} s"
            raise Unavailable(msg, seconds)
        if response.status >= 500:  # noqa: PLR2004 - HTTP
            answer = await _read_json(response)
            raise of_answer(response.status, 0, str(answer.get("message", "")))


class _Turnstile:
    """What the library enters around every call: here our own pace takes the place of its own."""

    remaining = 0  # asked by the library only after a 429, which never comes that far

    def __init__(self, gate: Gate, bucket: Bucket, line: asyncio.Lock | None, clock: Clock) -> None:
        self._gate = gate
        self._bucket = bucket
        self._line = line  # None: what goes here is not counted, and goes at once
        self._clock = clock

    async def __aenter__(self) -> Self:
        if self._line is None:
            return self
        now = self._clock.monotonic()
        blocked = self._gate.blocked(now)
        if blocked:
            msg = f"Discord refuses this for another {blocked:.1f} s"
            raise Unavailable(msg, blocked)
        await self._until(self._bucket.wait)
        self._bucket.take()
        with self._gate.one_more():
            async with self._line:  # in the order in which they came
                await self._until(self._gate.wait)
                self._gate.take(self._clock.monotonic())
        return self

    async def _until(self, wait: Callable[[float], float]) -> None:
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
            self._bucket.learn(int(left), float(after), self._clock.monotonic())


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
def unpaced() -> Iterator[None]:
    """Make calls that count for nothing: answers to interactions, due within 3 seconds."""
    token = _UNPACED.set(True)
    try:
        yield
    finally:
        _UNPACED.reset(token)


# --- opening and closing -------------------------------------------------------------------------


@asynccontextmanager
async def logged_in(client: Client, token: str, base_url: str) -> AsyncIterator[None]:
    """Log in, find the gateway, and close everything at the end."""
    Route.BASE = base_url.rstrip("/")
    try:
        with mapped():
            await client.login(token)
        DiscordWebSocket.DEFAULT_GATEWAY = await _gateway(client, base_url)
        yield
    finally:
        await shut(client)


async def shut(client: Client) -> None:
    """Close the gateway's socket and the REST session; does nothing the second time."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
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


async def _gateway(client: Client, base_url: str) -> yarl.URL:
    """Ask for the gateway's address; where nobody says it, it stands beside the REST API."""
    public = base_url.rstrip("/") == PUBLIC
    try:
        with mapped():
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
