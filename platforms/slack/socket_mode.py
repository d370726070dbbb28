"""Socket Mode: the WebSocket connections over which Slack delivers envelopes.

The library's own client acknowledges from tasks without an owner, retries a refused token forever,
and notices a cut connection only at the next tick. This loop is shorter than working around that.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import msgspec
from slack_sdk.errors import SlackClientError
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from platforms.core.errors import PlatformError, Unauthorized, Unavailable, Unconfirmed
from platforms.slack.calls import Json, SlackClient
from platforms.slack.errors import translate_error
from sessions.values.secret import Secret

_log = logging.getLogger(__name__)

PING_SECONDS = 10.0
"""Seconds between pings; a connection without a pong for half of that is closed."""

_TIMEOUT_SECONDS = 10.0
_MAX_RECONNECTS, _RECONNECT_WINDOW_SECONDS = 5, 60.0
_STALE_COUNT_SECONDS = 30.0  # Slack may count a cut connection for this long

_FIRST_CHECK_SECONDS = 5.0
"""Seconds after the start until the connections are counted again, because the first of two programs
that start together cannot see the second."""

_MAX_CHECK_SECONDS, _RECHECK_SECONDS = 300.0, 60.0
"""Longest pause between two counts, and the pause while another program is connected. Slack reports
the number only to a new connection, and allows few of those."""

_CHECK_BACKOFF = 4.0

OTHER_PROGRAM = (
    "another program uses the same app token, and each message reaches only one of the two; stop "
    "it, or give it its own app"
)

_DRAIN_SECONDS = 0.2  # time a connection opened for counting stays open for envelopes
_ACKNOWLEDGE_SECONDS = 3.0  # Slack repeats an envelope after this time

EnvelopeHandler = Callable[[SocketModeRequest, Callable[[], Awaitable[None]]], None]
"""Called with an envelope and the function that acknowledges it; must not block."""


class SocketModeConnection:
    """Keeps a connection open, and reports other programs that use the same app token."""

    def __init__(
        self,
        calls: SlackClient,
        app_token: Secret,
        trouble: Callable[[str], None],
        *,
        first_check_seconds: float = _FIRST_CHECK_SECONDS,
        max_check_seconds: float = _MAX_CHECK_SECONDS,
        recheck_seconds: float = _RECHECK_SECONDS,
    ) -> None:
        self._calls = calls
        self._app_token = app_token
        self._trouble = trouble
        self._first_check_seconds = first_check_seconds
        self._max_check_seconds = max_check_seconds
        self._recheck_seconds = recheck_seconds
        self._has_other_program = False
        self._own_connections = 0
        self._ended_at: list[float] = []
        self._cut_at: float | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def reconnect(self) -> None:
        """Close a connection that delivers nothing; `run` opens another one at once."""
        if self._socket:
            await self._socket.close()

    async def run(
        self,
        session: aiohttp.ClientSession,
        handle: EnvelopeHandler,
        on_connected: Callable[[], None],
    ) -> None:
        """Stay connected until cancelled; raise `PlatformError` if that fails."""
        while True:
            url = await self._fetch_url(session)
            try:
                await self._listen(session, url, handle, on_connected)
            except (aiohttp.ClientError, OSError) as error:
                raise Unavailable(str(translate_error(error))) from error
            now = self._calls.clock.monotonic()
            self._ended_at = [
                at for at in self._ended_at if at > now - _RECONNECT_WINDOW_SECONDS
            ] + [now]
            if len(self._ended_at) > _MAX_RECONNECTS:
                msg = "Slack keeps closing the connection"
                raise Unavailable(msg)

    async def _fetch_url(self, session: aiohttp.ClientSession) -> str:
        client = AsyncWebClient(base_url=self._calls.base_url, session=session, retry_handlers=[])
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                answer = await client.apps_connections_open(app_token=self._app_token.reveal())
        except (SlackClientError, aiohttp.ClientError, OSError, AttributeError) as error:
            ours = translate_error(error)
            if isinstance(ours, Unauthorized):
                msg = f"{ours}; Slack refused the app token (xapp-…)"
                raise Unauthorized(msg) from error
            if isinstance(ours, Unconfirmed):  # the call changes nothing, so repeat it
                raise Unavailable(str(ours)) from error
            raise ours from error
        return str(answer.get("url"))

    async def _listen(
        self,
        session: aiohttp.ClientSession,
        url: str,
        handle: EnvelopeHandler,
        on_connected: Callable[[], None],
    ) -> None:
        async with self._connect(session, url) as socket:
            on_connected()
            self._socket = socket
            try:
                polite = await self._receive(socket, handle)
            finally:
                self._socket = None
        self._cut_at = None if polite else self._calls.clock.monotonic()

    @contextlib.asynccontextmanager
    async def _connect(
        self, session: aiohttp.ClientSession, url: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a connection and check the hello, which reports the number of connections."""
        async with session.ws_connect(
            url,
            heartbeat=PING_SECONDS,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
        ) as socket:
            self._own_connections += 1
            try:
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    first = await socket.receive()
                self._check_hello(_decode_message(first))
                yield socket
            finally:
                self._own_connections -= 1

    async def watch_for_other_programs(
        self, session: aiohttp.ClientSession, handle: EnvelopeHandler
    ) -> None:
        """Count the connections from time to time, until cancelled."""
        pause = self._first_check_seconds
        while True:
            await asyncio.sleep(self._recheck_seconds if self._has_other_program else pause)
            pause = min(pause * _CHECK_BACKOFF, self._max_check_seconds)
            if self._socket:  # else the next hello reports the number
                with contextlib.suppress(PlatformError, aiohttp.ClientError, OSError):
                    await self._count_connections(session, handle)

    async def _count_connections(
        self, session: aiohttp.ClientSession, handle: EnvelopeHandler
    ) -> None:
        """Open a second connection for the hello; handle envelopes that arrive over this one too."""
        url = await self._fetch_url(session)
        open_envelopes = _OpenEnvelopes()
        async with self._connect(session, url) as socket:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await self._receive(socket, open_envelopes.counting(handle))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ACKNOWLEDGE_SECONDS):
                    await open_envelopes.all_acknowledged()
        self._cut_at = self._calls.clock.monotonic()  # Slack may count this one a little longer

    async def _receive(
        self, socket: aiohttp.ClientWebSocketResponse, handle: EnvelopeHandler
    ) -> bool:
        """Handle envelopes until the connection ends; return true if Slack announced the end."""
        async for message in socket:
            envelope = _decode_message(message)
            if envelope.get("type") == "disconnect":
                reason = envelope.get("reason")
                if reason == "warning":  # announces a later disconnect
                    continue
                _log.info("slack: Slack closes the connection (%s); opening another one", reason)
                if reason == "link_disabled":
                    msg = "Socket Mode is turned off for this app"
                    raise Unavailable(msg)
                return True
            request = SocketModeRequest.from_dict(envelope)
            if request:
                handle(request, _acknowledgement(socket, request.envelope_id))
        return False

    def _check_hello(self, hello: Json) -> None:
        if hello.get("type") != "hello":
            msg = f"Slack sent no hello ({hello.get('type') or 'the connection ended'})"
            raise Unavailable(msg)
        count = hello.get("num_connections")
        if not isinstance(count, int):
            return
        now = self._calls.clock.monotonic()
        unsure = self._cut_at is not None and now <= self._cut_at + _STALE_COUNT_SECONDS
        if count > self._own_connections + unsure:
            self._has_other_program = True
            self._trouble(OTHER_PROGRAM)
        elif count <= self._own_connections and self._has_other_program:
            self._has_other_program = False
            self._trouble("")


