"""A fake Slack on loopback for the real client libraries: Web API, Socket Mode, signed requests.

Use `async with SlackServer() as slack:` with `slack.url` as `base_url`. `await slack.say(…)` returns
once the event is acknowledged; `slack.workspace` holds the messages that people see.
`slack.pass_time(60)` moves its clock and repeats unacknowledged events.
"""

import asyncio
import contextlib
import hashlib
import hmac
import itertools
import json
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp import web

from platforms.slack.manifest import EVENTS
from tests.fakes.downloads import Downloads
from tests.fakes.slack.workspace import (
    BOT_USER,
    TEAM,
    Json,
    Message,
    SlackError,
    Workspace,
)
from tests.fakes.slow_line import SlowLine

BOT_TOKEN, APP_TOKEN, SIGNING_SECRET = "xoxb-fake", "xapp-fake", "8f742231b10e8888abcd99yyyzzz85a5"
_CLOSE_SECONDS = 5.0
_SETTLE_SECONDS = 20.0
COMMAND = "/holdfast"

_RETRIES = (0.0, 60.0, 300.0)  # pauses after a failed try; then Slack gives up
_ACK_SECONDS = 3.0


class Fault(msgspec.Struct, frozen=True):
    """A scripted failure of a call."""

    status: int = 200
    error: str = ""
    retry_after: float | None = None
    drop: str = ""  # cut the connection "before" or "after" carrying out the call
    gate: asyncio.Event | None = None  # the response waits for it
    page: bool = False  # respond with an HTML page


def rate_limited(seconds: float) -> Fault:
    return Fault(status=429, error="ratelimited", retry_after=seconds)


class Envelope:
    """An event on its way to the app."""

    def __init__(self, kind: str, payload: Json, at: float) -> None:
        self.kind = kind
        self.payload = payload
        self.tries = 0
        self.next_at = at
        self.acknowledged = asyncio.Event()


def _passed() -> float:
    """Return the loop's time, so that a busy machine does not make an app late."""
    return asyncio.get_running_loop().time()


