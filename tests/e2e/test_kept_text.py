"""A kill -9 in the middle of streamed answers: the text that people have read is kept.

One daemon answers on all platforms and on the page at once. The live updates on Discord, 1.2 s
apart, are the clock of the test: what anybody saw at one update must be stored at the next one.
"""

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec
import pytest

from sessions.records import Message
from tests.e2e.chat_users import ChatUsers, OnDiscord, OnSlack, OnTelegram
from tests.e2e.daemon import Daemon, Page
from tests.e2e.gateway_kit import opened
from tests.fakes.dialects.requests import Asked, read_request
from tests.fakes.discord.server import discord_server
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.server import SlackServer
from tests.fakes.telegram.server import serving

pytestmark = pytest.mark.process

COUNT = 140  # words of a story
PAUSE = 0.05  # seconds between two words: the story is not over when the daemon dies
UPDATES = 5  # live updates on Discord until the kill
REPEATED = 6  # words that the model says again when it continues
PATIENCE = 30.0

_WORD = re.compile(r"w(\d)-(\d{3})")


def story(number: int) -> list[str]:
    return [f"w{number}-{at:03d}" for at in range(COUNT)]


def told(number: int, *texts: str) -> list[int]:
    """Positions of the words of a story in the texts, in order."""
    found = (_WORD.findall(text) for text in texts)
    return [int(at) for each in found for story_, at in each if story_ == str(number)]


class Storyteller:
    """Tells a story word by word; continues behind the last word that a request contains.

    With a note that the answer was cut, the model first repeats its last words, as models do.
    """

    def __call__(self, body: dict[str, Any]) -> Script:
        asked = read_request("chat", msgspec.json.encode(body))
        number = story_in(asked)
        known = told(number, *(row["content"] for row in asked.messages if row["role"] != "user"))
        start = known[-1] + 1 if known else 0
        if known and asked.last_user_text.startswith("["):
            start -= REPEATED
        pause = 0.0 if known else PAUSE
        return words(" ".join(story(number)[start:]), pause)


def story_in(asked: Asked) -> int:
    (number,) = re.findall(r"story (\d)", asked.messages[0]["content"])
    return int(number)


class Front(Protocol):
    """One conversation of a person, wherever it is."""

    number: int
    key: str
    continues: str

    async def say(self, text: str) -> None: ...

    def shown(self) -> list[str]:
        """Return the texts of the agent that the person sees."""
        ...

    async def press_continue(self) -> None: ...

    async def until(self, enough: Callable[[], bool]) -> None: ...


class ChatFront:
    """A conversation on a chat platform."""

    def __init__(
        self,
        number: int,
        key: str,
        continues: str,
        place: OnTelegram | OnDiscord | OnSlack,
        person: int,
        press: Callable[[], Awaitable[None]],
    ) -> None:
        self.number, self.key, self.continues = number, key, continues
        self._place, self._person, self._press = place, person, press

    async def say(self, text: str) -> None:
        slack = isinstance(self._place, OnSlack)
        await self._place.say(self._person, text.replace("/", "!") if slack else text)

    def shown(self) -> list[str]:
        if isinstance(self._place, OnTelegram):
            return self._place.server.screen(1001 + self._person)
        return self._place.shown(self._person)

    async def press_continue(self) -> None:
        await self._press()

    async def until(self, enough: Callable[[], bool]) -> None:
        await self._place.until(enough, PATIENCE)


class PageFront:
    """A conversation on the page, with the draft that an open page shows."""

    def __init__(self, number: int, continues: str, page: Page) -> None:
        self.number, self.continues = number, continues
        self.chat = f"chat-{number}"
        self.key = f"web:{self.chat}"
        self._page = page
        self._rows: dict[str, dict[str, Any]] = {}
        self._drafts: dict[str, str] = {}
        self._news = asyncio.Condition()
        self._sent = 0

    async def say(self, text: str) -> None:
        self._sent += 1
        assert await self._page.send(self.chat, text, f"message-{self._sent:04d}") == 202

    def shown(self) -> list[str]:
        rows = sorted(self._rows.values(), key=lambda row: row["seq"])
        return [*(row["text"] for row in rows if row["author"] != "user"), *self._drafts.values()]

    async def press_continue(self) -> None:
        (action,) = (
            button["action"]
            for row in self._rows.values()
            for button in row["buttons"]
            if button["label"] == "Continue"
        )
        self._sent += 1
        assert await self._page.press(self.chat, action, f"message-{self._sent:04d}") == 202

    async def until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(enough)

    async def watch(self) -> None:
        """Follow the conversation as an open page does, until the stream ends."""
        self._drafts.clear()
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async for name, data in self._page.events(self.chat):
                if name == "row":
                    self._rows[data["id"]] = data
                    self._drafts.pop(data["id"], None)
                elif name == "draft" and data.get("gone"):
                    self._drafts.pop(data["id"], None)
                elif name == "draft":
                    before = self._drafts.get(data["id"], "")
                    self._drafts[data["id"]] = data.get("text", before + data.get("add", ""))
                async with self._news:
                    self._news.notify_all()


def checkpoints(home: Path) -> list[str]:
    """Return the stored texts of the running turns."""
    path = home / "holdfast.db"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT partial FROM turns WHERE state = 'running'").fetchall()
    return [text for (text,) in rows]


def missing(fronts: list[Front], seen: dict[str, list[int]], home: Path) -> dict[str, list[int]]:
    """Return the words that people had seen and the store does not have, by conversation."""
    stored = checkpoints(home)
    lost = {
        front.key: sorted({*seen[front.key]} - {*told(front.number, *stored)}) for front in fronts
    }
    return {key: words_ for key, words_ in lost.items() if words_}