class _OpenEnvelopes:
    """The envelopes of a connection that are not acknowledged yet."""

    def __init__(self) -> None:
        self._count = 0
        self._none_open = asyncio.Event()
        self._none_open.set()

    def counting(self, handle: EnvelopeHandler) -> EnvelopeHandler:
        """Return a handler that counts its envelopes until they are acknowledged."""

        def handle_counted(
            request: SocketModeRequest, acknowledge: Callable[[], Awaitable[None]]
        ) -> None:
            async def acknowledge_counted() -> None:
                await acknowledge()
                self._count -= 1
                if not self._count:
                    self._none_open.set()

            self._count += 1
            self._none_open.clear()
            handle(request, acknowledge_counted)

        return handle_counted

    async def all_acknowledged(self) -> None:
        """Wait until no envelope is open."""
        await self._none_open.wait()


def _acknowledgement(
    socket: aiohttp.ClientWebSocketResponse, envelope_id: str
) -> Callable[[], Awaitable[None]]:
    async def acknowledge() -> None:
        try:
            await socket.send_json(SocketModeResponse(envelope_id).to_dict())
        except (aiohttp.ClientError, OSError):
            # Slack repeats the envelope over the next connection; the inbox knows the event.
            _log.debug("slack: envelope %s could not be acknowledged", envelope_id)

    return acknowledge


def _decode_message(message: aiohttp.WSMessage) -> Json:
    if message.type is not aiohttp.WSMsgType.TEXT:
        return {}
    try:
        return msgspec.json.decode(message.data, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):  # RecursionError: nested too deeply
        return {}
