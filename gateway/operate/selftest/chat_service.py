"""A chat service that speaks as much of Telegram's Bot API as the daemon uses in private chats.

It keeps every chat as a person sees it, and can go wrong: refuse a message as one too many, fail,
or carry a message out and break off before it says so.
"""

import asyncio
import enum
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from urllib.parse import parse_qsl

import msgspec

from gateway.operate.selftest.plain_http import Connection
from sessions.values.clock import Clock

TOKEN = "1000000001:selftest-token-of-no-bot-at-all-000"  # noqa: S105 - it opens nothing
RETRY_AFTER = 1
"""Seconds for which a chat is closed after a message too many."""

_BOT = {"id": 1000000001, "is_bot": True, "first_name": "Selftest", "username": "selftest_bot"}
DUPLICATE_MARK = "duplicate"
"""In a message that says of itself that it may be a copy."""

_ANSWER_END = re.compile(r"end-of-([a-z]+-\d+)")
_MAX_UPDATES = 100
_CLOCK_TOLERANCE_SECONDS = 0.05  # seconds by which a clock may differ from another

Parameters = dict[str, str]


class ChatFault(enum.Enum):
    """How the next message into a chat goes wrong."""

    TOO_MANY = enum.auto()
    BROKEN = enum.auto()
    CUT_AFTER = enum.auto()  # it is there, but nobody is told


class FakeTelegram:
    """People and their chats; `heard` takes the requests of the bot."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._updates: deque[tuple[int, bytes]] = deque()
        self._polling: Connection | None = None  # asks for updates, and there are none
        self._last_number = 0
        self._chats: dict[int, dict[int, str]] = defaultdict(dict)  # texts by message
        self._faults: dict[int, ChatFault] = {}
        self._closed_until: dict[int, float] = {}
        self._asked_at: dict[str, float] = {}
        self.answer_seconds: dict[str, float] = {}  # from a question to its answer
        self.early_calls = 0  # calls that came before a Retry-After was over
        self.changed = asyncio.Event()

    # --- what people do and see ---------------------------------------------------------------

    def say(self, chat: int, text: str, *, twice: bool = False) -> None:
        """Let somebody say something; `twice`: it is delivered a second time."""
        self._last_number += 1
        message = {
            "message_id": self._last_number,
            "from": {"id": chat, "is_bot": False, "first_name": "Ada"},
            "chat": {"id": chat, "type": "private", "first_name": "Ada"},
            "date": self._clock.now() // 1000,
            "text": text,
        }
        self._asked_at.setdefault(text, self._clock.monotonic())
        for _ in range(2 if twice else 1):
            self._last_number += 1
            update = {"update_id": self._last_number, "message": message}
            self._updates.append((self._last_number, msgspec.json.encode(update)))
        if self._polling:
            self._send_updates(self._polling)

    def fail_next_message(self, chat: int, fault: ChatFault) -> None:
        """Let the next message into a chat go wrong."""
        self._faults[chat] = fault

    def visible_texts(self, chat: int) -> list[str]:
        """What somebody sees, the oldest first."""
        return list(self._chats[chat].values())

    def count_answers(self) -> Counter[str]:
        """How many messages hold the end of the answer to each question, copies that say so apart."""
        return Counter(
            found
            for texts in self._chats.values()
            for text in texts.values()
            if DUPLICATE_MARK not in text
            for found in _ANSWER_END.findall(text)
        )

    async def wait_until(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until something is so; tells whether it came to be so in time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not condition():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    # --- the Bot API --------------------------------------------------------------------------

    def handle_request(self, connection: Connection, path: str, body: bytes) -> None:
        """Take a request of the bot."""
        route, _, query = path.partition("?")
        given = dict(parse_qsl(query))
        given.update(parse_qsl(body.decode(), keep_blank_values=True))
        method = route.rpartition("/")[2]
        if method == "getUpdates":
            self._poll(connection, given)
        elif method in {"sendMessage", "editMessageText"}:
            self._store_message(connection, method, given)
        elif method.startswith("sendRich"):  # an older server: the bot falls back
            _send_error(connection, 404, "Not Found")
        else:
            known = {"getMe": _BOT, "getWebhookInfo": {"url": "", "pending_update_count": 0}}
            _send_result(connection, known.get(method, True))

    def _store_message(self, connection: Connection, method: str, given: Parameters) -> None:
        chat, now = int(given["chat_id"]), self._clock.monotonic()
        if now < self._closed_until.get(chat, 0.0) - _CLOCK_TOLERANCE_SECONDS:
            self.early_calls += 1
        fault = self._faults.pop(chat, None) if method == "sendMessage" else None
        if fault is ChatFault.TOO_MANY:
            self._closed_until[chat] = now + RETRY_AFTER
            _send_error(connection, 429, "Too Many Requests", retry_after=RETRY_AFTER)
            return
        if fault is ChatFault.BROKEN:
            _send_error(connection, 500, "Internal Server Error")
            return
        self._last_number += 1
        message = int(given.get("message_id", self._last_number))
        self._chats[chat][message] = given.get("text", "")
        for found in _ANSWER_END.findall(given.get("text", "")):
            began = self._asked_at.get(question_text(found))
            if began is not None:
                self.answer_seconds.setdefault(found, now - began)
        self.changed.set()
        if fault is ChatFault.CUT_AFTER:
            connection.abort()
            return
        place = {"id": chat, "type": "private"}
        _send_result(connection, {"message_id": message, "date": 1, "chat": place, "from": _BOT})

    def _poll(self, connection: Connection, given: Parameters) -> None:
        before = int(given.get("offset", "0"))
        while self._updates and self._updates[0][0] < before:
            self._updates.popleft()
        seconds = float(given.get("timeout", "0"))
        if self._updates or not seconds:
            self._send_updates(connection)
            return
        self._polling = connection
        asyncio.get_running_loop().call_later(seconds, self._end_poll, connection)

    def _end_poll(self, connection: Connection) -> None:
        if self._polling is connection:
            self._send_updates(connection)

    def _send_updates(self, connection: Connection) -> None:
        self._polling = None
        found = [raw for _, raw in list(self._updates)[:_MAX_UPDATES]]
        connection.answer(b'{"ok":true,"result":[%b]}' % b",".join(found))


def question_text(name: str) -> str:
    """What a person asks; the answer's end names it, so that nothing can be taken for another."""
    return f"tell me [{name}]"


def _send_result(connection: Connection, result: object) -> None:
    connection.answer(msgspec.json.encode({"ok": True, "result": result}))


def _send_error(connection: Connection, status: int, words: str, **parameters: int) -> None:
    said = {"ok": False, "error_code": status, "description": words}
    if parameters:
        said["parameters"] = parameters
    connection.answer(msgspec.json.encode(said), status)