@contextlib.asynccontextmanager
async def staged(
    home: Path,
) -> AsyncIterator[tuple[Daemon, list[Front], list[PageFront], ModelServer]]:
    async with (
        ModelServer(Storyteller()) as model,
        serving() as telegram,
        discord_server() as discord,
        SlackServer() as slack,
    ):
        chats = OnTelegram(telegram, together=False)
        direct = OnDiscord(discord, 2, together=False)
        threads, dms = OnSlack(slack, 1, together=True), OnSlack(slack, 1, together=False)
        platforms: dict[str, ChatUsers] = {"telegram": chats, "discord": direct, "slack": dms}
        daemon = Daemon(
            home,
            "model.name=scripted",
            "gateway.stale_after=3650d",
            f"model.base_url={model.url}",
            'access.allow=["telegram:*", "discord:*", "slack:*"]',
            *(
                f"platforms.{name}.{key}={str(value).lower() if isinstance(value, bool) else value}"
                for name, place in platforms.items()
                for key, value in place.config().items()
            ),
            env={"OPENAI_API_KEY": "sk-none"},
            warm=True,
        )

        async def press_telegram() -> None:
            (notice,) = (each for each in telegram.messages(1001) if "♻️" in each.markdown)
            (action,) = (each for each in notice.actions if each.startswith("resume"))
            telegram.press(1001, notice, action, user=1001)

        async def press_discord() -> None:
            await discord.press(direct._places[0], direct._people[0], "Continue")

        async def press_slack() -> None:
            (notice,) = (m for m in slack.workspace.ours("D10") if "♻️" in m.shown)
            await slack.press("D10", notice.ts, "Continue", user="U10")

        async def nowhere() -> None:
            raise AssertionError

        async with daemon, Page(daemon) as page:
            pages = [PageFront(6, "button", page), PageFront(7, "words", page)]
            discord_chats = [place.id for place in direct._places]
            fronts: list[Front] = [
                ChatFront(0, f"discord:{discord_chats[0]}", "button", direct, 0, press_discord),
                ChatFront(1, f"discord:{discord_chats[1]}", "words", direct, 1, nowhere),
                ChatFront(2, "telegram:1001", "button", chats, 0, press_telegram),
                ChatFront(3, "telegram:1002", "words", chats, 1, nowhere),
                ChatFront(4, "slack:T1/D10", "button", dms, 0, press_slack),
                ChatFront(5, "slack:T1/C1", "words", threads, 0, nowhere),
                *pages,
            ]
            yield daemon, fronts, pages, model


@pytest.mark.timeout(120)
async def test_text_that_was_read_survives_a_kill_and_is_continued_without_a_repeat(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with staged(home) as (daemon, fronts, pages, model):
        seen: dict[str, list[int]] = {}
        async with asyncio.TaskGroup() as group:
            watchers = [group.create_task(each.watch()) for each in pages]
            for front in fronts:
                await front.say(f"story {front.number}")
            clock = fronts[0]
            lost: dict[str, list[int]] = {}
            for update in range(UPDATES):
                before = clock.shown()
                await clock.until(lambda before=before: clock.shown() != before)  # type: ignore[misc]
                lost = missing(fronts, seen, home) if seen else {}
                if lost or update == UPDATES - 1:
                    break
                seen = {each.key: told(each.number, *each.shown()) for each in fronts}
            await daemon.kill()
            for watcher in watchers:
                await watcher
        assert not lost, f"seen 1.2 s ago and not stored: {lost}"
        assert all(seen.values()), f"nothing was shown: {seen}"
        await restarted(daemon, fronts, pages, model, seen)
    async with opened(home) as store:
        for front in fronts:
            (session,) = [
                each for each in await store.sessions.list() if each.key.startswith(front.key)
            ]
            history = await store.sessions.history(session.id)
            assert {*seen[front.key]} <= {*told(front.number, kept(history))}, front.key
            assert whole(front, *(row.content for row in history if row.role == "assistant"))


async def restarted(
    daemon: Daemon,
    fronts: list[Front],
    pages: list[PageFront],
    model: ModelServer,
    seen: dict[str, list[int]],
) -> None:
    """Start the daemon again, and let everybody continue."""
    daemon.forget_crashes()
    await daemon.start()
    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(each.watch()) for each in pages]
        for front in fronts:
            await front.until(lambda front=front: any("♻️" in t for t in front.shown()))  # type: ignore[misc]
            assert {*seen[front.key]} <= {*told(front.number, *front.shown())}, front.key
            asked = len(model.requests)
            if front.continues == "button":
                await front.press_continue()
            else:
                await front.say("/resume")
                await front.until(lambda front=front: any("↩️ Back" in t for t in front.shown()))  # type: ignore[misc]
                await front.say("continue")
            request = await model.request(asked + 1)
            contents = [row["content"] for row in request.asked.messages]
            assert {*seen[front.key]} <= {*told(front.number, *contents)}, front.key
            await front.until(lambda front=front: whole(front, *front.shown()))  # type: ignore[misc]
        assert await daemon.stop() == 0
        for watcher in watchers:
            await watcher


def whole(front: Front, *texts: str) -> bool:
    """Return True if the texts together are the story, each word once."""
    return told(front.number, *texts) == list(range(COUNT))


def kept(history: tuple[Message, ...]) -> str:
    """Return the text of the interrupted row."""
    (row,) = (row for row in history if row.interrupted)
    return row.content
