"""A Slack workspace in memory: its channels, its Web API, and the violations of Slack's rules."""

import asyncio
import itertools
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from platforms.slack.manifest import SCOPES
from tests.fakes.allowance import Allowance

TEAM, BOT_USER, BOT = "T1", "U0BOT", "B0BOT"
Json = dict[str, Any]

STREAM_LIFE = 300.0
STATUS_LIFE = 120.0
SESSION_LIFE = 3601.0
STREAM_BYTES = 40_000  # not documented

_HISTORY = frozenset({"channels:history", "groups:history", "im:history", "mpim:history"})
METHOD_SCOPES: dict[str, frozenset[str]] = {
    "apps.connections.open": frozenset(),  # needs the app token
    "auth.test": frozenset(),
    "users.info": frozenset({"users:read"}),
    "chat.postMessage": frozenset({"chat:write"}),
    "chat.postEphemeral": frozenset({"chat:write"}),
    "chat.update": frozenset({"chat:write"}),
    "chat.delete": frozenset({"chat:write"}),
    "chat.startStream": frozenset({"chat:write"}),
    "chat.appendStream": frozenset({"chat:write"}),
    "chat.stopStream": frozenset({"chat:write"}),
    "conversations.open": frozenset({"im:write"}),
    "conversations.history": _HISTORY,  # one scope per kind of channel
    "conversations.replies": _HISTORY,
    "reactions.add": frozenset({"reactions:write"}),
    "reactions.remove": frozenset({"reactions:write"}),
    "reactions.get": frozenset({"reactions:read"}),
    "assistant.threads.setStatus": frozenset({"chat:write"}),
    "assistant.threads.setSuggestedPrompts": frozenset({"assistant:write"}),
    "agents.sessions.setStatus": frozenset({"chat:write"}),
    "files.getUploadURLExternal": frozenset({"files:write"}),
    "files.completeUploadExternal": frozenset({"files:write"}),
    "files.info": frozenset({"files:read"}),
    "files.delete": frozenset({"files:write"}),
}
"""Scopes per method, as documented on docs.slack.dev."""

PER_MINUTE = {
    "chat.update": 50,
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "chat.appendStream": 100,
    "conversations.history": 50,
    "conversations.replies": 50,
    "users.info": 100,
    "reactions.add": 50,
    "reactions.remove": 50,
    "agents.sessions.setStatus": 50,
    "assistant.threads.setSuggestedPrompts": 100,
}
_POSTS_AT_ONCE = 10  # burst per channel, followed by one a second

_ON_THE_WAY = 0.3  # seconds within which calls already under way are tolerated

_MASS = re.compile(r"<!(?:channel|here|everyone|subteam\^)|@(?:channel|here|everyone)\b")
_FORBIDDEN = re.compile(r"/(?:resume|retry|stop)\b")


class SlackError(Exception):
    """A response with `ok: false`."""

    def __init__(self, code: str, **more: Any) -> None:
        super().__init__(code)
        self.code = code
        self.more = more


def refuse(code: str) -> NoReturn:
    raise SlackError(code)


