"""Fake Bot API server on loopback that keeps every chat as its people see it.

Tests send messages and button presses as people, inject faults per method, and inspect the screen.
`violations` records calls that Telegram would punish or that a person would notice.
"""

import asyncio
import contextlib
import json
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
from aiohttp import web

from tests.fakes.allowance import Allowance
from tests.fakes.downloads import Downloads
from tests.fakes.pauses import Pause
from tests.fakes.slow_line import SlowLine
from tests.fakes.telegram.faults import Answer, Fault
from tests.fakes.telegram.look import checked_html, is_low, markdown_of, overlaps, words_of

TOKEN = "123456789:AAFake-token_of-a-fake-bot"
BOT_ID = 123456789
BOT_NAME = "holdfast_bot"
PATIENCE = 5.0

TEXT_LIMIT, CAPTION_LIMIT = 4096, 1024
DRAFT_SECONDS = 30.0
_PER_MINUTE_IN_GROUPS = 20
_BURST = 40
_ON_THE_WAY = 0.3  # seconds
_ROUNDING = 0.01
_PER_SECOND_IN_A_CHAT, _PER_SECOND = 1.0, 30.0

_JSON_FIELDS = {
    "entities",
    "caption_entities",
    "reply_markup",
    "reply_parameters",
    "rich_message",
    "allowed_updates",
    "commands",
    "scope",
    "reaction",
    "link_preview_options",
    "can_stop",
    "is_big",
    "drop_pending_updates",
}
_INTEGERS = {
    "chat_id",
    "message_id",
    "message_thread_id",
    "draft_id",
    "offset",
    "timeout",
    "limit",
    "user_id",
}
_CAPITAL = re.compile(r"[A-Z]")
_PACED = ("send", "edit", "delete")
_TYPES = {
    "bold",
    "italic",
    "underline",
    "strikethrough",
    "spoiler",
    "code",
    "pre",
    "text_link",
    "blockquote",
    "expandable_blockquote",
}
_FILES = ("photo", "document", "audio", "voice", "video", "animation")


@dataclass
class Shown:
    """A message of the bot with its current contents."""

    id: int
    text: str = ""
    entities: list[dict[str, Any]] = field(default_factory=list)
    html: str = ""
    buttons: list[list[dict[str, Any]]] = field(default_factory=list)
    thread: int | None = None
    reply_to: int | None = None
    file: str = ""  # kind of the attachment
    name: str = ""
    content: bytes = b""

    @property
    def markdown(self) -> str:
        return words_of(self.html) if self.html else markdown_of(self.text, self.entities)

    @property
    def actions(self) -> list[str]:
        return [button["callback_data"] for row in self.buttons for button in row]


@dataclass
class Room:
    """State of one chat."""

    id: int
    type: str
    messages: list[Shown] = field(default_factory=list)
    drafts: dict[int, tuple[str, float]] = field(default_factory=dict)
    reactions: dict[int, str] = field(default_factory=dict)
    members: dict[int, str] = field(default_factory=dict)
    typing: bool = False
    gone: str = ""
    moved_to: int = 0
    blocked: Pause | None = None
    sent: deque[float] = field(default_factory=deque)


@dataclass(frozen=True)
class Call:
    """A received request."""

    method: str
    given: dict[str, Any]
    at: float
    peer: object = None  # identity of the connection


