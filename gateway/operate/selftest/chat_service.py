"""A stand-in for Telegram's Bot API, limited to what the daemon uses in private chats.

The service keeps each chat as a person sees it. On request the service rejects a message with 429,
fails, or breaks the connection after storing a message.
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

TOKEN = "1000000001:selftest-token-of-no-bot-at-all-000"  # noqa: S105 - not a real token
_RETRY_AFTER = 1
"""Seconds for which a chat refuses messages after a 429."""

_BOT = {"id": 1000000001, "is_bot": True, "first_name": "Selftest", "username": "selftest_bot"}
DUPLICATE_MARK = "duplicate"
"""Word that marks a message as a possible duplicate."""

_ANSWER_END = re.compile(r"end-of-([a-z]+-\d+)")
_MAX_UPDATES = 100
_CLOCK_TOLERANCE_SECONDS = 0.05  # allowed difference between the clocks of two processes

Parameters = dict[str, str]


class ChatFault(enum.Enum):
    """Fault to inject into the next message of a chat."""

    TOO_MANY = enum.auto()
    BROKEN = enum.auto()
    CUT_AFTER = enum.auto()  # the message is stored, but the connection breaks before the response


class FakeTelegram:
    """People, their chats, and the Bot API; `handle_request` serves the bot's requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._updates: deque[tuple[int, bytes]] = deque()
        self._polling: Connection | None = None  # long poll without updates so far
        self._last_number = 0
        self._chats: dict[int, dict[int, str]] = defaultdict(dict)  # chat, message: text
        self._faults: dict[int, ChatFault] = {}
        self._closed_until: dict[int, float] = {}
        self._asked_at: dict[str, float] = {}
        self.answer_seconds: dict[str, float] = {}  # time to the answer, by question
        self.early_calls = 0  # calls before the end of a Retry-After
        self.changed = asyncio.Event()

    # --- people -------------------------------------------------------------------------------

    def say(self, chat: int, text: str, *, twice: bool = False) -> None:
        """Send a message as a person; with `twice`, deliver the same message in two updates."""
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
        """Inject a fault into the next message of a chat."""
        self._faults[chat] = fault

    def visible_texts(self, chat: int) -> list[str]:
        """Return the bot's messages visible in a chat, oldest first."""
        return list(self._chats[chat].values())

    def count_answers(self) -> Counter[str]:
        """Count the messages with the end of each answer, without marked duplicates."""
        return Counter(
            found
            for texts in self._chats.values()
            for text in texts.values()
            if DUPLICATE_MARK not in text
            for found in _ANSWER_END.findall(text)
        )

    async def wait_until(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait for a condition on the chats; return False after `timeout_seconds`."""
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
        """Serve a request of the bot."""
        route, _, query = path.partition("?")
        parameters = dict(parse_qsl(query))
        parameters.update(parse_qsl(body.decode(), keep_blank_values=True))
        method = route.rpartition("/")[2]
        if method == "getUpdates":
            self._poll(connection, parameters)
        elif method in {"sendMessage", "editMessageText"}:
            self._store_message(connection, method, parameters)
        elif method.startswith(
            "sendRich"
        ):  # as an older server; the bot falls back to plain messages
            _send_error(connection, 404, "Not Found")
        else:
            known = {"getMe": _BOT, "getWebhookInfo": {"url": "", "pending_update_count": 0}}
            _send_result(connection, known.get(method, True))

    def _store_message(self, connection: Connection, method: str, parameters: Parameters) -> None:
        chat, now = int(parameters["chat_id"]), self._clock.monotonic()
        if now < self._closed_until.get(chat, 0.0) - _CLOCK_TOLERANCE_SECONDS:
            self.early_calls += 1
        fault = self._faults.pop(chat, None) if method == "sendMessage" else None
        if fault is ChatFault.TOO_MANY:
            self._closed_until[chat] = now + _RETRY_AFTER
            _send_error(connection, 429, "Too Many Requests", retry_after=_RETRY_AFTER)
            return
        if fault is ChatFault.BROKEN:
            _send_error(connection, 500, "Internal Server Error")
            return
        self._last_number += 1
        message = int(parameters.get("message_id", self._last_number))
        self._chats[chat][message] = parameters.get("text", "")
        for found in _ANSWER_END.findall(parameters.get("text", "")):
            began = self._asked_at.get(question_text(found))
            if began is not None:
                self.answer_seconds.setdefault(found, now - began)
        self.changed.set()
        if fault is ChatFault.CUT_AFTER:
            connection.abort()
            return
        chat_object = {"id": chat, "type": "private"}
        _send_result(
            connection, {"message_id": message, "date": 1, "chat": chat_object, "from": _BOT}
        )

    def _poll(self, connection: Connection, parameters: Parameters) -> None:
        before = int(parameters.get("offset", "0"))
        while self._updates and self._updates[0][0] < before:
            self._updates.popleft()
        seconds = float(parameters.get("timeout", "0"))
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
    """Return the text of a question; the end of its answer repeats the name."""
    return f"tell me [{name}]"


def _send_result(connection: Connection, result: object) -> None:
    connection.answer(msgspec.json.encode({"ok": True, "result": result}))


def _send_error(connection: Connection, status: int, words: str, **parameters: int) -> None:
    error = {"ok": False, "error_code": status, "description": words}
    if parameters:
        error["parameters"] = parameters
    connection.answer(msgspec.json.encode(error), status)
