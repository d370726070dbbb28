"""Telegram as tests play it: the real library, and a Telegram of our own."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from platforms.core.contract import Adapter, Address, Capabilities, PlatformSpec, Surroundings
from platforms.telegram.adapter import TelegramAdapter
from platforms.telegram.config import TelegramConfig
from platforms.telegram.polling import PollTiming
from tests.contract.services.contract import (
    PATIENCE,
    Called,
    Place,
    Seen,
    Service,
    Trouble,
    Words,
    quick,
)
from tests.fakes.quick_time import clock_here
from tests.fakes.telegram.faults import Fault, cut_after, cut_before, failed, too_many
from tests.fakes.telegram.kit import config
from tests.fakes.telegram.server import BOT_NAME, TelegramServer, serving

PERSON, GROUP = 1001, "-1001234"


class _Quick(TelegramAdapter):
    capabilities = quick(TelegramAdapter.capabilities)

    def capabilities_in(self, address: Address) -> Capabilities:
        return quick(super().capabilities_in(address))


class TelegramService(Service):
    """A private chat, and a group with topics."""

    name = "telegram"
    allow: tuple[str, ...] = (f"telegram:{PERSON}",)
    direct = Place(str(PERSON))
    room: Place | None = Place(GROUP)
    deletes = False  # bots are not told

    def __init__(self, server: TelegramServer) -> None:
        self.server = server
        self._said: dict[str, dict[str, Any]] = {}
        self._last = 0
        self._topics = 40

    def spec(self) -> PlatformSpec:
        return PlatformSpec("telegram", TelegramConfig, _build)

    def config(self) -> TelegramConfig:
        return config(self.server)

    @contextlib.asynccontextmanager
    async def meeting(self, adapter: Adapter, url: str) -> AsyncIterator[None]:
        yield

    def address(self, place: Place) -> Address:
        return Address("telegram", place.chat, "", place.thread)

    # --- what people do

    async def utter(self, place: Place, words: Words) -> str:
        text, file = words.text, words.file
        more: dict[str, Any] = {}
        if words.answers:
            more["reply_to_message"] = self._message(place, words.answers)
        if place != self.direct and not words.aside and not text.startswith("/"):
            text = f"@{BOT_NAME} {text}"
            spans = "caption_entities" if file else "entities"
            more[spans] = [{"type": "mention", "offset": 0, "length": len(BOT_NAME) + 1}]
        if file:
            more |= {"caption": text, "document": self._offer(*file)}
        message = self.server.message(
            int(place.chat), "" if file else text, user=PERSON, date=_now(), **more, **_in(place)
        )
        self._said[str(message["message_id"])] = message
        self._last = self.server.put(message=message)
        return str(message["message_id"])

    def _message(self, place: Place, message: str) -> dict[str, Any]:
        if message in self._said:
            return self._said[message]
        (shown,) = (
            each for each in self.server.messages(int(place.chat)) if each.id == int(message)
        )
        return self.server._written(self.server.room(int(place.chat)), shown)

    def _offer(self, name: str, content: bytes, kind: str) -> dict[str, Any]:
        self.server.offer(name, content)
        given = {"file_name": name, "mime_type": kind, "file_size": len(content)}
        return {"file_id": name, "file_unique_id": name, **given}

    async def elsewhere(self) -> Place:
        self._topics += 1
        return Place(GROUP, str(self._topics))

    async def settled(self) -> None:
        await self.server.acknowledged(self._last)

    async def edit(self, place: Place, message: str, text: str) -> None:
        changed = {**self._said[message], "text": text, "edit_date": _now()}
        self._last = self.server.put(edited_message=changed)

    async def press(self, place: Place, label: str) -> None:
        chat = int(place.chat)
        for shown in reversed(self.server.messages(chat)):
            for row in shown.buttons:
                for button in row:
                    if button["text"] == label:
                        self._last = self.server.press(
                            chat, shown, button["callback_data"], user=PERSON
                        )
                        return
        msg = f"there is no button {label!r}"
        raise AssertionError(msg)

    async def command(self, place: Place, word: str, words: str = "") -> None:
        called = "" if place == self.direct else f"@{BOT_NAME}"
        await self.say(place, f"/{word}{called} {words}".strip())

    async def stop(self, place: Place) -> None:
        drafts = self.server.room(int(place.chat)).drafts
        if drafts:
            self._last = self.server.stop(int(place.chat), next(iter(drafts)))
        else:
            await self.stop_as_shown(place)

    # --- what people see

    def seen(self, place: Place) -> list[Seen]:
        messages = [
            Seen(
                each.markdown,
                str(each.id),
                tuple(button["text"] for row in each.buttons for button in row),
                str(each.reply_to or ""),
                each.name,
                each.content,
            )
            for each in self.server.messages(int(place.chat))
            if str(each.thread or "") == place.thread
        ]
        lasting = len(self.server.messages(int(place.chat)))
        drafts = self.server.screen(int(place.chat))[lasting:]
        return [*messages, *(Seen(text, passing=True) for text in drafts)]

    def signs(self, place: Place, message: str) -> list[str] | None:
        sign = self.server.room(int(place.chat)).reactions.get(int(message), "")
        return [{"👍": "✅", "👎": "❌"}.get(sign, sign)] if sign else []

    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        await self.server.until(enough, seconds)

    def violations(self) -> list[str]:
        return self.server.complaints()

    # --- what goes wrong

    def called(self) -> list[Called]:
        return [
            Called(each.method, str(each.given.get("chat_id", ""))) for each in self.server.calls
        ]

    def let_fail(
        self, method: str, trouble: Trouble, place: Place | None, retry_after: float
    ) -> None:
        self.server.fail(
            method, _fault(trouble, int(retry_after)), chat=int(place.chat) if place else None
        )

    def unmet(self) -> list[str]:
        return self.server.unmet

    async def cut(self, *, politely: bool) -> None:
        self.server.cut_polls(politely=politely)

    async def forget(self) -> None:
        """Telegram keeps updates for a day."""


def _build(given: TelegramConfig, surroundings: Surroundings) -> Adapter:
    return _Quick(given, surroundings, poll_timing=PollTiming(poll=5.0), join_scale=0.05)


def _fault(trouble: Trouble, retry_after: int) -> Fault:
    match trouble:
        case Trouble.LIMITED:
            return too_many(retry_after)
        case Trouble.BROKEN:
            return failed()
        case Trouble.CUT_BEFORE:
            return cut_before()
        case Trouble.CUT_AFTER:
            return cut_after()


def _in(place: Place) -> dict[str, Any]:
    if not place.thread:
        return {}
    return {"message_thread_id": int(place.thread), "is_topic_message": True}


def _now() -> int:
    return clock_here().now() // 1000  # the gateway's own clock tells what is stale


@contextlib.asynccontextmanager
async def opened(*, rich: bool = True) -> AsyncIterator[TelegramService]:
    async with serving(rich=rich) as server:
        yield TelegramService(server)