class TelegramServer:
    """The server; created by `serving`."""

    def __init__(self, *, rich: bool = True, drafts: bool = True, enforce: bool = False) -> None:
        self.rich = rich  # supports rich messages
        self.drafts = drafts  # supports drafts
        self.enforce = enforce  # answers 429 to calls over the rate limits
        self.url = ""
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self.allowance = Allowance(_PER_SECOND)
        self.rooms: dict[int, Room] = {}
        self.files: dict[str, bytes] = {}
        self.downloads = Downloads()
        self.commands: dict[str, list[str]] = {}
        self.webhook: dict[str, Any] = {}
        self.token_works = True
        self.complaint = ""  # last delivery error of the webhook
        self.complained_at = 1_790_000_000
        self.joins_groups = True
        self.reads_groups = False  # True: privacy mode is off
        self.sizes_hidden = False  # getFile does not report file sizes
        self.line: SlowLine | None = None  # slows down file transfers, if set
        self.turned_away = 0  # webhook requests that were not answered with 200
        self._updates: deque[dict[str, Any]] = deque()
        self._numbers = 5000
        self._messages = 100
        self._acknowledged = 0
        self._faults: dict[str, list[tuple[int | None, Fault]]] = defaultdict(list)
        self._forbidden: dict[str, Pause] = {}  # of methods without a chat
        self._news = asyncio.Condition()
        self._poller: asyncio.Event | None = None
        self._polls: dict[asyncio.Event, web.Request] = {}  # open long polls
        self._closed: set[asyncio.Event] = set()  # polls to end with an error response
        self._unanswered: dict[str, str] = {}
        self._group: asyncio.TaskGroup | None = None
        self._all: deque[float] = deque()  # times of the paced calls within the last second

    # --- inspection --------------------------------------------------------------------------

    def room(self, chat: int) -> Room:
        if chat not in self.rooms:
            self.rooms[chat] = Room(chat, "private" if chat > 0 else "supergroup")
        return self.rooms[chat]

    def messages(self, chat: int) -> list[Shown]:
        return self.room(chat).messages

    def screen(self, chat: int) -> list[str]:
        room = self.room(chat)
        now = asyncio.get_running_loop().time()
        drafts = [text for text, since in room.drafts.values() if now < since + DRAFT_SECONDS]
        return [message.markdown for message in room.messages] + drafts

    def called(self, method: str) -> list[dict[str, Any]]:
        return [call.given for call in self.calls if call.method == method]

    def complaints(self) -> list[str]:
        """Return all violations, including those visible only at the end of a test."""
        left = [f"the button press {number} was never answered" for number in self._unanswered]
        left += [
            f"{room.id}: typing is shown although nothing follows"
            for room in self.rooms.values()
            if room.typing and room.messages
        ]
        left += [
            f"{room.id}: a message still says that it is being written"
            for room in self.rooms.values()
            for message in room.messages
            for action in message.actions
            if action.startswith("stop")
        ]
        return self.violations + left

    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until the condition holds; checked after every call and update."""
        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(enough)
        except TimeoutError:
            seen = {chat: self.screen(chat) for chat in self.rooms}
            last = [call.method for call in self.calls[-20:]]
            msg = f"it never came to that; shown: {seen}; last calls: {last}"
            raise AssertionError(msg) from None

    async def shows(self, chat: int, *texts: str) -> list[Shown]:
        """Wait until each text is part of some message; return all messages of the chat."""
        await self.until(
            lambda: all(
                any(text in each.markdown for each in self.messages(chat)) for text in texts
            )
        )
        return self.messages(chat)

    # --- actions of people -------------------------------------------------------------------

    def user(self, user: int = 1001, **more: Any) -> dict[str, Any]:
        return {"id": user, "is_bot": False, "first_name": "Ada", "last_name": "L.", **more}

    def chat(self, chat: int) -> dict[str, Any]:
        room = self.room(chat)
        if room.type == "private":
            return {"id": chat, "type": "private", "first_name": "Ada"}
        return {"id": chat, "type": room.type, "title": "A group"}

    def message(
        self, chat: int, text: str = "", *, user: int = 1001, date: int | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return a message object as Telegram sends it."""
        self._messages += 1
        made = {
            "message_id": self._messages,
            "from": self.user(user),
            "chat": self.chat(chat),
            "date": date or 1_790_000_000,
            **more,
        }
        if text:
            made["text"] = text
            if text.startswith("/"):
                length = len(text.split(maxsplit=1)[0])
                made.setdefault("entities", []).append(
                    {"type": "bot_command", "offset": 0, "length": length}
                )
        return made

    def put(self, **update: Any) -> int:
        """Queue an update and return its number."""
        self._numbers += 1
        self._updates.append({"update_id": self._numbers, **update})
        self._tell()
        return self._numbers

    def say(self, chat: int, text: str = "", *, user: int = 1001, **more: Any) -> int:
        return self.put(message=self.message(chat, text, user=user, **more))

    def press(self, chat: int, message: Shown, action: str, *, user: int = 1001) -> int:
        """Queue the press of an inline button."""
        number = f"cb{self._numbers + 1}"
        self._unanswered[number] = action
        below = {"message_id": message.id, "chat": self.chat(chat), "date": 1}
        if message.thread:
            below |= {"message_thread_id": message.thread, "is_topic_message": True}
        pressed = {"id": number, "from": self.user(user), "chat_instance": "1", "data": action}
        return self.put(callback_query={**pressed, "message": below})

    def stop(self, chat: int, draft: int) -> int:
        """Queue the press of Stop below a draft."""
        return self.put(stopped_message_generation={"chat": self.chat(chat), "draft_id": draft})

    async def acknowledged(self, number: int) -> None:
        """Wait until the bot has acknowledged an update."""
        await self.until(lambda: self._acknowledged >= number)

    @property
    def waiting(self) -> list[int]:
        """Numbers of the updates not acknowledged yet."""
        return [update["update_id"] for update in self._updates]

    def fail(self, method: str, fault: Fault, times: int = 1, *, chat: int | None = None) -> None:
        """Make the next calls of a method fail, in any chat or in a given one."""
        self._faults[method] += [(chat, fault)] * times

    @property
    def unmet(self) -> list[str]:
        """Methods of the injected faults that no call has met yet."""
        return [method for method, faults in self._faults.items() for _ in faults]

    def cut_polls(self, *, politely: bool) -> None:
        """End every open long poll: politely with an HTTP error, otherwise by aborting."""
        for poll, request in self._polls.items():
            if politely:
                self._closed.add(poll)
            elif request.transport:
                request.transport.abort()
        self._tell()

    def heal(self) -> None:
        """Remove all injected faults."""
        self._faults.clear()

    def offer(self, ref: str, content: bytes) -> None:
        """Provide the content of an attachment."""
        self.files[ref] = content

    # --- the server --------------------------------------------------------------------------

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._news:
                self._news.notify_all()

        assert self._group is not None
        self._group.create_task(tell())

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        if self.line and method == "sendDocument":
            await self.line.take(request.content)
            written = self._written(self.room(1), Shown(1))
            return web.json_response({"ok": True, "result": written})
        given = await self._given(request)
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        self.calls.append(Call(method, given, asyncio.get_running_loop().time(), peer))
        self._tell()
        fault = self._fault(method, given) or self._fault("*", given) or Fault()
        try:
            if request.match_info["token"] != TOKEN or not self.token_works:
                return _refusal(Answer(401, "Unauthorized"))
            result = await self._faulty(method, given, fault, request)
        except Answer as error:
            return _refusal(error)
        finally:
            self._tell()
        if fault.cut:
            request.transport.abort()
            return web.Response()
        if fault.html:
            return web.Response(text="<html>Bad Gateway</html>", status=fault.status)
        return web.json_response({"ok": True, "result": result})

    def _fault(self, method: str, given: dict[str, Any]) -> Fault | None:
        faults = self._faults.get(method, [])
        for place, (chat, fault) in enumerate(faults):
            if chat in {None, given.get("chat_id")}:
                del faults[place]
                return fault
        return None

    async def _faulty(
        self, method: str, given: dict[str, Any], fault: Fault, request: web.Request
    ) -> Any:
        """Apply an injected fault to a call."""
        result = None
        if method in self._forbidden and self._forbidden[method].left() > _ROUNDING:
            self.violations.append(f"{method} before the Retry-After was over")
        if fault.gate and not fault.carried_out:
            await fault.gate.wait()
        if not (fault.status or fault.cut) or fault.carried_out:
            result = await self._carry_out(method, given, request)
        if fault.gate and fault.carried_out:
            await fault.gate.wait()
        if fault.status and not fault.html:
            if fault.retry_after and "chat_id" in given:
                room = self.room(given["chat_id"])
                room.blocked = Pause(fault.retry_after, _ON_THE_WAY)
            elif fault.retry_after:
                self._forbidden[method] = Pause(fault.retry_after)
            more = {"retry_after": fault.retry_after} if fault.retry_after else {}
            raise Answer(fault.status, fault.description, **more)
        return result

    async def _given(self, request: web.Request) -> dict[str, Any]:
        given: dict[str, Any] = dict(parse_qsl(request.query_string))
        if request.method == "POST":
            for name, value in (await request.post()).items():
                if isinstance(value, web.FileField):
                    given[name] = (value.filename, value.file.read())
                else:
                    given[name] = value
        for name, value in given.items():
            if isinstance(value, str) and name in _JSON_FIELDS:
                given[name] = json.loads(value)
            elif isinstance(value, str) and name in _INTEGERS:
                given[name] = int(value)
        return given

    async def download(self, request: web.Request) -> web.StreamResponse:
        if self.line:
            return await self.line.give(request)
        content = self.files.get(request.match_info["path"])
        if content is None:
            return web.Response(status=404)
        return await self.downloads.serve(request, content)

    async def _carry_out(
        self, method: str, given: dict[str, Any], request: web.Request | None = None
    ) -> Any:
        if method == "getUpdates":
            assert request
            return await self._get_updates(given, request)
        handler = getattr(self, f"_do_{_CAPITAL.sub(_lowered, method)}", None)
        rich, draft = method.startswith("sendRich"), method.endswith("Draft")
        if handler is None or (rich and not self.rich) or (draft and not self.drafts):
            raise Answer(404, "Not Found")
        if "chat_id" in given:
            self._check_chat(method, given["chat_id"])
        answer = handler(given)
        if "chat_id" in given and method.startswith(_PACED):
            self._note(method, given["chat_id"])
        return await answer if asyncio.iscoroutine(answer) else answer

    def _note(self, method: str, chat: int) -> None:
        """Record a visible change against the limits of its chat and of the whole bot."""
        now = asyncio.get_running_loop().time()
        self._all.append(now)
        while self._all[0] <= now - 1.0:
            self._all.popleft()
        if len(self._all) > _PER_SECOND and self.enforce:
            self.violations.append(f"{method}: more than {_PER_SECOND:g} calls in a second")
            self.allowance.refused["in all chats"] += 1
        if method != "sendChatAction":
            most, seconds = (_PER_SECOND_IN_A_CHAT, 1) if chat > 0 else (_PER_MINUTE_IN_GROUPS, 60)
            self.allowance.note(str(chat), most, seconds, now)

    def _check_chat(self, method: str, chat: int) -> None:
        room = self.room(chat)
        now = asyncio.get_running_loop().time()
        if room.gone:
            raise Answer(403, f"Forbidden: {room.gone}")
        if room.moved_to:
            raise Answer(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=room.moved_to,
            )
        if room.blocked and room.blocked.left() > _ROUNDING:
            self.violations.append(f"{chat}: {method} before the Retry-After was over")
        if method.startswith(_PACED) and "Draft" not in method and method != "sendChatAction":
            while room.sent and room.sent[0] < now - 60:
                room.sent.popleft()
            most = _PER_MINUTE_IN_GROUPS if chat < 0 else 60 + _BURST
            if len(room.sent) >= most:
                self.violations.append(f"{chat}: {method} is over the documented pace")
                self.allowance.refused[method] += 1
                if self.enforce:
                    room.blocked = Pause(3.0)
                    raise Answer(429, "Too Many Requests: retry after 3", retry_after=3)
            room.sent.append(now)

    # --- updates

    def _do_get_me(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": BOT_ID,
            "is_bot": True,
            "first_name": "Holdfast",
            "username": BOT_NAME,
            "can_join_groups": self.joins_groups,
            "can_read_all_group_messages": self.reads_groups,
            "supports_inline_queries": False,
        }

    async def _get_updates(
        self, given: dict[str, Any], request: web.Request
    ) -> list[dict[str, Any]]:
        if self.webhook.get("url"):
            raise Answer(
                409,
                "Conflict: can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first",
            )
        if self._poller:
            self.violations.append("two programs ask for updates")
            self._poller.set()
        mine = self._poller = asyncio.Event()
        self._polls[mine] = request
        try:
            offset = given.get("offset", 0)
            if offset:
                self._acknowledge(offset - 1)
            kinds = set(given.get("allowed_updates") or ())
            found = self._matching(kinds)
            if not found and given.get("timeout"):
                try:
                    async with asyncio.timeout(given["timeout"]), self._news:
                        await self._news.wait_for(
                            lambda: mine.is_set() or mine in self._closed or self._matching(kinds)
                        )
                except TimeoutError:
                    pass
                found = self._matching(kinds)
            if mine in self._closed:
                raise Answer(502, "Bad Gateway")
            if mine.is_set():
                raise Answer(
                    409,
                    "Conflict: terminated by other getUpdates request; "
                    "make sure that only one bot instance is running",
                )
            return found
        finally:
            del self._polls[mine]
            self._closed.discard(mine)
            if self._poller is mine:
                self._poller = None

    def _matching(self, kinds: set[str]) -> list[dict[str, Any]]:
        return [each for each in self._updates if not kinds or kinds & each.keys()][:100]

    def _acknowledge(self, number: int) -> None:
        self._acknowledged = max(self._acknowledged, number)
        while self._updates and self._updates[0]["update_id"] <= number:
            self._updates.popleft()
        self._tell()

    def _do_set_webhook(self, given: dict[str, Any]) -> bool:
        if given.get("drop_pending_updates"):
            self.violations.append("what was waiting is thrown away")
        self.webhook = given
        return True

    def _do_delete_webhook(self, given: dict[str, Any]) -> bool:
        if given.get("drop_pending_updates"):
            self.violations.append("what was waiting is thrown away")
        self.webhook = {}
        return True

    def _do_get_webhook_info(self, _: dict[str, Any]) -> dict[str, Any]:
        more = {"last_error_date": self.complained_at, "last_error_message": self.complaint}
        return {
            "url": self.webhook.get("url", ""),
            "has_custom_certificate": False,
            "pending_update_count": len(self._updates),
            **(more if self.complaint else {}),
        }

    async def push(self) -> None:
        """Deliver pending updates to the webhook in order, retrying until accepted."""
        async with aiohttp.ClientSession() as client:
            while True:
                async with self._news:
                    await self._news.wait_for(lambda: self._updates and self.webhook.get("url"))
                update = self._updates[0]
                headers = {"X-Telegram-Bot-Api-Secret-Token": self.webhook.get("secret_token", "")}
                try:
                    async with client.post(
                        self.webhook["url"], json=update, headers=headers
                    ) as answer:
                        taken = answer.status == 200
                except aiohttp.ClientError:
                    taken = False
                if taken:
                    self._acknowledge(update["update_id"])
                else:
                    self.turned_away += 1
                    self._tell()
                    await asyncio.sleep(0.02)  # like Telegram, retry later

    # --- messages

    def _do_send_message(self, given: dict[str, Any]) -> dict[str, Any]:
        text = self._checked(given.get("text", ""), given.get("entities", []), TEXT_LIMIT)
        return self._new(given, Shown(0, text, given.get("entities", [])))

    def _do_send_rich_message(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._new(given, Shown(0, html=checked_html(given["rich_message"])))

    def _new(self, given: dict[str, Any], shown: Shown) -> dict[str, Any]:
        room = self.room(given["chat_id"])
        reply = given.get("reply_parameters")
        self._messages += 1
        made = replace(
            shown,
            id=self._messages,
            buttons=self._buttons(given),
            thread=given.get("message_thread_id"),
            reply_to=reply["message_id"] if reply else None,
        )
        room.messages.append(made)
        room.drafts.clear()
        room.typing = False
        return self._written(room, made)

    def _written(self, room: Room, shown: Shown) -> dict[str, Any]:
        return {
            "message_id": shown.id,
            "date": 1_790_000_000,
            "chat": self.chat(room.id),
            "from": self._do_get_me({}),
            "text": shown.text or "x",
        }

    def _checked(self, text: str, entities: list[dict[str, Any]], limit: int) -> str:
        units = text.encode("utf-16-le")
        if not text.strip():
            raise Answer(400, "Bad Request: message text is empty")
        if len(units) // 2 > limit:
            raise Answer(400, "Bad Request: message is too long")
        for entity in entities:
            start, end = entity["offset"], entity["offset"] + entity["length"]
            inside = 0 <= start < end <= len(units) // 2
            if entity["type"] not in _TYPES or not inside:
                self.violations.append(f"a wrong entity: {entity}")
            elif entity["type"] == "text_link" and not entity.get("url"):
                self.violations.append(f"a link that leads nowhere: {entity}")
            elif any(is_low(units, place) for place in (start, end)):
                self.violations.append(f"an entity that tears a character: {entity}")
        self.violations.extend(overlaps(entities))
        return text

    def _buttons(self, given: dict[str, Any]) -> list[list[dict[str, Any]]]:
        rows: list[list[dict[str, Any]]] = (given.get("reply_markup") or {}).get(
            "inline_keyboard", []
        )
        if sum(map(len, rows)) > 100 or any(len(row) > 8 for row in rows):
            raise Answer(400, "Bad Request: reply markup is too long")
        for row in rows:
            for button in row:
                if not 1 <= len(button["callback_data"].encode()) <= 64:
                    raise Answer(400, "Bad Request: BUTTON_DATA_INVALID")
        return rows

    def _find(self, given: dict[str, Any], doing: str) -> Shown:
        for shown in self.room(given["chat_id"]).messages:
            if shown.id == given["message_id"]:
                return shown
        raise Answer(400, f"Bad Request: message to {doing} not found")

    def _do_edit_message_text(self, given: dict[str, Any]) -> dict[str, Any]:
        shown = self._find(given, "edit")
        before = (shown.text, shown.entities, shown.html, shown.buttons)
        html, text = "", ""
        if self.rich and "rich_message" in given:
            html = checked_html(given["rich_message"])
        else:
            text = self._checked(given.get("text", ""), given.get("entities", []), TEXT_LIMIT)
        after = (text, given.get("entities", []), html, self._buttons(given))
        if before == after:
            raise Answer(
                400,
                "Bad Request: message is not modified: specified new message content and reply "
                "markup are exactly the same as a current content and reply markup of the message",
            )
        shown.text, shown.entities, shown.html, shown.buttons = after
        return self._written(self.room(given["chat_id"]), shown)

    def _do_delete_message(self, given: dict[str, Any]) -> bool:
        self.room(given["chat_id"]).messages.remove(self._find(given, "delete"))
        return True

    def _do_send_message_draft(self, given: dict[str, Any]) -> bool:
        text = self._checked(given.get("text", ""), given.get("entities", []), TEXT_LIMIT)
        return self._draft(given, markdown_of(text, given.get("entities", [])))

    def _do_send_rich_message_draft(self, given: dict[str, Any]) -> bool:
        return self._draft(given, words_of(checked_html(given["rich_message"])))

    def _draft(self, given: dict[str, Any], text: str) -> bool:
        room = self.room(given["chat_id"])
        if room.type != "private":
            raise Answer(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        if not given.get("draft_id"):
            raise Answer(400, "Bad Request: DRAFT_ID_INVALID")
        if not given.get("can_stop"):
            self.violations.append("a draft that cannot be stopped")
        room.typing = False
        room.drafts[given["draft_id"]] = (text, asyncio.get_running_loop().time())
        return True

    def _do_send_chat_action(self, given: dict[str, Any]) -> bool:
        room = self.room(given["chat_id"])
        room.typing = given["action"] != "cancel"
        if given["action"] == "cancel":
            room.drafts.clear()
        return True

    def _do_set_message_reaction(self, given: dict[str, Any]) -> bool:
        room = self.room(given["chat_id"])
        signs = [each["emoji"] for each in given.get("reaction") or []]
        if set(signs) - {"👀", "👍", "👎", "🔥", "❤"} or len(signs) > 1:
            raise Answer(400, "Bad Request: REACTION_INVALID")
        room.reactions[given["message_id"]] = "".join(signs)
        return True

    def _do_answer_callback_query(self, given: dict[str, Any]) -> bool:
        if self._unanswered.pop(given["callback_query_id"], None) is None:
            raise Answer(400, "Bad Request: query is too old and response timeout expired")
        return True

    # --- files

    def _upload(self, kind: str, given: dict[str, Any]) -> dict[str, Any]:
        name, content = given[kind]
        limit = 10_000_000 if kind == "photo" else 50_000_000
        if len(content) > limit:
            raise Answer(413, "Request Entity Too Large")
        if kind == "photo" and content.startswith(b"not a picture"):
            raise Answer(400, "Bad Request: IMAGE_PROCESS_FAILED")
        caption = given.get("caption", "")
        if caption:
            self._checked(caption, given.get("caption_entities", []), CAPTION_LIMIT)
        shown = Shown(
            0, caption, given.get("caption_entities", []), file=kind, name=name, content=content
        )
        return self._new(given, shown)

    def _do_get_file(self, given: dict[str, Any]) -> dict[str, Any]:
        ref = given["file_id"]
        if self.line:
            return {"file_id": ref, "file_unique_id": ref, "file_path": ref}
        if ref not in self.files:
            raise Answer(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        size = len(self.files[ref])
        if size > 20_000_000 and not self.sizes_hidden:
            raise Answer(400, "Bad Request: file is too big")
        told = {} if self.sizes_hidden else {"file_size": size}
        return {"file_id": ref, "file_unique_id": ref, "file_path": ref, **told}

    # --- other methods

    def _do_get_chat_member(self, given: dict[str, Any]) -> dict[str, Any]:
        status = self.room(given["chat_id"]).members.get(given["user_id"], "left")
        return {"status": status, "user": self.user(given["user_id"])}

    def _do_set_my_commands(self, given: dict[str, Any]) -> bool:
        scope = given.get("scope", {}).get("type", "default")
        self.commands[scope] = [each["command"] for each in given["commands"]]
        for each in given["commands"]:
            if not 1 <= len(each["command"]) <= 32 or not 1 <= len(each["description"]) <= 256:
                raise Answer(400, "Bad Request: BOT_COMMAND_INVALID")
        return True


for _kind in _FILES:
    setattr(
        TelegramServer,
        f"_do_send_{_kind}",
        lambda self, given, kind=_kind: self._upload(kind, given),
    )


@contextlib.asynccontextmanager
async def serving(
    *, rich: bool = True, drafts: bool = True, enforce: bool = False
) -> AsyncIterator[TelegramServer]:
    """Run the fake server on loopback."""
    server = TelegramServer(rich=rich, drafts=drafts, enforce=enforce)
    app = web.Application(client_max_size=60_000_000)
    app.router.add_route("*", "/bot{token}/{method}", server.handle)
    app.router.add_get("/file/bot{token}/{path}", server.download)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    async with asyncio.TaskGroup() as group:
        server._group = group
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        pusher = group.create_task(server.push())
        try:
            yield server
        finally:
            pusher.cancel()
            await runner.cleanup()


def _lowered(capital: re.Match[str]) -> str:
    return f"_{capital[0].lower()}"


def _refusal(error: Answer) -> web.Response:
    body = {"ok": False, "error_code": error.status, "description": error.description}
    if error.parameters:
        body["parameters"] = error.parameters
    return web.json_response(body, status=error.status)
