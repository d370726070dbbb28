"""A Telegram of its own process that costs next to nothing, and says how fast people are answered.

It takes what `tests.fakes.telegram` takes of the methods that matter here, but keeps no screens. The
orders come as lines on its standard input, see `tests.bench.orders`. A message is answered when a
message, or the edit of one, holds the end of its answer; a draft is none.
"""

import asyncio
import os
import re
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from urllib.parse import parse_qsl

import msgspec

from gateway.operate.selftest.plain_http import Connection, serve
from tests.bench.answer_service import question
from tests.bench.orders import (
    GROUP,
    PRIVATE,
    Heard,
    Order,
    Reach,
    Reached,
    Report,
    Say,
    Talk,
    Talked,
    Told,
)

TOKEN = "123456789:AAFake-token_of-a-fake-bot"
BOT = {
    "id": 123456789,
    "is_bot": True,
    "first_name": "Bench",
    "username": "bench_bot",
    "can_join_groups": True,
    "can_read_all_group_messages": True,
    "supports_inline_queries": False,
}

_END = re.compile(r"whole-t(\d+)\.")
_LIMIT = 4096
_AT_ONCE = 100  # updates that are given together
_SIGNS = {"👀", "👍", "👎"}
_DRAFTS = frozenset({"sendMessageDraft", "sendRichMessageDraft"})
_LIVE = _DRAFTS | {"editMessageText"}
_MESSAGES = frozenset({"sendMessage", "sendRichMessage", "editMessageText"})
_TRUE = {
    "sendChatAction",
    "setMyCommands",
    "deleteWebhook",
    "setMessageReaction",
    "answerCallbackQuery",
}

Given = dict[str, str]

read_order: Callable[[bytes], Order] = msgspec.json.Decoder(Order).decode
_encode = msgspec.json.encode


class Refused(Exception):
    """Telegram does not take a call."""

    def __init__(self, status: int, description: str, retry_after: int = 0) -> None:
        super().__init__(description)
        self.status = status
        self.body = {"ok": False, "error_code": status, "description": description}
        if retry_after:
            self.body["parameters"] = {"retry_after": retry_after}


class Chats:
    """What people said, and what they were answered."""

    def __init__(self) -> None:
        self.said: dict[int, float] = {}  # by number of the message
        self.answered: dict[int, float] = {}
        self.where: dict[int, int] = {}  # the chat of a message
        self.told: set[int] = set()  # chats that were sent something
        self.answers: dict[int, set[str]] = defaultdict(set)  # messages that hold an answer
        self.shown_live = 0
        self.refused = 0
        self.odd: list[str] = []
        self.edits_apart = 0.0
        self._last_live: dict[str, float] = {}

    def check_pace(self, chat: str) -> None:
        """Refuse a live update that comes too soon."""
        now = time.monotonic()
        if now - self._last_live.get(chat, 0.0) < self.edits_apart:
            self.refused += 1
            msg = "Too Many Requests: retry after 1"
            raise Refused(429, msg, 1)
        self._last_live[chat] = now
        self.shown_live += 1

    def shows(self, chat: str, message: str, text: str) -> None:
        """A message of the bot's has this text now."""
        self.told.add(int(chat))
        for number in map(int, _END.findall(text)):
            if number in self.said:  # not of an order before this one
                self.answers[number].add(message)
                self.answered.setdefault(number, time.monotonic())


