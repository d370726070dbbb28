"""Fake Discord on loopback: REST API and gateway, with a person's view of every chat.

In a test: `async with DiscordServer() as discord:` and then `discord.say(...)`, `discord.press(...)`,
`discord.screen(...)`. A test ends by asserting that `discord.violations()` is empty.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import WSMsgType, web

from tests.fakes.allowance import Allowance
from tests.fakes.discord.world import (
    CONTENT_INTENT,
    Channel,
    Guild,
    Payload,
    Refusal,
    World,
    complaints,
    dislikes,
)
from tests.fakes.downloads import Downloads
from tests.fakes.pauses import Pause
from tests.fakes.slow_line import SlowLine

Handler = Callable[[web.Request, Payload], Awaitable[Any]]

TOKEN = "a-token-of-a-bot"
PATIENCE = 5.0
_ROUNDING = 0.02
_ON_THE_WAY = 0.3  # seconds
_PER_SECOND = 50


@dataclass
class Fault:
    """One failure of a call."""

    status: int = 0  # error status to answer with
    retry_after: float = 0.0
    everything: bool = False  # a global 429
    body: Payload | None = None
    cut_before: bool = False
    cut_after: bool = False
    gate: asyncio.Event | None = None  # wait for this event first


@dataclass
class Interaction:
    """A button press or slash command, as its person sees it."""

    id: str
    token: str
    kind: int
    at: float
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    seconds: float | None = None  # time until the first response
    shown: str | None = None  # text visible only to this person
    more: list[str] = field(default_factory=list)  # further such texts


@dataclass
class Session:
    """A gateway session, which can outlive its socket."""

    id: str
    intents: int
    frames: list[str] = field(default_factory=list)
    socket: web.WebSocketResponse | None = None


class DiscordServer:
    """Discord as a bot sees it."""

    def __init__(
        self,
        *,
        heartbeat: float = 40.0,
        pace: tuple[int, float] = (5, 5.0),
        allowed_intents: int = -1,
        names_gateway: bool = True,
        largest_file: int = 10 * 1024 * 1024,
        host: "DiscordHost | None" = None,
        token: str = TOKEN,
    ) -> None:
        self.host = host or DiscordHost()
        self.token = token
        self.world = World(self.host.add(self))
        self.heartbeat = heartbeat
        self.allowed_intents = allowed_intents
        self.accepts_token = True
        self._dumb: set[web.WebSocketResponse] = set()  # sockets that no longer send anything
        self.refuses_gateway = False
        self.door = 0  # port of the proxy in front of the gateway, if there is one
        self.allowance = Allowance(_PER_SECOND)
        self.line: SlowLine | None = None  # slows down file transfers, if set
        self.calls: list[tuple[str, str, Payload]] = []
        self.starts_left = 999  # gateway connections left today
        self.interactions_url = ""  # endpoint that replaces the gateway for interactions
        self.identified = 0
        self.resumed = 0
        self._pace = pace
        self._names_gateway = names_gateway
        self._largest_file = largest_file
        self.downloads = Downloads()
        self._sessions: dict[str, Session] = {}
        self._faults: list[tuple[str, str, Fault]] = []
        self._found: list[str] = []
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}
        self._all: deque[float] = deque()
        self._blocked: dict[str, Pause] = {}
        self._interactions: dict[str, Interaction] = {}
        self._changed = asyncio.Condition()
        self._numbers = 0

    # --- starting and stopping ---------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.host.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for _what, _where, fault in self._faults:
            if fault.gate:
                fault.gate.set()
        await self.cut()
        await self.host.leave(self)

    @property
    def port(self) -> int:
        return self.host.port

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """REST root, the value of `platforms.discord.base_url`."""
        return f"{self.root}/api/v10"

    # --- inspection --------------------------------------------------------------------------

    def shown(self, channel: Channel) -> list[Payload]:
        """Return the bot's messages in a channel."""
        mine = self.world.bot["id"]
        return [each for each in channel.messages.values() if each["author"]["id"] == mine]

    def screen(self, channel: Channel) -> list[str]:
        """Return the texts of the bot's messages, oldest first."""
        return [message["content"] for message in self.shown(channel)]

    def private_texts(self) -> list[str]:
        """Return the answers to interactions, which only the person who asked sees."""
        made = self._interactions.values()
        return [text for each in made for text in (each.shown or "", *each.more)]

    def buttons(self, channel: Channel) -> list[str]:
        """Return the button labels of the bot's last message."""
        last = self.shown(channel)[-1]
        return [button["label"] for row in last["components"] for button in row["components"]]

    def typing(self, channel: Channel) -> bool:
        return channel.typing_until > asyncio.get_running_loop().time()

    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until the condition holds."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(enough)
        except TimeoutError:
            screens = {
                channel.name or channel.id: self.screen(channel)
                for channel in self.world.channels.values()
            }
            msg = f"the condition never held; screens: {screens}, calls: {self.called()}"
            raise AssertionError(msg) from None

    @property
    def online(self) -> bool:
        """True while a bot is connected; interactions without one are lost."""
        return any(session.socket is not None for session in self._sessions.values())

    def called(self, what: str = "") -> list[str]:
        """Return the names of the calls made, such as `POST message`."""
        return [name for name, _, _ in self.calls if what in name]

    def violations(self) -> list[str]:
        """Return the defects that Discord would punish or a person would notice."""
        left = [
            f"{channel.id}: a message still says that it is being written"
            for channel in self.world.channels.values()
            for message in self.shown(channel)
            for row in message["components"]
            for button in row["components"]
            if button["custom_id"].startswith("hf:stop")
        ]
        late = [
            f"interaction {each.id} was not answered in time"
            for each in self._interactions.values()
            if each.seconds is None or each.seconds > 3
        ]
        waiting = [
            f"command {each.id} still shows that the bot is thinking"
            for each in self._interactions.values()
            if each.kind == 2 and each.shown == "thinking"
        ]
        return self._found + left + late + waiting

    # --- actions of people -------------------------------------------------------------------

    async def say(
        self,
        channel: Channel,
        author: Payload,
        text: str,
        *,
        reply_to: str | None = None,
        files: tuple[tuple[str, bytes, str], ...] = (),
        **more: Any,
    ) -> str:
        """Post a message as a person; return its id."""
        attached = [self.world.attach(self.root, *each) for each in files]
        message = self.world.write(
            channel, author, text, reply_to=reply_to, **{"attachments": attached, **more}
        )
        await self._tell_message("MESSAGE_CREATE", message)
        return str(message["id"])

    async def rewrite(self, channel: Channel, message: str, text: str) -> None:
        """Edit a message as its author."""
        found = channel.messages[message]
        self._numbers += 1
        stamp = f"2026-11-18T12:00:00.{self._numbers:06d}+00:00"
        found |= {"content": text, "edited_timestamp": stamp}
        await self._tell_message("MESSAGE_UPDATE", found)

    async def preview(self, channel: Channel, message: str) -> None:
        """Add a link preview, as Discord itself does."""
        found = channel.messages[message]
        found["embeds"] = [{"type": "link"}]
        await self._tell_message("MESSAGE_UPDATE", found)

    async def erase(self, channel: Channel, message: str) -> None:
        """Delete a message as its author."""
        del channel.messages[message]
        data: Payload = {"id": message, "channel_id": channel.id}
        if channel.guild:
            data["guild_id"] = channel.guild
        await self._tell("MESSAGE_DELETE", data)

    async def press(self, channel: Channel, person: Payload, label: str) -> Interaction:
        """Press the newest button with this label as a person."""
        for message in reversed(self.shown(channel)):
            for row in message["components"]:
                for button in row["components"]:
                    if button["label"] == label:
                        data = {"custom_id": button["custom_id"], "component_type": 2}
                        return await self._interact(channel, person, 3, data, message=message)
        msg = f"there is no button {label!r}"
        raise AssertionError(msg)

    async def command(
        self, channel: Channel, person: Payload, name: str, text: str = ""
    ) -> Interaction:
        """Use a slash command as a person."""
        known = next((each for each in self.world.commands if each["name"] == name), None)
        assert known is not None, f"/{name} is not on the menu"
        options = [{"name": "text", "type": 3, "value": text}] if text else []
        return await self._interact(
            channel, person, 2, {"id": "1", "name": name, "options": options}
        )

    async def _interact(
        self, channel: Channel, person: Payload, kind: int, inner: Payload, **more: Any
    ) -> Interaction:
        now = asyncio.get_running_loop().time()
        made = Interaction(self.world.new_id(), f"token-{len(self._interactions)}", kind, now)
        self._interactions[made.token] = made
        data: Payload = {
            "id": made.id,
            "application_id": self.world.bot["id"],
            "type": kind,
            "token": made.token,
            "version": 1,
            "channel_id": channel.id,
            "channel": channel.payload,
            "data": inner,
            "attachment_size_limit": 10 * 2**20,
            **more,
        }
        if channel.guild:
            data["guild_id"] = channel.guild
            data["member"] = self.world.guilds[channel.guild].members[person["id"]]
        else:
            data["user"] = person
        await self._tell("INTERACTION_CREATE", data)
        return made

    # --- faults ------------------------------------------------------------------------------

    def fail(
        self, what: str, fault: Fault, *, channel: Channel | None = None, times: int = 1
    ) -> None:
        """Make the next calls of a kind, such as `POST message`, fail."""
        self._faults += [(what, channel.id if channel else "", fault)] * times

    @property
    def unmet(self) -> list[str]:
        """Kinds of the injected faults that no call has met yet."""
        return [what for what, _, _ in self._faults]

    def forget_nonces(self) -> None:
        """Expire all nonces."""
        self.world.nonces.clear()

    def forget_sessions(self) -> None:
        """Expire all sessions, so that none can be resumed."""
        self._sessions = {
            name: each for name, each in self._sessions.items() if each.socket is not None
        }

    async def cut(self) -> None:
        """Abort every gateway socket without a close frame."""
        for session in self._sessions.values():
            if session.socket and session.socket._req and session.socket._req.transport:
                session.socket._req.transport.abort()
                session.socket = None

    def fall_silent(self) -> None:
        """Keep every gateway socket open but send nothing more, not even heartbeat replies."""
        self._dumb |= {session.socket for session in self._sessions.values() if session.socket}

    async def close_gateway(self, code: int) -> None:
        """Close every gateway socket with a code."""
        for session in list(self._sessions.values()):
            if session.socket:
                await session.socket.close(code=code)

    async def ask_to_reconnect(self) -> None:
        """Request a reconnect, as Discord does before its own restarts."""
        for session in self._sessions.values():
            if session.socket:
                await session.socket.send_json({"op": 7, "d": None})

    async def invalidate(self) -> None:
        """Invalidate all sessions."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            if session.socket:
                await session.socket.send_json({"op": 9, "d": False})

    # --- the gateway -------------------------------------------------------------------------

    async def hello(self, socket: web.WebSocketResponse) -> None:
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": self.heartbeat * 1000}})

    async def frame(self, socket: web.WebSocketResponse, told: Payload) -> Session | None:
        """Handle a frame from a bot; return the session that the frame starts or resumes."""
        match told["op"]:
            case 1 if socket not in self._dumb:
                await socket.send_json({"op": 11, "d": None})
            case 2:
                return await self._identify(socket, told["d"])
            case 6:
                return await self._resume(socket, told["d"])
            case _:
                pass
        return None

    async def _identify(self, socket: web.WebSocketResponse, told: Payload) -> Session | None:
        if told["token"] != self.token or not self.accepts_token:
            await socket.close(code=4004)
            return None
        if told["intents"] & ~self.allowed_intents:
            await socket.close(code=4014)
            return None
        self.identified += 1
        self._numbers += 1
        made = Session(f"session-{self._numbers}", told["intents"], socket=socket)
        self._sessions[made.id] = made
        guilds = self.world.guilds.values()
        ready = {
            "v": 10,
            "user": self.world.bot,
            "guilds": [{"id": guild.id, "unavailable": True} for guild in guilds],
            "session_id": made.id,
            "resume_gateway_url": f"ws://127.0.0.1:{self.door or self.port}/gateway",
            "application": {"id": self.world.bot["id"], "flags": 0},
        }
        await self._send(made, "READY", ready)
        for guild in guilds:
            await self._send(made, "GUILD_CREATE", self._guild(guild))
        await self._notify()
        return made

    def _guild(self, guild: Guild) -> Payload:
        channels = [each for each in self.world.channels.values() if each.guild == guild.id]
        return {
            "id": guild.id,
            "name": "a server",
            "unavailable": False,
            "member_count": len(guild.members),
            "roles": guild.roles,
            "channels": [each.payload for each in channels if not each.parent],
            "threads": [each.payload for each in channels if each.parent],
            "members": [],
            "emojis": [],
            "features": [],
        }

    async def _resume(self, socket: web.WebSocketResponse, told: Payload) -> Session | None:
        found = self._sessions.get(told["session_id"])
        if found is None:
            await socket.send_json({"op": 9, "d": False})
            return None
        self.resumed += 1
        found.socket = socket
        for frame in found.frames[told["seq"] :]:
            await socket.send_str(frame)
        await self._send(found, "RESUMED", {})
        await self._notify()
        return found

    async def _tell(self, kind: str, data: Payload) -> None:
        for session in list(self._sessions.values()):
            await self._send(session, kind, data)
        await self._notify()

    async def _tell_message(self, kind: str, message: Payload, nonce: str = "") -> None:
        for session in list(self._sessions.values()):
            told = self.world.told(message, session.intents)
            await self._send(session, kind, {**told, "nonce": nonce} if nonce else told)
        await self._notify()

    async def _send(self, session: Session, kind: str, data: Payload) -> None:
        """Record a frame for resumes, and send it if a socket is connected."""
        frame = json.dumps({"op": 0, "t": kind, "s": len(session.frames) + 1, "d": data})
        session.frames.append(frame)
        if session.socket and not session.socket.closed and session.socket not in self._dumb:
            with contextlib.suppress(ConnectionError):
                await session.socket.send_str(frame)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # --- REST: common handling ---------------------------------------------------------------

    async def call(self, handler: Handler, name: str, request: web.Request) -> web.StreamResponse:
        """Handle one request from the bot."""
        try:
            return await self._carry_out(handler, name, request)
        finally:
            await self._notify()

    async def _carry_out(
        self, handler: Handler, name: str, request: web.Request
    ) -> web.StreamResponse:
        channel = request.match_info.get("channel", "")
        if self.line and request.content_type.startswith("multipart/"):
            await self.line.take(request.content)
            return _json({"id": self.world.new_id()})
        payload = await _payload(request)
        self.calls.append((name, channel, payload))
        if not self.accepts_token or request.headers.get("Authorization") != f"Bot {self.token}":
            return _json({"message": "401: Unauthorized", "code": 0}, 401)
        fault = self._fault(name, channel)
        if fault.gate:
            await self._notify()
            await fault.gate.wait()
        if fault.cut_before:
            return _abort(request)
        if fault.status:
            return self._refuse(fault, name, channel)
        headers, refused = self._count(name, channel)
        if refused:
            return refused
        try:
            result = await handler(request, payload)
        except Refusal as refusal:
            body = {"message": refusal.message, "code": refusal.code}
            return _json(body, refusal.status, headers)
        if fault.cut_after:
            return _abort(request)
        return (
            web.Response(status=204, headers=headers)
            if result is None
            else _json(result, 200, headers)
        )

    def _fault(self, name: str, channel: str) -> Fault:
        for place, (what, where, fault) in enumerate(self._faults):
            if what == name and where in {"", channel}:
                del self._faults[place]
                return fault
        return Fault()

    def _refuse(self, fault: Fault, name: str, channel: str) -> web.Response:
        if fault.status != 429:
            body = fault.body or {"message": "out of order", "code": 0}
            return _json(body, fault.status)
        pause = Pause(fault.retry_after, min(_ON_THE_WAY, fault.retry_after / 2))
        self._blocked["" if fault.everything else f"{name} {channel}"] = pause
        return _limited(fault.retry_after, everything=fault.everything)

    def _count(self, name: str, channel: str) -> tuple[dict[str, str], web.Response | None]:
        """Count a call; return its rate limit headers, and a 429 if it is over the limit."""
        now = asyncio.get_running_loop().time()
        if name in {"POST callback", "DELETE original", "PATCH original", "POST follow-up"}:
            return {}, None
        for blocked in ("", f"{name} {channel}"):
            left = self._blocked[blocked].left() if blocked in self._blocked else 0.0
            if left > _ROUNDING and (blocked or name != "GET gateway"):
                self._found.append(f"{name} in {channel}: sent before the Retry-After was over")
                return {}, _limited(left, everything=not blocked)
        while self._all and self._all[0] <= now - 1.0:
            self._all.popleft()
        self._all.append(now)
        if len(self._all) > _PER_SECOND:
            self.allowance.refused["in all channels"] += 1
            self._found.append(f"{name}: more than 50 calls in a second")
        if name not in {"POST message", "PATCH message"}:
            return {}, None
        most, seconds = self._pace
        began, used = self._windows.get((name, channel), (now, 0))
        if now >= began + seconds:
            began, used = now, 0
        used += 1
        self._windows[name, channel] = (began, used)
        after = began + seconds - now
        if used > most:
            self._found.append(f"{name} in {channel}: over the pace")
            self.allowance.refused[name] += 1
            return {}, _limited(after, everything=False)
        if name == "PATCH message":
            self.allowance.note(channel, most, seconds, now)
        return {
            "X-RateLimit-Limit": str(most),
            "X-RateLimit-Remaining": str(most - used),
            "X-RateLimit-Reset-After": f"{after:.3f}",
            "X-RateLimit-Reset": f"{self.world.now() / 1000 + after:.3f}",
            "X-RateLimit-Bucket": name.replace(" ", "-"),
        }, None

    # --- REST: calls -------------------------------------------------------------------------

    async def _where(self, _request: web.Request, _payload: Payload) -> Payload:
        if not self._names_gateway:
            raise Refusal(404, 0, "404: Not Found")
        return {
            "url": f"ws://127.0.0.1:{self.door or self.port}/gateway",
            "shards": 1,
            "session_start_limit": {
                "total": 1000,
                "remaining": self.starts_left,
                "reset_after": 1,
                "max_concurrency": 1,
            },
        }

    async def _me(self, _request: web.Request, _payload: Payload) -> Payload:
        return self.world.bot

    async def _application(self, _request: web.Request, _payload: Payload) -> Payload:
        return {
            "id": self.world.bot["id"],
            "name": "Holdfast",
            "icon": None,
            "description": "",
            "bot_public": True,
            "bot_require_code_grant": False,
            "verify_key": "",
            "flags": 0,
            "owner": self.world.bot,
        }

    async def _own_application(self, request: web.Request, payload: Payload) -> Payload:
        content = 1 << 19 if self.allowed_intents & CONTENT_INTENT else 0
        return {
            **await self._application(request, payload),
            "flags": content,
            "approximate_guild_count": len(self.world.guilds),
            "interactions_endpoint_url": self.interactions_url or None,
        }

    async def _show_channel(self, request: web.Request, _payload: Payload) -> Payload:
        return self.world.channel(request.match_info["channel"]).payload

    async def _history(self, request: web.Request, _payload: Payload) -> list[Payload]:
        channel = self.world.channel(request.match_info["channel"])
        limit = int(request.query.get("limit", "50"))
        found = sorted(channel.messages.values(), key=lambda each: int(each["id"]))
        if after := request.query.get("after"):
            later = [each for each in found if int(each["id"]) > int(after)]
            return list(reversed(later[:limit]))
        if before := request.query.get("before"):
            found = [each for each in found if int(each["id"]) < int(before)]
        return list(reversed(found[-limit:]))

    async def _show(self, request: web.Request, _payload: Payload) -> Payload:
        channel = self.world.channel(request.match_info["channel"])
        return self.world.message(channel, request.match_info["message"])

    async def _post(self, request: web.Request, payload: Payload) -> Payload:
        channel = self.world.channel(request.match_info["channel"])
        if not channel.writable:
            raise Refusal(403, 50013, "Missing Permissions")
        self._check(channel, payload)
        nonce = str(payload.get("nonce") or "")
        if nonce and payload.get("enforce_nonce") and nonce in self.world.nonces:
            place, known = self.world.nonces[nonce]
            return self.world.channels[place].messages[known]
        reference = payload.get("message_reference") or {}
        answered = str(reference.get("message_id") or "")
        if (
            answered
            and answered not in channel.messages
            and reference.get("fail_if_not_exists", True)
        ):
            raise Refusal(400, 50035, "Unknown message")
        message = self.world.write(
            channel,
            self.world.bot,
            payload.get("content") or "",
            reply_to=answered or None,
            components=payload.get("components") or [],
            flags=payload.get("flags", 0),
            attachments=[
                self.world.attach(self.root, name, content, kind)
                for name, content, kind in payload.get("_files", ())
            ],
        )
        channel.typing_until = 0.0
        if nonce:
            self.world.nonces[nonce] = (channel.id, message["id"])
        await self._tell_message("MESSAGE_CREATE", message, nonce)
        return {**message, "nonce": nonce} if nonce else message

    async def _edit(self, request: web.Request, payload: Payload) -> Payload:
        channel = self.world.channel(request.match_info["channel"])
        message = self.world.message(channel, request.match_info["message"])
        self._check(channel, {**payload, "attachments": message["attachments"]})
        message["content"] = payload.get("content", message["content"])
        message["components"] = payload.get("components", message["components"])
        message["edited_timestamp"] = "2026-11-18T12:00:00.000000+00:00"
        await self._tell_message("MESSAGE_UPDATE", message)
        return message

    def _check(self, channel: Channel, payload: Payload) -> None:
        self._found += [f"{channel.id}: {each}" for each in dislikes(payload)]
        if any(len(content) > self._largest_file for _, content, _ in payload.get("_files", ())):
            raise Refusal(413, 40005, "Request entity too large")
        if wrong := complaints(payload):
            self._found += [f"{channel.id}: {each}" for each in wrong]
            raise Refusal(400, 50035, f"Invalid Form Body: {wrong[0]}")

    async def _delete(self, request: web.Request, _payload: Payload) -> None:
        channel = self.world.channel(request.match_info["channel"])
        message = self.world.message(channel, request.match_info["message"])
        await self.erase(channel, message["id"])

    async def _react(self, request: web.Request, _payload: Payload) -> None:
        message = self._reacted(request)
        emoji = request.match_info["emoji"]
        if emoji not in {each["emoji"]["name"] for each in message["reactions"]}:
            message["reactions"].append({"emoji": {"name": emoji}, "me": True, "count": 1})

    async def _unreact(self, request: web.Request, _payload: Payload) -> None:
        message, emoji = self._reacted(request), request.match_info["emoji"]
        kept = [each for each in message["reactions"] if each["emoji"]["name"] != emoji]
        message["reactions"] = kept

    def _reacted(self, request: web.Request) -> Payload:
        channel = self.world.channel(request.match_info["channel"])
        return self.world.message(channel, request.match_info["message"])

    def reactions(self, channel: Channel, message: str) -> list[str]:
        return [each["emoji"]["name"] for each in channel.messages[message]["reactions"]]

    async def _typing(self, request: web.Request, _payload: Payload) -> None:
        channel = self.world.channel(request.match_info["channel"])
        channel.typing_until = asyncio.get_running_loop().time() + 10.0

    async def _open(self, _request: web.Request, payload: Payload) -> Payload:
        person = self.world.users.get(str(payload["recipient_id"]))
        if person is None:
            raise Refusal(400, 50033, "Invalid Recipient(s)")
        return self.world.direct(person).payload

    async def _member(self, request: web.Request, _payload: Payload) -> Payload:
        guild = self.world.guilds.get(request.match_info["guild"])
        member = guild.members.get(request.match_info["person"]) if guild else None
        if member is None:
            raise Refusal(404, 10007, "Unknown Member")
        return member

    async def _menu(self, _request: web.Request, payload: Payload) -> list[Payload]:
        self.world.commands = payload["_list"]
        return []

    async def _callback(self, request: web.Request, payload: Payload) -> None:
        found = self._interactions.get(request.match_info["token"])
        if found is None or found.answered.is_set():
            raise Refusal(404, 10062, "Unknown interaction")
        found.seconds = asyncio.get_running_loop().time() - found.at
        if payload["type"] == 5:
            found.shown = "thinking"
            if not (payload.get("data") or {}).get("flags", 0) & _EPHEMERAL:
                self._found.append(f"interaction {found.id} is acknowledged for everyone to see")
        found.answered.set()

    async def _settle(self, request: web.Request, payload: Payload) -> Payload | None:
        found = self._interactions.get(request.match_info["token"])
        if found is None:
            raise Refusal(404, 10015, "Unknown Webhook")
        found.shown = payload.get("content")
        found.settled.set()
        return {"id": self.world.new_id()} if payload else None

    async def _follow_up(self, request: web.Request, payload: Payload) -> Payload:
        found = self._interactions.get(request.match_info["token"])
        if found is None:
            raise Refusal(404, 10015, "Unknown Webhook")
        if not payload.get("flags", 0) & _EPHEMERAL:
            self._found.append(f"interaction {found.id} is answered for everyone to see")
        found.more.append(payload["content"])
        return {"id": self.world.new_id()}


_API = "/api/v10"
_MESSAGES = f"{_API}/channels/{{channel}}/messages"
_REACTION = f"{_MESSAGES}/{{message}}/reactions/{{emoji}}/@me"
_EPHEMERAL = 64
_ORIGINAL = f"{_API}/webhooks/{{app}}/{{token}}/messages/@original"
_ROUTES: tuple[tuple[str, str, str, str], ...] = (
    ("GET", f"{_API}/gateway/bot", "_where", "GET gateway"),
    ("GET", f"{_API}/users/@me", "_me", "GET me"),
    ("GET", f"{_API}/oauth2/applications/@me", "_application", "GET app"),
    ("GET", f"{_API}/applications/@me", "_own_application", "GET own app"),
    ("GET", f"{_API}/channels/{{channel}}", "_show_channel", "GET channel"),
    ("GET", _MESSAGES, "_history", "GET messages"),
    ("POST", _MESSAGES, "_post", "POST message"),
    ("GET", f"{_MESSAGES}/{{message}}", "_show", "GET message"),
    ("PATCH", f"{_MESSAGES}/{{message}}", "_edit", "PATCH message"),
    ("DELETE", f"{_MESSAGES}/{{message}}", "_delete", "DELETE message"),
    ("PUT", _REACTION, "_react", "PUT reaction"),
    ("DELETE", _REACTION, "_unreact", "DELETE reaction"),
    ("POST", f"{_API}/channels/{{channel}}/typing", "_typing", "POST typing"),
    ("POST", f"{_API}/users/@me/channels", "_open", "POST channel"),
    ("GET", f"{_API}/guilds/{{guild}}/members/{{person}}", "_member", "GET member"),
    ("PUT", f"{_API}/applications/{{app}}/commands", "_menu", "PUT commands"),
    (
        "POST",
        f"{_API}/interactions/{{id}}/{{token}}/callback",
        "_callback",
        "POST callback",
    ),
    ("DELETE", _ORIGINAL, "_settle", "DELETE original"),
    ("PATCH", _ORIGINAL, "_settle", "PATCH original"),
    ("POST", f"{_API}/webhooks/{{app}}/{{token}}", "_follow_up", "POST follow-up"),
)


class DiscordHost:
    """HTTP server for one or several fake Discords, told apart by their bots' tokens.

    The library has one address per process, so several fake Discords in one process, each with its
    own world, bot and faults, must share one host.
    """

    def __init__(self) -> None:
        self.port = 0
        self._servers: list[DiscordServer] = []
        self._here = 0  # number of users; the server stops at 0
        self._numbers = 0
        self._runner: web.AppRunner | None = None

    def add(self, server: DiscordServer) -> int:
        """Register a fake Discord; return its number."""
        self._servers.append(server)
        self._numbers += 1
        return self._numbers - 1

    async def start(self) -> None:
        self._here += 1
        if self._runner:
            return
        app = web.Application(client_max_size=30 * 2**20)
        app.add_routes(
            [
                web.get("/gateway", self._gateway),
                web.get("/attachments/{file}/{name}", self._download),
                *(
                    web.route(method, path, self._call(handler, name))
                    for method, path, handler, name in _ROUTES
                ),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def leave(self, server: DiscordServer | None = None) -> None:
        if server:
            self._servers.remove(server)
        self._here -= 1
        if not self._here and self._runner:
            await self._runner.cleanup()
            self._runner = None

    def _of(self, token: str) -> DiscordServer:
        """Return the fake Discord of a bot; the first one handles unknown tokens."""
        return next((each for each in self._servers if each.token == token), self._servers[0])

    def _call(
        self, handler: str, name: str
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def call(request: web.Request) -> web.StreamResponse:
            server = self._of(request.headers.get("Authorization", "").removeprefix("Bot "))
            return await server.call(getattr(server, handler), name, request)

        return call

    async def _gateway(self, request: web.Request) -> web.StreamResponse:
        server = self._servers[0]
        if server.refuses_gateway:
            return web.Response(status=502)
        socket = web.WebSocketResponse(heartbeat=None)
        await socket.prepare(request)
        session: Session | None = None
        try:
            await server.hello(socket)
            async for frame in socket:
                if frame.type is not WSMsgType.TEXT:
                    break
                told = json.loads(frame.data)
                if told["op"] in {2, 6}:
                    server = self._of(told["d"]["token"])
                session = await server.frame(socket, told) or session
        except ConnectionError:
            pass
        finally:
            if session and session.socket is socket:
                session.socket = None
        return socket

    async def _download(self, request: web.Request) -> web.StreamResponse:
        file = request.match_info["file"]
        for server in self._servers:
            if server.line:
                return await server.line.give(request)
            if file in server.world.files:
                return await server.downloads.serve(request, server.world.files[file])
        return web.Response(status=404)


async def _payload(request: web.Request) -> Payload:
    if request.content_type.startswith("multipart/"):
        form = await request.post()
        payload: Payload = json.loads(str(form["payload_json"]))
        payload["_files"] = [
            (each.filename, each.file.read(), each.content_type)
            for each in form.values()
            if isinstance(each, web.FileField)
        ]
        return payload
    body = await request.read()
    told = json.loads(body) if body else {}
    return told if isinstance(told, dict) else {"_list": told}


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    # The library decodes JSON only for exactly this content type.
    sent = {"Content-Type": "application/json", "Via": "1.1 google", **(headers or {})}
    return web.Response(body=json.dumps(body).encode(), status=status, headers=sent)


def _limited(seconds: float, *, everything: bool) -> web.Response:
    body = {"message": "You are being rate limited.", "retry_after": seconds, "global": everything}
    headers = {"Retry-After": f"{seconds:.3f}", "X-RateLimit-Scope": "user"}
    return _json(body, 429, headers)


def _abort(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@contextlib.asynccontextmanager
async def discord_server(**options: Any) -> AsyncIterator[DiscordServer]:
    """Run a server for one test, and fail the test on violations."""
    async with DiscordServer(**options) as server:
        yield server
        assert server.violations() == []


__all__ = ["CONTENT_INTENT", "TOKEN", "DiscordHost", "DiscordServer", "Fault", "discord_server"]