class Message:
    """A message in its current state."""

    def __init__(self, ts: str, user: str, text: str, thread: str = "") -> None:
        self.ts = ts
        self.user = user
        self.text = text
        self.thread = thread
        self.blocks: list[Json] = []
        self.metadata: Json | None = None
        self.files: list[Json] = []
        self.streaming = False
        self.stopped_by_user = False
        self.streamed_at = 0.0
        self.mode = ""  # mode of the stream, set by its first content: "chunks" or "markdown_text"
        self.cards: dict[str, tuple[str, str]] = {}  # title and status
        self.layout: list[tuple[str, str]] = []  # pieces of text and cards, in order
        self.reactions: dict[str, list[str]] = {}
        self.edited: str = ""

    @property
    def shown(self) -> str:
        """The text that a person reads."""
        parts = []
        for block in self.blocks:
            if block["type"] == "markdown":
                parts.append(str(block["text"]))
            elif block["type"] == "section":
                parts.append(str(block["text"]["text"]))
        return "\n".join(parts) if parts else self.text

    @property
    def drawn(self) -> str:
        """The message as a person sees it, with cards, buttons, files and reactions."""
        marks = {"in_progress": "◌", "complete": "✓", "error": "✗"}
        lines = self.shown
        if self.cards:
            lines = "".join(
                piece if kind == "text" else self._card(marks, piece) for kind, piece in self.layout
            )
        lines += "".join(f"\n  [{button['text']['text']}]" for button in self.buttons)
        lines += "".join(f"\n  ({file['name']})" for file in self.files)
        signs = " ".join(f":{name}:" for name, users in self.reactions.items() if users)
        return f"{lines}\n  {signs}" if signs else lines

    def _card(self, marks: dict[str, str], card: str) -> str:
        title, status = self.cards[card]
        return f"\n  ┌ {marks[status]} {title}\n"

    @property
    def told(self) -> str:
        """The text as Slack returns it; that of a stream includes the titles of its cards."""
        if not self.cards:
            return self.shown
        return "".join(
            piece if kind == "text" else self.cards[piece][0] for kind, piece in self.layout
        )

    @property
    def buttons(self) -> list[Json]:
        return [
            element
            for block in self.blocks
            if block["type"] == "actions"
            for element in block["elements"]
        ]

    def as_json(self, *, metadata: bool = False) -> Json:
        found: Json = {"type": "message", "ts": self.ts, "user": self.user, "text": self.told}
        if self.user == BOT_USER:
            found["bot_id"] = BOT
        if self.thread:
            found["thread_ts"] = self.thread
        if self.files:
            found["files"] = self.files
            found["subtype"] = "file_share"
        if self.edited:
            found["edited"] = {"user": self.user, "ts": self.edited}
        if metadata and self.metadata:
            found["metadata"] = self.metadata
        return found