class SlackServer:
    """The fake server; see the module."""

    def __init__(self, workspace: Workspace | None = None, *, over_http: bool = False) -> None:
        self.workspace = workspace or Workspace()
        self.over_http = over_http
        """Send signed requests to `requests_to` on its own, without `settle`."""
        self.url = ""
        self.sockets: list[web.WebSocketResponse] = []
        self.connected = asyncio.Event()
        self.connections = 0  # total number so far
        self.extra_connections = 0  # connections of another program with the same token
        self.door = 0  # port of a proxy in front of the sockets, if any
        self.deaf = False  # keeps connections open but delivers nothing
        self.line: SlowLine | None = None  # carries uploads and downloads, if set
        self.requests_to = ""  # URL for signed requests; empty: Socket Mode
        self.accept_sockets = True
        self.app_scopes = "connections:write"  # scopes of the app token
        self.subscribed = {*EVENTS}
        self.events: set[str] = set()  # types of all events so far
        self.changed = asyncio.Event()
        self.downloads = Downloads()
        self.calls: list[tuple[str, str]] = []  # method and channel of all calls
        self._faults: dict[str, deque[tuple[str, Fault]]] = {}
        self._outages: dict[str, tuple[int, float]] = {}  # status and end, by method
        self._waiting: list[Envelope] = []
        self._sent: dict[str, tuple[Envelope, float]] = {}
        self._outgoing: dict[web.WebSocketResponse, asyncio.Queue[str]] = {}
        self._numbers = itertools.count(1)
        self._runner: web.AppRunner | None = None
        self._client: aiohttp.ClientSession | None = None
        self._posters = asyncio.TaskGroup()
        self._posting: dict[str, asyncio.Task[None]] = {}  # by channel

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=200 * 1024 * 1024)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link/{ticket}", self._socket)
        app.router.add_post("/upload/{file}", self._upload)
        app.router.add_get("/files-pri/{file}", self._download)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert self._runner.addresses
        self._port = self._runner.addresses[0][1]
        self.workspace.base = f"http://127.0.0.1:{self._port}/"
        self.url = f"{self.workspace.base}api/"
        self._client = aiohttp.ClientSession()
        await self._posters.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._posting.values():
            task.cancel()
        await self._posters.__aexit__(None, None, None)
        for socket in list(self.sockets):
            # The library waits without limit for its reader, which may have ended just now.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await socket.close()
        if self._client:
            await self._client.close()
        if self._runner:
            await self._runner.cleanup()

    # --- actions of a test ---------------------------------------------------------------------

    def fail(self, method: str, *faults: Fault, channel: str = "") -> None:
        """Let the next calls of a method fail in this order, in any channel or in one.

        The two transfers of a file, which are not methods of Slack, are `upload` and `download`.
        """
        self._faults.setdefault(method, deque()).extend((channel, fault) for fault in faults)

    def refuse_for(self, seconds: float, status: int, *methods: str) -> None:
        """Answer all calls of some methods with a status until the time is over."""
        self._outages |= dict.fromkeys(methods, (status, _passed() + seconds))

    def _outage(self, method: str) -> web.Response | None:
        status, until = self._outages.get(method, (0, 0.0))
        left = until - _passed()
        if left <= 0:
            return None
        headers = {"Retry-After": str(math.ceil(left))} if status == 429 else {}
        return web.json_response({"ok": False}, status=status, headers=headers)

    def _fault(self, method: str, channel: str = "") -> Fault:
        faults = self._faults.get(method, deque())
        for place, (where, fault) in enumerate(faults):
            if where in {"", channel}:
                del faults[place]
                return fault
        return Fault()

    @property
    def unmet(self) -> list[str]:
        """The methods with faults that no call has met yet."""
        return [method for method, faults in self._faults.items() for _ in faults]

    def add_channel(self, channel: str) -> None:
        self.workspace.channels.setdefault(channel, [])

    def write(
        self, channel: str, text: str, *, user: str = "U1", thread: str = "", **more: Any
    ) -> str:
        """Let a person write a message; its event is sent as soon as there is a connection."""
        message = Message(self.workspace.new_ts(), user, text, thread)
        message.files = more.get("files", [])
        self.workspace.put(channel, message)
        event = {
            **message.as_json(),
            "channel": channel,
            **self._kind(channel),
            "event_ts": message.ts,
        }
        event.update(more)
        self._queue("events_api", self._callback(event, user))
        if not channel.startswith("D") and f"<@{BOT_USER}>" in text:
            twin = {**event, "type": "app_mention"}
            twin.pop("channel_type", None)
            self._queue("events_api", self._callback(twin, user))
        return message.ts

    async def say(
        self, channel: str, text: str, *, user: str = "U1", thread: str = "", **more: Any
    ) -> str:
        """Let a person write a message, and wait until the app acknowledges its event."""
        ts = self.write(channel, text, user=user, thread=thread, **more)
        await self.settle()
        return ts

    async def change(self, channel: str, ts: str, text: str) -> None:
        """Let a person edit their message."""
        message = self.workspace.get(channel, ts)
        before = message.as_json()
        message.text, message.edited = text, self.workspace.new_ts()
        event = {
            "type": "message",
            "subtype": "message_changed",
            "hidden": True,
            "channel": channel,
            **self._kind(channel),
            "ts": self.workspace.new_ts(),
            "message": message.as_json(),
            "previous_message": before,
        }
        self._queue("events_api", self._callback(event, message.user))
        await self.settle()

    async def erase(self, channel: str, ts: str) -> None:
        """Let a person delete their message."""
        message = self.workspace.get(channel, ts)
        self.workspace.channels[channel].remove(message)
        event = {
            "type": "message",
            "subtype": "message_deleted",
            "hidden": True,
            "channel": channel,
            **self._kind(channel),
            "ts": self.workspace.new_ts(),
            "deleted_ts": ts,
            "previous_message": message.as_json(),
        }
        self._queue("events_api", self._callback(event, message.user))
        await self.settle()

    async def press(self, channel: str, ts: str, label: str, *, user: str = "U1") -> None:
        """Let a person press a button of the app."""
        message = self.workspace.get(channel, ts)
        (button,) = (each for each in message.buttons if each["text"]["text"] == label)
        container = {"type": "message", "message_ts": ts, "channel_id": channel}
        if message.thread:
            container["thread_ts"] = message.thread
        payload = {
            "type": "block_actions",
            "team": {"id": TEAM},
            "user": {"id": user, "username": user.lower(), "team_id": TEAM},
            "channel": {"id": channel},
            "container": container,
            "message": message.as_json(),
            "trigger_id": f"{next(self._numbers)}.1.abc",
            "response_url": f"{self.workspace.base}response",
            "actions": [{**button, "type": "button", "action_ts": self.workspace.new_ts()}],
        }
        self._queue("interactive", payload)
        await self.settle()

    async def command(self, channel: str, text: str, *, user: str = "U1") -> None:
        """Let a person type `/holdfast TEXT`."""
        payload = {
            "command": COMMAND,
            "text": text,
            "team_id": TEAM,
            "channel_id": channel,
            "user_id": user,
            "trigger_id": f"{next(self._numbers)}.1.abc",
            "response_url": f"{self.workspace.base}response",
        }
        self._queue("slash_commands", payload)
        await self.settle()

    async def shortcut(self, callback_id: str = "ask", *, user: str = "U1") -> None:
        """Let a person choose a shortcut from the menu of the message box."""
        payload = {
            "type": "shortcut",
            "callback_id": callback_id,
            "team": {"id": TEAM},
            "user": {"id": user, "team_id": TEAM},
            "trigger_id": f"{next(self._numbers)}.1.abc",
        }
        self._queue("interactive", payload)
        await self.settle()

    async def stop(self, channel: str, ts: str, *, user: str = "U1") -> None:
        """Let a person press the native Stop button below a stream."""
        message = self.workspace.get(channel, ts)
        await self.stop_session(channel, message.thread, user=user)

    async def stop_session(self, channel: str, thread: str, *, user: str = "U1") -> None:
        """Let a person press the native Stop button of a thread with a processing session."""
        if self.workspace.sessions.get((channel, thread)) != "processing":
            msg = "there is no Stop to press"
            raise AssertionError(msg)
        streams = [each for each in self.workspace.ours(channel, thread) if each.streaming]
        for message in streams:
            message.stopped_by_user, message.streaming = True, False
        await self.event(
            {
                "type": "agent_session_stopped",
                "channel": channel,
                "thread_ts": thread,
                "user": user,
                "streaming_message_ts": [message.ts for message in streams],
                "event_ts": self.workspace.new_ts(),
            },
            user,
        )

    async def open_home(self, channel: str, *, user: str = "U1", tab: str = "messages") -> None:
        """Let a person open the app."""
        ts = self.workspace.new_ts()
        event = {"type": "app_home_opened", "user": user, "channel": channel, "tab": tab}
        await self.event({**event, "event_ts": ts.replace(".", "")}, user)

    async def start_assistant(self, channel: str, thread: str, *, user: str = "U1") -> None:
        """Let a person open a conversation in an older app, where each one is a thread."""
        self.workspace.put(channel, Message(thread, BOT_USER, "New conversation", thread))
        where = {"user_id": user, "channel_id": channel, "thread_ts": thread, "context": {}}
        event = {"type": "assistant_thread_started", "assistant_thread": where}
        await self.event({**event, "event_ts": self.workspace.new_ts()}, user)

    async def event(self, event: Json, user: str = "U1") -> None:
        """Send an event."""
        self._queue("events_api", self._callback(event, user))
        await self.settle()

    async def settle(self) -> None:
        """Wait until all events are acknowledged; with manual requests, try each due one once."""
        if self.requests_to and not self.over_http:
            for envelope in [
                each for each in self._waiting if each.next_at <= self.workspace.now()
            ]:
                await self._request(envelope)
            return
        self._send_due()
        while self._waiting:
            envelope = self._waiting[0]
            try:
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await envelope.acknowledged.wait()
            except TimeoutError:
                msg = f"never acknowledged after {envelope.tries} tries: {envelope.payload}"
                raise AssertionError(msg) from None

    async def pass_time(self, seconds: float) -> None:
        """Move Slack's clock, repeat due events, and drop those repeated too often."""
        self.workspace.offset += seconds
        self._send_due()
        if self.requests_to and not self.over_http:
            await self.settle()

    @property
    def pending(self) -> int:
        """Number of events neither acknowledged nor dropped."""
        return len(self._waiting)

    async def ask_to_reconnect(self) -> None:
        """Announce the end of all connections."""
        for socket in list(self.sockets):
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested"})

    def cut(self) -> None:
        """Cut every connection without notice."""
        if self.over_http:
            self._cut_requests()
            return
        for socket in list(self.sockets):
            transport = socket._req.transport if socket._req else None
            if transport:
                transport.abort()
        self.sockets.clear()
        self.connected.clear()
        self._lost()

    async def until(self, condition: Callable[[], bool], seconds: float = 8.0) -> None:
        """Wait for a condition, which is checked after each call and message."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            shown = {channel: self.workspace.screen(channel) for channel in self.workspace.channels}
            msg = f"the condition was never met; people see {shown}"
            raise AssertionError(msg) from None

    def violations(self) -> list[str]:
        late = [
            f"{envelope.kind} was not acknowledged within 3 s"
            for envelope, at in self._sent.values()
            if _passed() > at + _ACK_SECONDS and not envelope.acknowledged.is_set()
        ]
        return self.workspace.violations() + late

    # --- sending events ------------------------------------------------------------------------

    def _kind(self, channel: str) -> Json:
        return {"channel_type": "im" if channel.startswith("D") else "channel"}

    def _callback(self, event: Json, user: str) -> Json:
        return {
            "type": "event_callback",
            "team_id": TEAM,
            "api_app_id": "A1",
            "event": event,
            "event_id": f"Ev{next(self._numbers)}",
            "event_time": int(self.workspace.now()),
            "authorizations": [{"team_id": TEAM, "user_id": BOT_USER, "is_bot": True}],
        }

    def _queue(self, kind: str, payload: Json) -> None:
        if kind == "events_api" and not self._is_subscribed(payload["event"]):
            return
        self._waiting.append(Envelope(kind, payload, self.workspace.now()))
        self._send_due()

    def _is_subscribed(self, event: Json) -> bool:
        """Return true if the app's manifest subscribes to the event."""
        kind = str(event["type"])
        if kind == "message":
            where = {"D": "im", "G": "groups"}.get(str(event["channel"])[0], "channels")
            kind = f"message.{where}"
        self.events.add(kind)
        return kind in self.subscribed

    def listen_at(self, url: str) -> None:
        """Send requests to this URL from now on; empty means that nothing listens."""
        self.requests_to = url
        self._send_due()

    def _send_due(self) -> None:
        now = self.workspace.now()
        for envelope in list(self._waiting):
            if envelope.next_at > now:
                continue
            if self.requests_to:
                if self.over_http:
                    self._post_to(_channel_of(envelope))
                continue  # otherwise `settle` sends it
            if self.sockets and self.deaf:
                envelope.next_at = float("inf")  # lost, although Slack considers it sent
                self._waiting.remove(envelope)
                continue
            if self.sockets:
                self._send(envelope, self.sockets[-1])
            self._tried(envelope)

    def _tried(self, envelope: Envelope) -> None:
        """Schedule the next try, in case this one is not acknowledged."""
        envelope.tries += 1
        while envelope.tries <= len(_RETRIES):
            pause = _RETRIES[envelope.tries - 1]
            if self.requests_to:
                envelope.next_at += pause
                return
            if pause or self.sockets:
                envelope.next_at += pause or _ACK_SECONDS
                return
            envelope.tries += 1  # the immediate retry fails too
        self._waiting.remove(envelope)

    def _send(self, envelope: Envelope, socket: web.WebSocketResponse) -> None:
        envelope_id = f"e{next(self._numbers)}"
        self._sent[envelope_id] = (envelope, _passed())
        wrapped = {
            "type": envelope.kind,
            "envelope_id": envelope_id,
            "payload": envelope.payload,
            "accepts_response_payload": envelope.kind != "events_api",
        }
        if envelope.tries:
            wrapped |= {"retry_attempt": envelope.tries, "retry_reason": "timeout"}
        self._outgoing[socket].put_nowait(json.dumps(wrapped))

    def _lost(self) -> None:
        """Schedule unacknowledged envelopes of a lost connection for the next one."""
        for envelope_id, (envelope, _) in list(self._sent.items()):
            if not envelope.acknowledged.is_set():
                del self._sent[envelope_id]
                if envelope in self._waiting:
                    envelope.next_at = min(envelope.next_at, self.workspace.now())

    # --- HTTP ----------------------------------------------------------------------------------

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        arguments = await _arguments(request)
        try:
            return await self._answer(request, method, arguments)
        finally:
            self.changed.set()

    async def _answer(
        self, request: web.Request, method: str, arguments: Json
    ) -> web.StreamResponse:
        channel = str(arguments.get("channel") or arguments.get("channel_id") or "")
        self.calls.append((method, channel))
        expected = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if request.headers.get("Authorization") != f"Bearer {expected}":
            return _refusal("invalid_auth")
        if refusal := self._outage(method):
            return refusal
        fault = self._fault(method, channel)
        if fault.drop == "before":
            return _cut(request)
        if fault.retry_after is not None:
            self.workspace.forbid(method, channel, fault.retry_after)
        if fault.page:
            return web.Response(text="<html>sorry</html>", content_type="text/html")
        if fault.status != 200 or fault.error:
            headers = {"Retry-After": f"{fault.retry_after:g}"} if fault.retry_after else {}
            answer = {"ok": False, "error": fault.error} if fault.error else {}
            return web.json_response(answer, status=fault.status, headers=headers)
        if wait := self.workspace.check_pace(method, channel):
            headers = {"Retry-After": f"{wait:.0f}"}
            return web.json_response(
                {"ok": False, "error": "ratelimited"}, status=429, headers=headers
            )
        if method == "apps.connections.open" and not self.app_scopes:
            return _refusal("missing_scope", needed="connections:write")
        try:
            if method == "apps.connections.open":
                answer = {"url": self._new_link()}
            else:
                answer = self.workspace.carry_out(method, arguments)
        except SlackError as error:
            return _refusal(error.code, **error.more)
        if fault.gate:
            self.changed.set()
            await fault.gate.wait()
        if fault.drop == "after":
            return _cut(request)
        scopes = ",".join(sorted(self.workspace.scopes))
        return web.json_response({"ok": True, **answer}, headers={"x-oauth-scopes": scopes})

    def _new_link(self) -> str:
        return f"ws://127.0.0.1:{self.door or self._port}/link/{next(self._numbers)}"

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        if not self.accept_sockets:
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        count = len(self.sockets) + 1 + self.extra_connections
        await socket.send_json({"type": "hello", "num_connections": count})
        self._outgoing[socket] = asyncio.Queue()
        self.sockets.append(socket)
        self.connections += 1
        self.connected.set()
        self.changed.set()
        self._send_due()
        try:
            async with asyncio.TaskGroup() as group:
                pump = group.create_task(self._pump(socket))
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        self._acknowledge(json.loads(message.data))
                pump.cancel()
        finally:
            del self._outgoing[socket]
            if socket in self.sockets:
                self.sockets.remove(socket)
                self._lost()
            if self.sockets:
                self._send_due()
            else:
                self.connected.clear()
            self.changed.set()
        return socket

    async def _pump(self, socket: web.WebSocketResponse) -> None:
        while True:
            text = await self._outgoing[socket].get()
            with contextlib.suppress(ConnectionError):
                await socket.send_str(text)

    def _acknowledge(self, answer: Json) -> None:
        envelope, at = self._sent.pop(str(answer.get("envelope_id")), (None, 0.0))
        if envelope is None:
            return
        if _passed() > at + _ACK_SECONDS:
            self.workspace.found.append(f"{envelope.kind} was acknowledged too late")
        envelope.acknowledged.set()
        if envelope in self._waiting:
            self._waiting.remove(envelope)
        self.changed.set()

    def _post_to(self, channel: str) -> None:
        """Send the due requests of a channel one after the other, in parallel to other channels."""
        task = self._posting.get(channel)
        if task is None or task.done():
            self._posting[channel] = self._posters.create_task(self._post_due(channel))

    async def _post_due(self, channel: str) -> None:
        while due := [
            each
            for each in self._waiting
            if _channel_of(each) == channel and each.next_at <= self.workspace.now()
        ]:
            await self._request(due[0])

    def _cut_requests(self) -> None:
        """Cut the requests under way; Slack does not learn whether they were received."""
        for channel, task in list(self._posting.items()):
            if not task.done():
                task.cancel()
                (cut, *_) = (each for each in self._waiting if _channel_of(each) == channel)
                self._tried(cut)
        self._posting.clear()
        self._send_due()

    async def _request(self, envelope: Envelope) -> None:
        """Send an event as a signed request."""
        assert self._client
        if envelope.kind == "events_api":
            body, kind = json.dumps(envelope.payload), "application/json"
        elif envelope.kind == "interactive":
            body = urlencode({"payload": json.dumps(envelope.payload)})
            kind = "application/x-www-form-urlencoded"
        else:
            body, kind = urlencode(envelope.payload), "application/x-www-form-urlencoded"
        signed_at = self.workspace.now()
        if self.over_http:  # `pass_time` moves only this clock, not that of the app
            signed_at -= self.workspace.offset
        headers = {"Content-Type": kind, **sign(body, int(signed_at))}
        if envelope.tries:
            headers["X-Slack-Retry-Num"] = str(envelope.tries)
        at = _passed()
        try:
            async with self._client.post(self.requests_to, data=body, headers=headers) as answer:
                fine = answer.status == 200
        except aiohttp.ClientError:
            fine = False
        if fine:
            if _passed() > at + _ACK_SECONDS:
                self.workspace.found.append(f"{envelope.kind} was acknowledged too late")
            envelope.acknowledged.set()
            self._waiting.remove(envelope)
        else:
            self._tried(envelope)
        self.changed.set()

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        file = request.match_info["file"]
        self.calls.append(("upload", ""))
        if self.line:
            await self.line.take(request.content)
            self.workspace.files[file]["size"] = 0
            return web.Response(text="OK")
        fault, content = self._fault("upload"), await request.read()
        if fault.status != 200:
            headers = {"Retry-After": f"{fault.retry_after:g}"} if fault.retry_after else {}
            return web.Response(status=fault.status, headers=headers)
        if fault.drop != "before":
            self.workspace.contents[file] = content
        if fault.drop:
            return _cut(request)
        return web.Response(text=f"OK - {len(self.workspace.contents[file])}")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        file = request.match_info["file"]
        if request.headers.get("Authorization") != f"Bearer {BOT_TOKEN}":
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        self.calls.append(("download", ""))
        fault = self._fault("download")
        if fault.drop:
            return _cut(request)
        if fault.status != 200:
            return web.Response(status=fault.status)
        if fault.page:
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        if self.line:
            return await self.line.give(request)
        kind = self.workspace.files[file]["mimetype"]
        return await self.downloads.serve(request, self.workspace.contents[file], kind)


def _channel_of(envelope: Envelope) -> str:
    payload = envelope.payload
    where = payload.get("event") or payload.get("container") or payload
    return str(where.get("channel") or where.get("channel_id") or "")


async def _arguments(request: web.Request) -> Json:
    found: Json = dict(request.query)
    if request.content_type == "application/json":
        found |= await request.json()
    else:
        for key, value in (await request.post()).items():
            found[key] = value
    for key in ("blocks", "metadata", "files"):
        if isinstance(found.get(key), str):
            found[key] = json.loads(found[key])
    return found


def _refusal(code: str, **more: Any) -> web.Response:
    return web.json_response({"ok": False, "error": code, **more})


def _cut(request: web.Request) -> web.Response:
    if request.transport:
        request.transport.abort()
    return web.Response()


def sign(body: str, timestamp: int, secret: str = SIGNING_SECRET) -> dict[str, str]:
    """Return the headers of a signed request."""
    base = f"v0:{timestamp}:{body}".encode()
    digest = hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": str(timestamp), "X-Slack-Signature": f"v0={digest}"}
