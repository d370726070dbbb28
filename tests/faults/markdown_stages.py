"""Our adapters, each in front of what judges messages for its platform, with no wire between them.

The libraries are the real ones and so is the judging; only the sockets are left out, since thousands
of texts pass here. A smaller number goes over the wire, in `tests.faults.markdown`.
"""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from telegram import Bot
from telegram.request import BaseRequest, RequestData

from platforms.core.contract import Address, Button, Capabilities, Draft, Edit, Post
from platforms.discord import payloads
from platforms.discord.capabilities import CAPABILITIES as DISCORD
from platforms.discord.format import render
from platforms.slack.calls import SlackClient
from platforms.slack.capabilities import CAPABILITIES as SLACK
from platforms.slack.capabilities import DM_CAPABILITIES
from platforms.slack.format import defuse_mentions
from platforms.slack.read_marks import SlackPlace
from platforms.slack.send import SlackSender
from platforms.slack.status import ThreadStatus
from platforms.telegram.capabilities import PRIVATE
from platforms.telegram.send import TelegramSender
from sessions.values.secret import Secret
from tests.fakes.discord.world import complaints, dislikes
from tests.fakes.slack.workspace import Message, SlackError, Workspace, refuse
from tests.fakes.telegram.faults import Answer
from tests.fakes.telegram.server import _INTEGERS, _JSON_FIELDS, TOKEN, Shown, TelegramServer
from tests.faults.markdown_seen import SLACK_CALLS, discord, slack, telegram_rich, telegram_text
from tests.faults.markdown_signs import Dialect, Sign

FULL = Dialect(
    formulas=True,
    spoilers=True,
    sums=True,
    names=True,
    addresses=True,
    breaks=True,
    references=True,
    html=True,
    scripts=True,
    cells=True,
    bars=True,
    citations=True,
)
UNSAFE = ("tg:", "javascript:", "data:", "file:")


@dataclass(frozen=True)
class Seen:
    """One message, as a person sees it, and as it was given to the platform."""

    signs: list[Sign]
    raw: str
    form: str


class Stage(Protocol):
    """A platform."""

    name: str
    dialect: Dialect
    capabilities: Capabilities
    refused: int
    """Messages that the platform did not take as they were."""
    violations: list[str]

    async def post(self, parts: Iterable[str]) -> list[Seen]:
        """Show whole texts, one below the other."""
        ...

    async def live(self, parts: Iterable[str]) -> list[Seen]:
        """Show an answer that is being written; only the last part goes on."""
        ...


# --- Telegram --------------------------------------------------------------------------------


class _Request(BaseRequest):
    """Hands each call to the small Telegram, as if it had come over the wire."""

    def __init__(self, stage: "TelegramStage") -> None:
        self._stage = stage

    @property
    def read_timeout(self) -> float | None:
        return None

    async def initialize(self) -> None: ...

    async def shutdown(self) -> None: ...

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        *args: Any,
        **timeouts: Any,
    ) -> tuple[int, bytes]:
        given: dict[str, Any] = dict(request_data.json_parameters) if request_data else {}
        for name, value in given.items():
            if name in _JSON_FIELDS:
                given[name] = json.loads(value)
            elif name in _INTEGERS:
                given[name] = int(value)
        try:
            result = await self._stage.carry_out(url.rpartition("/")[2], given)
        except Answer as error:
            answer = {"ok": False, "error_code": error.status, "description": error.description}
            return error.status, json.dumps(answer).encode()
        return 200, json.dumps({"ok": True, "result": result}).encode()


class TelegramStage:
    """`refuse` names forms that this server does not take: `rich`, `entities`."""

    name = "telegram"
    dialect = FULL
    capabilities = PRIVATE

    def __init__(self, *refuse: str) -> None:
        self.refused = 0
        self._server = TelegramServer(rich="rich" not in refuse)
        self._refuse = refuse
        self.violations = self._server.violations
        self._bot = Bot(TOKEN, request=_Request(self), get_updates_request=_Request(self))
        self._show = TelegramSender(self._bot, self._moved)
        self._chats = itertools.count(1)
        self._draft: dict[str, Any] = {}

    async def _moved(self, _old: int, _new: int) -> None: ...

    async def carry_out(self, method: str, given: dict[str, Any]) -> Any:
        if "entities" in self._refuse and given.get("entities"):
            self.refused += 1
            raise Answer(400, "Bad Request: can't parse entities")
        if "Draft" in method:
            self._draft = given
        try:
            return await self._server._carry_out(method, given)
        except Answer:
            self.refused += 1
            raise

    async def post(self, parts: Iterable[str]) -> list[Seen]:
        await self._bot.initialize()  # once; the library then knows that its token is good
        chat = next(self._chats)
        for number, part in enumerate(parts):
            await self._show.deliver(Post(f"{chat}.{number}", Address("telegram", str(chat)), part))
        found = [shown_on_telegram(each) for each in self._server.messages(chat)]
        del self._server.rooms[chat]
        return found

    async def live(self, parts: Iterable[str]) -> list[Seen]:
        *done, last = parts
        found = await self.post(done)
        address = Address("telegram", str(next(self._chats)))
        await self._show.deliver(Draft("d", address, draft="draft", text=last))
        given, self._draft = self._draft, {}
        html = (given.get("rich_message") or {}).get("html", "")
        return [
            *found,
            shown_on_telegram(Shown(0, given.get("text", ""), given.get("entities", []), html)),
        ]


def shown_on_telegram(shown: Shown) -> Seen:
    addresses = [str(each.get("url", "")) for each in shown.entities]
    unsafe = [each for each in addresses if each.lower().startswith(UNSAFE)]
    assert not unsafe, unsafe
    assert not any(f'href="{each}' in shown.html.lower() for each in UNSAFE), shown.html
    if shown.html:
        return Seen(telegram_rich(shown.html), shown.html, "rich")
    form = "entities" if shown.entities else "plain"
    return Seen(telegram_text(shown.text, shown.entities), shown.text, form)