class Workspace:
    """Channels, people and files, and the methods of the Web API by name."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:  # noqa: TID251 - Slack has a clock of its own
        self.offset = 0.0
        self.allowance = Allowance()
        self._clock = clock
        self.users: dict[str, Json] = {}
        self.channels: dict[str, list[Message]] = {"D1": []}
        self.archived: set[str] = set()
        self.files: dict[str, Json] = {}
        self.contents: dict[str, bytes] = {}
        self.statuses: dict[tuple[str, str], tuple[str, float]] = {}
        self.sessions: dict[tuple[str, str], str] = {}  # status of the agent session of a thread
        self.sessions_end: dict[tuple[str, str], float] = {}
        self.prompts: dict[tuple[str, str], list[str]] = {}
        self.is_agent = True
        self.scopes = frozenset(SCOPES)
        self.token_of_app = True  # else the token of a person
        self.log: list[tuple[str, Json]] = []
        self.limited: list[str] = []
        self.found: list[str] = []
        self.ephemeral: list[tuple[str, str, str, str]] = []
        """Channel, thread, person and text of messages that only one person sees."""
        self.streams_allowed = True
        self.base = ""  # URL of the server
        self._numbers = itertools.count(1)
        self._last_ts = 0
        self._calls: dict[tuple[str, str], deque[float]] = {}
        self._posts: dict[str, tuple[float, float]] = {}
        self._forbidden: dict[tuple[str, str], tuple[float, float]] = {}  # from, until
        self.add_user("U1", "Ada")
        self.add_user("U2", "Gus", is_restricted=True)
        self.add_user(BOT_USER, "holdfast", is_bot=True)

    # --- access of a test ----------------------------------------------------------------------

    def now(self) -> float:
        return self._clock() + self.offset

    def add_user(self, user: str, name: str, **flags: Any) -> None:
        profile = {"display_name": name, "real_name": name}
        self.users[user] = {"id": user, "team_id": TEAM, "name": name, "profile": profile, **flags}

    def new_ts(self) -> str:
        self._last_ts = max(self._last_ts + 1, int(self.now() * 1_000_000))
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def put(self, channel: str, message: Message) -> Message:
        self.channels.setdefault(channel, []).append(message)
        return message

    def ours(self, channel: str, thread: str | None = None) -> list[Message]:
        return [
            message
            for message in self.channels.get(channel, [])
            if message.user == BOT_USER and thread in {None, message.thread}
        ]

    def screen(self, channel: str, thread: str | None = None) -> list[str]:
        """Return the texts of the app's messages in a channel or thread."""
        return [message.shown for message in self.ours(channel, thread)]

    def get(self, channel: str, ts: str) -> Message:
        for message in self.channels.get(channel, []):
            if message.ts == ts:
                return message
        refuse("message_not_found")

    def calls(self, method: str) -> list[Json]:
        return [arguments for name, arguments in self.log if name == method]

    def violations(self) -> list[str]:
        """Return everything that Slack would punish or a person would notice."""
        left = list(self.found)
        for channel, messages in self.channels.items():
            ops: set[str] = set()
            for message in messages:
                if message.user != BOT_USER:
                    continue
                if message.streaming and self.now() < message.streamed_at + STREAM_LIFE:
                    left.append(f"{channel}: a stream was left open: {message.text[:40]!r}")
                if any(str(each.get("value", "")).startswith("stop") for each in message.buttons):
                    left.append(f"{channel}: a message still has a Stop button")
                if _FORBIDDEN.search(message.shown):
                    left.append(f"{channel}: names a command in a form that Slack does not support")
                op = ((message.metadata or {}).get("event_payload") or {}).get("op")
                if op in ops:
                    left.append(f"{channel}: {op} is shown twice")
                ops.add(op or message.ts)
        for (channel, thread), (status, until) in self.statuses.items():
            if status and self.now() < until:
                left.append(f"{channel}:{thread}: still says {status!r}")
        for (channel, thread), status in self.sessions.items():
            fades = self.sessions_end.get((channel, thread), float("inf"))
            if status == "processing" and self.is_agent and self.now() < fades:
                left.append(f"{channel}:{thread}: the session is still processing")
        return left

    # --- limits --------------------------------------------------------------------------------

    def forbid(self, method: str, channel: str, seconds: float) -> None:
        """Record a scripted 429; calls already under way are tolerated."""
        now = self.now()
        self._forbidden[self._key(method, channel)] = (now + _ON_THE_WAY, now + seconds)

    def check_pace(self, method: str, channel: str) -> float:
        """Record a call; return the Retry-After if it exceeds the limit, else 0."""
        key, now = self._key(method, channel), self.now()
        since, until = self._forbidden.get(key, (0.0, 0.0))
        if since <= now < until - 0.05:
            self.found.append(f"{method} came before the Retry-After was over")
        wait = (
            self._post_wait(channel, now)
            if method == "chat.postMessage"
            else self._call_wait(key, now)
        )
        if wait:
            self.limited.append(method)
            self.allowance.refused[method] += 1
            self.found.append(f"{method} went over the documented pace")
        elif method in PER_MINUTE:
            at = asyncio.get_running_loop().time()  # the clock of the tests
            self.allowance.note(method, PER_MINUTE[method], 60.0, at)
        return wait

    def _post_wait(self, channel: str, now: float) -> float:
        left, at = self._posts.get(channel, (float(_POSTS_AT_ONCE), now))
        left = min(_POSTS_AT_ONCE, left + now - at)
        self._posts[channel] = (max(0.0, left - 1), now)
        return 0.0 if left >= 1 else 1.0

    def _call_wait(self, key: tuple[str, str], now: float) -> float:
        calls = self._calls.setdefault(key, deque())
        while calls and calls[0] <= now - 60.0:
            calls.popleft()
        if len(calls) >= PER_MINUTE.get(key[0], 1000):
            return max(1.0, calls[0] + 60.0 - now)
        calls.append(now)
        return 0.0

    def _key(self, method: str, channel: str) -> tuple[str, str]:
        return method, channel if method == "chat.postMessage" else ""

    # --- the Web API ---------------------------------------------------------------------------

    def carry_out(self, method: str, arguments: Json) -> Json:
        known: dict[str, Callable[[Json], Json]] = {
            "auth.test": self._auth_test,
            "users.info": self._users_info,
            "chat.postMessage": self._post,
            "chat.postEphemeral": self._post_ephemeral,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "chat.startStream": self._start,
            "chat.appendStream": self._append,
            "chat.stopStream": self._stop,
            "conversations.open": self._open,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "reactions.add": self._react,
            "reactions.remove": self._unreact,
            "reactions.get": self._reactions,
            "assistant.threads.setStatus": self._set_status,
            "assistant.threads.setSuggestedPrompts": self._suggest,
            "agents.sessions.setStatus": self._set_session,
            "files.getUploadURLExternal": self._upload_url,
            "files.completeUploadExternal": self._complete,
            "files.info": self._file_info,
            "files.delete": self._delete_file,
        }
        self.log.append((method, arguments))
        if method not in known:
            refuse("unknown_method")
        if missing := METHOD_SCOPES[method] - self.scopes:
            self.found.append(f"{method} without the scope {', '.join(sorted(missing))}")
            code = "missing_scope"
            raise SlackError(code, needed=",".join(sorted(missing)))
        return known[method](arguments)

    def _channel(self, arguments: Json) -> str:
        channel = str(arguments.get("channel") or arguments.get("channel_id") or "")
        if channel not in self.channels:
            refuse("channel_not_found")
        if channel in self.archived:
            refuse("is_archived")
        return channel

    def _open(self, arguments: Json) -> Json:
        """Open the DM with a user; U1 has D1."""
        user = str(arguments.get("users") or "")
        if user not in self.users:
            refuse("user_not_found")
        channel = user.replace("U", "D", 1)
        self.channels.setdefault(channel, [])
        return {"channel": {"id": channel}}

    def _auth_test(self, _: Json) -> Json:
        return {
            "team_id": TEAM,
            "team": "Acme",
            "user_id": BOT_USER,
            "user": "holdfast",
            **({"bot_id": BOT} if self.token_of_app else {}),
        }

    def _users_info(self, arguments: Json) -> Json:
        user = self.users.get(str(arguments["user"]))
        if user is None:
            refuse("user_not_found")
        return {"user": user}

    def _check_blocks(self, blocks: list[Json]) -> None:
        if len(blocks) > 50:
            refuse("invalid_blocks")
        markdown = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
        if markdown > 12_000:
            self.found.append("more Markdown than a message may have")
            refuse("msg_blocks_too_long")
        for block in blocks:
            if block["type"] == "actions" and len(block["elements"]) > 25:
                refuse("invalid_blocks")
            for element in block.get("elements", ()):
                if len(element["text"]["text"]) > 75 or len(element.get("value", "")) > 2000:
                    self.found.append("a button too long")
                    refuse("invalid_blocks")
            if block["type"] == "section" and len(block["text"]["text"]) > 3000:
                refuse("invalid_blocks")

    def _check_text(self, text: str, longest: int) -> None:
        if len(text.encode()) > longest:
            self.found.append("a text too long")
            refuse("msg_too_long")
        self._check_calls(text)

    def _check_calls(self, text: str) -> None:
        if _MASS.search(text):
            self.found.append(f"calls everybody: {_MASS.findall(text)}")

    def _fill(self, message: Message, arguments: Json, longest: int) -> None:
        blocks = arguments.get("blocks") or []
        markdown = arguments.get("markdown_text")
        if markdown and (blocks or arguments.get("text")):
            refuse("markdown_text_conflict")
        if markdown:
            blocks = [{"type": "markdown", "text": markdown}]
        if not blocks and not arguments.get("text"):
            refuse("no_text")
        self._check_blocks(blocks)
        self._check_text(str(arguments.get("text") or ""), longest)
        message.text, message.blocks = str(arguments.get("text") or ""), blocks
        message.cards, message.layout = {}, []
        self._check_calls(message.shown)
        if "metadata" in arguments:
            message.metadata = arguments["metadata"]

    def _post_ephemeral(self, arguments: Json) -> Json:
        channel, user = self._channel(arguments), str(arguments["user"])
        if user not in self.users:
            refuse("user_not_in_channel")
        if "metadata" in arguments or "unfurl_links" in arguments:
            refuse("invalid_arguments")
        message = Message(self.new_ts(), BOT_USER, "")
        self._fill(message, arguments, 40_000)
        thread = str(arguments.get("thread_ts") or "")
        self.ephemeral.append((channel, thread, user, message.shown))
        return {"message_ts": message.ts}

    def _post(self, arguments: Json) -> Json:
        channel = self._channel(arguments)
        thread = str(arguments.get("thread_ts") or "")
        message = Message(self.new_ts(), BOT_USER, "", thread)
        self._fill(message, arguments, 40_000)
        self.put(channel, message)
        self._answered(channel, thread)
        return {"channel": channel, "ts": message.ts, "message": message.as_json()}

    def _answered(self, channel: str, thread: str) -> None:
        self.statuses.pop((channel, thread), None)

    def _own(self, arguments: Json) -> tuple[str, Message]:
        channel = self._channel(arguments)
        message = self.get(channel, str(arguments["ts"]))
        if message.user != BOT_USER:
            refuse("cant_update_message")
        return channel, message

    def _update(self, arguments: Json) -> Json:
        channel, message = self._own(arguments)
        if message.streaming and not self._expired(message):
            refuse("streaming_state_conflict")
        self._fill(message, arguments, 4000)
        return {"channel": channel, "ts": message.ts, "text": message.text}

    def _delete(self, arguments: Json) -> Json:
        channel, message = self._own(arguments)
        if message.streaming and not self._expired(message):
            refuse("streaming_state_conflict")
        self.channels[channel].remove(message)
        return {"channel": channel, "ts": message.ts}

    def _expired(self, message: Message) -> bool:
        if message.streaming and self.now() >= message.streamed_at + STREAM_LIFE:
            message.streaming = False
        return not message.streaming

    def _start(self, arguments: Json) -> Json:
        channel = self._channel(arguments)
        if not self.streams_allowed:
            refuse("channel_type_not_supported")
        thread = str(arguments.get("thread_ts") or "")
        if not thread:
            refuse("invalid_arguments")
        if not channel.startswith("D") and not arguments.get("recipient_user_id"):
            refuse("missing_recipient_user_id")
        if not channel.startswith("D") and not arguments.get("recipient_team_id"):
            refuse("missing_recipient_team_id")
        if arguments.get("task_display_mode", "timeline") not in {"timeline", "plan"}:
            refuse("invalid_arguments")
        message = Message(self.new_ts(), BOT_USER, "", thread)
        self._take(message, arguments)
        self.put(channel, message)
        message.streaming, message.streamed_at = True, self.now()
        self.sessions[channel, thread] = "processing"
        self._answered(channel, thread)
        return {"channel": channel, "ts": message.ts}

    def _streamed(self, arguments: Json) -> tuple[str, Message]:
        channel, message = self._own(arguments)
        if message.stopped_by_user:
            refuse("stopped_by_user")
        if self._expired(message):
            refuse("message_not_in_streaming_state")
        self._take(message, arguments)
        return channel, message

    def _take(self, message: Message, arguments: Json) -> None:
        """Add content to a stream, whose mode is fixed by its first content."""
        text, chunks = arguments.get("markdown_text"), arguments.get("chunks")
        if text and chunks:
            refuse("invalid_arguments")
        mode = "markdown_text" if text else "chunks" if chunks else ""
        if mode and message.mode not in {"", mode}:
            self.found.append("a stream of two kinds")
            refuse("streaming_mode_mismatch")
        message.mode = message.mode or mode
        for chunk in chunks or ([{"type": "markdown_text", "text": text}] if text else []):
            self._take_chunk(message, chunk)
        if len(message.told.encode()) > STREAM_BYTES:
            refuse("msg_too_long")
        self._check_calls(message.told)

    def _take_chunk(self, message: Message, chunk: Json) -> None:
        match chunk:
            case {"type": "markdown_text", "text": str(text)}:
                if not 0 < len(text) <= 12_000:
                    refuse("msg_too_long")
                message.text += text
                message.layout.append(("text", text))
            case {"type": "task_update", "id": str(card), "title": str(title), "status": status}:
                if not title or len(title) > 256 or "\n" in title or len(card) > 256:
                    self.found.append(f"a card's title that does not fit: {title!r}")
                if status not in {"pending", "in_progress", "complete", "error"}:
                    refuse("invalid_arguments")
                if card not in message.cards:
                    message.layout.append(("card", card))
                    if len(message.cards) >= 50:
                        refuse("invalid_arguments")
                message.cards[card] = (title, status)
            case _:
                refuse("invalid_arguments")

    def _append(self, arguments: Json) -> Json:
        if not arguments.get("markdown_text") and not arguments.get("chunks"):
            refuse("no_text")
        channel, message = self._streamed(arguments)
        return {"channel": channel, "ts": message.ts}

    def _stop(self, arguments: Json) -> Json:
        channel, message = self._streamed(arguments)
        message.streaming = False
        for card, (title, status) in message.cards.items():
            if status == "in_progress":
                message.cards[card] = (title, "error")
        self.sessions[channel, message.thread] = str(arguments.get("session_status") or "active")
        blocks = arguments.get("blocks") or []
        self._check_blocks(blocks)
        if blocks:
            message.blocks = [{"type": "markdown", "text": message.text}, *blocks]
        if arguments.get("metadata"):
            message.metadata = arguments["metadata"]
        return {"channel": channel, "ts": message.ts, "message": message.as_json()}

    def _page(self, messages: list[Message], arguments: Json) -> Json:
        limit, start = int(arguments.get("limit") or 100), int(arguments.get("cursor") or 0)
        metadata = str(arguments.get("include_all_metadata")) in {"1", "true", "True"}
        page = messages[start : start + limit]
        more = str(start + limit) if start + limit < len(messages) else ""
        return {
            "messages": [message.as_json(metadata=metadata) for message in page],
            "has_more": bool(more),
            "response_metadata": {"next_cursor": more},
        }

    def _within(self, message: Message, arguments: Json) -> bool:
        at, latest = float(message.ts), arguments.get("latest")
        return at > float(arguments.get("oldest") or 0) and (not latest or at < float(latest))

    def _history(self, arguments: Json) -> Json:
        messages = [
            message
            for message in reversed(self.channels[self._channel(arguments)])
            if message.thread in {"", message.ts} and self._within(message, arguments)
        ]
        return self._page(messages, arguments)

    def _replies(self, arguments: Json) -> Json:
        root = str(arguments["ts"])
        messages = [
            message
            for message in self.channels[self._channel(arguments)]
            if message.ts == root or (message.thread == root and self._within(message, arguments))
        ]
        return self._page(messages, arguments)

    def _reacted(self, arguments: Json) -> tuple[Message, str]:
        message = self.get(self._channel(arguments), str(arguments["timestamp"]))
        name = str(arguments.get("name") or "")
        if not re.fullmatch(r"[a-z0-9_+'-]*", name):
            refuse("invalid_name")
        return message, name

    def _react(self, arguments: Json) -> Json:
        message, name = self._reacted(arguments)
        users = message.reactions.setdefault(name, [])
        if BOT_USER in users:
            refuse("already_reacted")
        users.append(BOT_USER)
        return {}

    def _unreact(self, arguments: Json) -> Json:
        message, name = self._reacted(arguments)
        if BOT_USER not in message.reactions.get(name, []):
            refuse("no_reaction")
        message.reactions[name].remove(BOT_USER)
        return {}

    def _reactions(self, arguments: Json) -> Json:
        message, _ = self._reacted(arguments)
        found = [{"name": name, "users": users} for name, users in message.reactions.items()]
        return {"message": {**message.as_json(), "reactions": found}}

    def _set_status(self, arguments: Json) -> Json:
        channel, thread = self._channel(arguments), str(arguments["thread_ts"])
        self.statuses[channel, thread] = (str(arguments["status"]), self.now() + STATUS_LIFE)
        self._check_calls(str(arguments["status"]))
        return {}

    def _suggest(self, arguments: Json) -> Json:
        channel, prompts = self._channel(arguments), arguments["prompts"]
        fits = all(set(each) == {"title", "message"} and all(each.values()) for each in prompts)
        if not 0 < len(prompts) <= 4 or not fits:
            refuse("invalid_arguments")
        if not arguments.get("thread_ts") and not self.is_agent:
            refuse("invalid_thread_ts")
        self.prompts[channel, str(arguments.get("thread_ts") or "")] = [
            each["message"] for each in prompts
        ]
        return {}

    def _set_session(self, arguments: Json) -> Json:
        if not self.is_agent:
            refuse("not_authorized")
        channel, status = self._channel(arguments), str(arguments["status"])
        if status not in {"active", "processing", "suspended", "closed"}:
            refuse("invalid_arguments")
        thread = str(arguments["thread_ts"])
        self.get(channel, thread)
        self.sessions[channel, thread] = status
        self.sessions_end[channel, thread] = self.now() + SESSION_LIFE
        return {"status": status}

    # --- files ---------------------------------------------------------------------------------

    def add_file(self, name: str, content: bytes, mimetype: str) -> Json:
        file_id = f"F{next(self._numbers)}"
        file = {
            "id": file_id,
            "name": name,
            "title": name,
            "mimetype": mimetype,
            "size": len(content),
            "mode": "hosted",
            "url_private": f"{self.base}files-pri/{file_id}",
            "url_private_download": f"{self.base}files-pri/{file_id}",
        }
        self.files[file_id], self.contents[file_id] = file, content
        return file

    def _upload_url(self, arguments: Json) -> Json:
        file = self.add_file(str(arguments["filename"]), b"", "application/octet-stream")
        file["size"] = int(arguments["length"])
        return {"file_id": file["id"], "upload_url": f"{self.base}upload/{file['id']}"}

    def _complete(self, arguments: Json) -> Json:
        shared = []
        for each in arguments["files"]:
            file = self.files.get(str(each["id"]))
            if file is None or len(self.contents[file["id"]]) != file["size"]:
                refuse("file_not_found")
            shared.append(file)
        if arguments.get("channel_id"):
            channel = self._channel(arguments)
            text = str(arguments.get("initial_comment") or "")
            self._check_calls(text)
            message = Message(self.new_ts(), BOT_USER, text, str(arguments.get("thread_ts") or ""))
            message.files = shared
            self.put(channel, message)
        return {"files": shared}

    def _file_info(self, arguments: Json) -> Json:
        file = self.files.get(str(arguments["file"]))
        if file is None:
            refuse("file_not_found")
        return {"file": file}

    def _delete_file(self, arguments: Json) -> Json:
        file = self.files.pop(str(arguments["file"]), None)
        if file is None:
            refuse("file_not_found")
        for messages in self.channels.values():
            messages[:] = [message for message in messages if file not in message.files]
        return {}