class ChatService:
    """See the module."""

    def __init__(self) -> None:
        self.chats = Chats()
        self._updates: deque[tuple[int, bytes]] = deque()
        self._number = 1000
        self._poller: Connection | None = None
        self._polled = 0  # nanoseconds, when a program last asked for the first time
        self._news = asyncio.Event()  # an answer, or a program that asks
        self._reach_from = 0

    # --- what people do ----------------------------------------------------------------------

    def say(self, chat: int, tokens: int, apart: int) -> int:
        """Let something be said; gives the number of the message."""
        self._number += 1
        number = self._number
        text = question(number, tokens, apart)
        user = {"id": abs(chat), "is_bot": False, "first_name": "Ada"}
        place: dict[str, object] = {"id": chat, "type": PRIVATE, "first_name": "Ada"}
        entities: list[dict[str, object]] = []
        if chat < 0:
            place = {"id": chat, "type": GROUP, "title": "A group"}
            name = f"@{BOT['username']}"
            text = f"{name} {text}"
            entities = [{"type": "mention", "offset": 0, "length": len(name)}]
        message = {
            "message_id": number,
            "from": user,
            "chat": place,
            "date": int(time.time()),  # noqa: TID251 - a program looks at how old it is
            "text": text,
            "entities": entities,
        }
        self._updates.append((number, _encode({"update_id": number, "message": message})))
        self.chats.said[number] = time.monotonic()
        self.chats.where[number] = chat
        if self._poller:
            poller, self._poller = self._poller, None
            self._give(poller)
        return number

    # --- the Bot API -------------------------------------------------------------------------

    def asked(self, connection: Connection, path: str, body: bytes) -> None:
        """Take a request."""
        route, _, query = path.partition("?")
        given = dict(parse_qsl(query))
        given.update(parse_qsl(body.decode(), keep_blank_values=True))
        _, bot, method = route.split("/", 2)
        if method == "getUpdates":
            self._poll(connection, given)
            return
        try:
            result = self._carry_out(method if bot == f"bot{TOKEN}" else "", given)
        except Refused as refusal:
            if refusal.status != 429:
                self.chats.odd.append(f"{method}: {refusal}")
            connection.answer(_encode(refusal.body), refusal.status)
            return
        connection.answer(_encode({"ok": True, "result": result}))

    def _carry_out(self, method: str, given: Given) -> object:
        if method in _LIVE:
            self.chats.check_pace(given["chat_id"])
        if method == "setMessageReaction":
            signs = msgspec.json.decode(given.get("reaction", "[]"))
            if any(each["emoji"] not in _SIGNS for each in signs):
                msg = "Bad Request: REACTION_INVALID"
                raise Refused(400, msg)
        if method in _DRAFTS:
            return self._draft(given)
        if method in _MESSAGES:
            return self._message(method, given)
        if method in _TRUE:
            return True
        match method:
            case "getMe":
                return BOT
            case "getChatMember":
                user = {"id": int(given["user_id"]), "is_bot": False, "first_name": "Ada"}
                return {"status": "member", "user": user}
            case "getWebhookInfo":
                return {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
            case _:
                msg = "Not Found"
                raise Refused(404, msg)

    def _draft(self, given: Given) -> bool:
        if int(given["chat_id"]) < 0:
            msg = "Bad Request: TEXTDRAFT_PEER_INVALID"
            raise Refused(400, msg)
        if not int(given.get("draft_id", "0")):
            msg = "Bad Request: DRAFT_ID_INVALID"
            raise Refused(400, msg)
        self._checked(given)
        return True

    def _message(self, method: str, given: Given) -> object:
        text, chat = self._checked(given), given["chat_id"]
        message = given.get("message_id", "")
        if method != "editMessageText":
            self._number += 1
            message = str(self._number)
        self.chats.shows(chat, message, text)
        self._news.set()
        kind = GROUP if int(chat) < 0 else PRIVATE
        return {
            "message_id": int(message),
            "date": 1_790_000_000,
            "chat": {"id": int(chat), "type": kind},
            "from": BOT,
            "text": text,
        }

    @staticmethod
    def _checked(given: Given) -> str:
        if "rich_message" in given:
            return given["rich_message"]
        text = given.get("text", "")
        if not text.strip():
            msg = "Bad Request: message text is empty"
            raise Refused(400, msg)
        if len(text.encode("utf-16-le")) > 2 * _LIMIT:
            msg = "Bad Request: message is too long"
            raise Refused(400, msg)
        return text

    # --- updates

    def _poll(self, connection: Connection, given: Given) -> None:
        before = int(given.get("offset", "0"))
        while self._updates and self._updates[0][0] < before:
            self._updates.popleft()
        if self._polled < self._reach_from:
            self._polled = time.monotonic_ns()
            self._news.set()
        seconds = float(given.get("timeout", "0"))
        if self._updates or not seconds:
            self._give(connection)
            return
        self._poller = connection
        asyncio.get_running_loop().call_later(seconds, self._nothing, connection)

    def _nothing(self, connection: Connection) -> None:
        if self._poller is connection:
            self._poller = None
            connection.answer(b'{"ok":true,"result":[]}')

    def _give(self, connection: Connection) -> None:
        found = [raw for _, raw in list(self._updates)[:_AT_ONCE]]
        connection.answer(b'{"ok":true,"result":[%b]}' % b",".join(found))

    # --- orders ------------------------------------------------------------------------------

    async def obey(self, order: Order) -> Report:
        """Carry out an order."""
        match order:
            case Reach():
                return await self._reach(order)
            case Talk():
                return await self._talk(order)
            case Say():
                for chat in range(order.first, order.first + order.chats):
                    self.chats.told.discard(chat)
                    self.say(chat, order.tokens, order.apart)
                return Reached(time.monotonic_ns())
            case Heard():
                return await self._heard(order)

    async def _reach(self, order: Reach) -> Reached:
        self._reach_from = time.monotonic_ns()
        self._poller = None  # whoever asked before is not meant
        await self._until(lambda: self._polled >= self._reach_from, order.seconds)
        return Reached(self._polled if self._polled >= self._reach_from else 0)

    async def _talk(self, order: Talk) -> Talked:
        chats = self.chats = Chats()
        chats.edits_apart = order.edits_apart
        sign = -1 if order.first < 0 else 1
        open_: set[int] = set()
        began = time.monotonic()
        done = 0

        def move_on() -> bool:
            nonlocal done
            answered = {number for number in open_ if number in chats.answered}
            open_.difference_update(answered)
            while done < order.messages and len(open_) < order.at_once:
                chat = order.first + sign * (done % order.chats)
                open_.add(self.say(chat, order.tokens, order.apart))
                done += 1
            return not open_

        await self._until(move_on, order.seconds)
        ended = max(chats.answered.values(), default=time.monotonic())
        return Talked(
            delays=tuple(at - chats.said[number] for number, at in chats.answered.items()),
            seconds=ended - began,
            missing=order.messages - len(chats.answered),
            twice=sum(len(messages) > 1 for messages in chats.answers.values()),
            shown_live=chats.shown_live,
            refused=chats.refused,
            odd=tuple(chats.odd),
        )

    async def _heard(self, order: Heard) -> Told:
        wanted = range(order.first, order.first + order.chats)
        chats = self.chats
        await self._until(lambda: chats.told.issuperset(wanted), order.seconds)
        answered = {chats.where[number] for number in chats.answered if number in chats.where}
        return Told(
            tuple(chat in chats.told for chat in wanted), tuple(chat in answered for chat in wanted)
        )

    async def _until(self, enough: Callable[[], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not enough():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass


async def _serve() -> None:
    service = ChatService()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with serve(service.asked) as port:
        print(port, flush=True)  # noqa: T201 - whoever started this reads it
        while line := await reader.readline():
            report = await service.obey(read_order(line))
            sys.stdout.buffer.write(_encode(report) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    asyncio.run(_serve())
