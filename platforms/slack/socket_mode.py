"""Socket Mode: one WebSocket after another, over which Slack hands us envelopes.

The library's own client acknowledges from tasks that nobody owns, retries a refused token for ever,
and notices a cut connection only at its next tick; a loop of our own is shorter than the detours.
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
from platforms.slack.calls import Calls, Json, translated
from sessions.values.secret import Secret

_log = logging.getLogger(__name__)

HEARTBEAT = 10.0
"""Seconds between our pings; half of that without a pong, and the connection is taken for dead."""

_PATIENCE = 10.0
_MOST_RECONNECTS, _WITHIN = 5, 60.0
_FORGETS = 30.0  # seconds for which Slack may still count a connection that was cut

LOOK_AFTER = 5.0
"""Seconds after the start until the connections are counted again: of two programs that start
together the first cannot know of the second."""

LOOK_EVERY, LOOK_AGAIN = 300.0, 60.0
"""Longest pause between two counts, to which they grow, and the pause while there is another
program. Slack tells the number only to a connection that begins, and allows few of those."""

_GROWTH = 4.0

OTHERS = (
    "another program uses the same app token, and each message reaches only one of the two; stop "
    "it, or give it an app of its own"
)

_READ_ON = 0.2  # seconds for which a connection that was opened to count is still listened to

Handle = Callable[[SocketModeRequest, Callable[[], Awaitable[None]]], None]
"""Takes an envelope, and what acknowledges it; must not wait."""


class Sockets:
    """Keeps a connection open."""

    def __init__(
        self,
        calls: Calls,
        app_token: Secret,
        trouble: Callable[[str], None],
        *,
        look_after: float = LOOK_AFTER,
        look_every: float = LOOK_EVERY,
        look_again: float = LOOK_AGAIN,
    ) -> None:
        self._calls = calls
        self._app_token = app_token
        self._trouble = trouble
        self._look_after = look_after
        self._look_every = look_every
        self._look_again = look_again
        self._others = False  # another program has connections, too
        self._ours = 0  # connections of our own
        self._ended: list[float] = []
        self._cut_at: float | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def drop(self) -> None:
        """Give up a connection that was found to be deaf; the next one is opened at once."""
        if self._socket:
            await self._socket.close()

    async def run(
        self, session: aiohttp.ClientSession, handle: Handle, up: Callable[[], None]
    ) -> None:
        """Stay connected until cancelled; raises when that cannot be done."""
        while True:
            url = await self._address(session)
            try:
                await self._listen(session, url, handle, up)
            except (aiohttp.ClientError, OSError) as error:
                raise Unavailable(str(translated(error))) from error
            now = self._calls.clock.monotonic()
            self._ended = [at for at in self._ended if at > now - _WITHIN] + [now]
            if len(self._ended) > _MOST_RECONNECTS:
                self._ended.clear()
                msg = "Slack ends its connections again and again"
                raise Unavailable(msg)

    async def _address(self, session: aiohttp.ClientSession) -> str:
        client = AsyncWebClient(base_url=self._calls.base_url, session=session, retry_handlers=[])
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await client.apps_connections_open(app_token=self._app_token.reveal())
        except (SlackClientError, aiohttp.ClientError, OSError, AttributeError) as error:
            ours = translated(error)
            if isinstance(ours, Unauthorized):
                msg = f"{ours}; it is the app token (xapp-…) that was refused"
                raise Unauthorized(msg) from error
            if isinstance(ours, Unconfirmed):  # it changes nothing, so it may be asked again
                raise Unavailable(str(ours)) from error
            raise ours from error
        return str(answer.get("url"))

    async def _listen(
        self, session: aiohttp.ClientSession, url: str, handle: Handle, up: Callable[[], None]
    ) -> None:
        async with self._opened(session, url) as socket:
            up()
            self._socket = socket
            try:
                polite = await self._receive(socket, handle)
            finally:
                self._socket = None
        self._cut_at = None if polite else self._calls.clock.monotonic()

    @contextlib.asynccontextmanager
    async def _opened(
        self, session: aiohttp.ClientSession, url: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a connection; Slack's hello tells how many there are now."""
        async with session.ws_connect(
            url,
            heartbeat=HEARTBEAT,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
        ) as socket:
            self._ours += 1
            try:
                async with asyncio.timeout(_PATIENCE):
                    first = await socket.receive()
                self._hello(_read(first))
                yield socket
            finally:
                self._ours -= 1

    async def look_for_others(self, session: aiohttp.ClientSession, handle: Handle) -> None:
        """Count the connections now and then, until cancelled."""
        pause = self._look_after
        while True:
            await asyncio.sleep(self._look_again if self._others else pause)
            pause = min(pause * _GROWTH, self._look_every)
            if self._socket:  # else the next hello tells
                with contextlib.suppress(PlatformError, aiohttp.ClientError, OSError):
                    await self._look(session, handle)

    async def _look(self, session: aiohttp.ClientSession, handle: Handle) -> None:
        """Open a connection besides the one that is open; what comes over it counts as usual."""
        url = await self._address(session)
        async with self._opened(session, url) as socket:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_READ_ON):
                    await self._receive(socket, handle)
        self._cut_at = self._calls.clock.monotonic()  # it may be counted for a moment longer

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse, handle: Handle) -> bool:
        """Hand out envelopes until the connection ends; tells whether Slack said so before."""
        async for message in socket:
            envelope = _read(message)
            if envelope.get("type") == "disconnect":
                reason = envelope.get("reason")
                if reason == "warning":  # the end is near, but not here
                    continue
                _log.info("slack: asks for a new connection (%s)", reason)
                if reason == "link_disabled":
                    msg = "Socket Mode is turned off for this app"
                    raise Unavailable(msg)
                return True
            request = SocketModeRequest.from_dict(envelope)
            if request:
                handle(request, _acknowledging(socket, request.envelope_id))
        return False

    def _hello(self, hello: Json) -> None:
        if hello.get("type") != "hello":
            msg = f"Slack did not say hello ({hello.get('type') or 'the connection ended'})"
            raise Unavailable(msg)
        count = hello.get("num_connections")
        if not isinstance(count, int):
            return
        now = self._calls.clock.monotonic()
        unsure = self._cut_at is not None and now <= self._cut_at + _FORGETS
        if count > self._ours + unsure:
            self._others = True
            self._trouble(OTHERS)
        elif count <= self._ours and self._others:
            self._others = False
            self._trouble("")


def _acknowledging(
    socket: aiohttp.ClientWebSocketResponse, envelope_id: str
) -> Callable[[], Awaitable[None]]:
    async def acknowledge() -> None:
        try:
            await socket.send_json(SocketModeResponse(envelope_id).to_dict())
        except (aiohttp.ClientError, OSError):
            # It comes again over the next connection, and is known there.
            _log.debug("slack: %s could not be acknowledged any more", envelope_id)

    return acknowledge


def _read(message: aiohttp.WSMessage) -> Json:
    if message.type is not aiohttp.WSMsgType.TEXT:
        return {}
    try:
        return msgspec.json.decode(message.data, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}