# --- Discord ---------------------------------------------------------------------------------


class DiscordStage:
    name = "discord"
    dialect = FULL
    capabilities = DISCORD

    def __init__(self) -> None:
        self.refused = 0
        self.violations: list[str] = []

    async def post(self, parts: Iterable[str]) -> list[Seen]:
        return [self._shown(payloads.message_payload(render(part), op="op")) for part in parts]

    async def live(self, parts: Iterable[str]) -> list[Seen]:
        found = [
            payloads.message_payload(render(part), (Button("Stop", "stop:t_1"),)) for part in parts
        ]
        return [self._shown(payload) for payload in found]

    def _shown(self, payload: dict[str, Any]) -> Seen:
        wrong = complaints(payload)
        self.refused += bool(wrong)
        self.violations += wrong + dislikes(payload)
        signs, pings = discord(payload["content"])
        self.violations += [f"names {each}" for each in pings]
        return Seen(signs, payload["content"], "text")


# --- Slack -----------------------------------------------------------------------------------


class _Client(AsyncWebClient):
    """Hands each call to the small Slack."""

    def __init__(self, stage: "SlackStage") -> None:
        super().__init__("xoxb-none")
        self._stage = stage

    async def api_call(self, api_method: str, **given: Any) -> Any:
        arguments = {**(given.get("params") or {}), **(given.get("json") or {})}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        try:
            answer = self._stage.carry_out(api_method, arguments)
        except SlackError as error:
            data = {"ok": False, "error": error.code}
            raise SlackApiError(  # type: ignore[no-untyped-call]
                error.code, SimpleNamespace(data=data, status_code=200, headers={})
            ) from error
        return SimpleNamespace(data={"ok": True, **json.loads(json.dumps(answer))}, headers={})


class _Clock:
    """Far more time passes than anything has to wait for."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> int:
        return int(self._seconds * 1000)

    def monotonic(self) -> float:
        self._seconds += 100.0
        return self._seconds


async def _forget(_kept: str) -> None: ...


class SlackStage:
    """`refuse`: whether Slack does not take blocks of Markdown."""

    name = "slack"
    dialect = Dialect(
        html=True,
        plain_html=True,
        formulas=True,
        breaks=True,
        references=True,
        citations=True,
        scripts=True,
        cells=True,
    )
    capabilities = SLACK
    in_dms = DM_CAPABILITIES

    def __init__(self, *, refuse: bool = False) -> None:
        self.refused = 0
        self.workspace = Workspace()
        self.violations = self.workspace.found
        self._refuse = refuse
        calls = SlackClient(Secret("xoxb-none"), "http://127.0.0.1:1/", _Clock())
        calls._client = _Client(self)
        self._show = SlackSender(calls, ThreadStatus(calls, _forget))
        self._numbers = itertools.count(1)

    def carry_out(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        blocks = arguments.get("blocks") or []
        if self._refuse and any(each["type"] == "markdown" for each in blocks):
            self.refused += 1
            refuse("invalid_blocks")
        try:
            return self.workspace.carry_out(method, arguments)
        except SlackError:
            self.refused += method.startswith("chat.")  # what else is called shows no text
            raise

    async def post(self, parts: Iterable[str]) -> list[Seen]:
        for part in parts:
            op = Post(f"op {next(self._numbers)}", Address("slack", "D1"), part)
            await self._show.post(op, "D1", None, "U0BOT")
        return self._screen()

    async def live(self, parts: Iterable[str]) -> list[Seen]:
        """In a DM, where a message is edited."""
        for part in parts:
            op = Post(f"op {next(self._numbers)}", Address("slack", "D1"), part, streaming=True)
            await self._show.post(op, "D1", None, "U0BOT")
        return self._screen()

    async def stream(self, texts: list[str]) -> tuple[list[str], Seen]:
        """In a thread, where a message grows; gives what was seen at each moment."""
        self.workspace.channels["C1"] = []
        place, address = (
            SlackPlace(channel="C1", thread="1.0", user="U1", team="T1"),
            Address("slack", "C1", thread="1.0"),
        )
        name = f"op {next(self._numbers)}"
        message = ""
        moments = []
        for text in texts[:-1]:
            if message:
                await self._show.edit(
                    Edit(f"{name}.e", address, message=message, text=text, streaming=True), "C1"
                )
            elif text.strip():
                op = Post(name, address, text, streaming=True)
                message = (await self._show.post(op, "C1", place, "U0BOT")).message
            moments.append("".join(each.shown for each in self.workspace.channels["C1"]))
        await self._show.edit(Edit(f"{name}.e", address, message=message, text=texts[-1]), "C1")
        (shown,) = self._take("C1")
        return moments, shown

    def _screen(self) -> list[Seen]:
        return self._take("D1")

    def _take(self, channel: str) -> list[Seen]:
        found = [self._shown(each) for each in self.workspace.channels[channel]]
        self.workspace.channels[channel] = []
        self.workspace.log.clear()
        return found

    def _shown(self, message: Message) -> Seen:
        calls = SLACK_CALLS.findall(message.shown + message.text)
        self.violations.extend(f"calls {each}" for each in calls)
        if any(block["type"] == "section" for block in message.blocks):
            return Seen([], message.shown.replace("\n", ""), "plain")
        return Seen(slack(message.shown), message.shown, "markdown")


def expected_plain(part: str) -> str:
    """What Slack's plain form has to show."""
    return defuse_mentions(part).replace("\n", "")
