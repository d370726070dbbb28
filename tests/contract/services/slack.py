"""The Slack service of the contract tests: the real client in front of the fake Slack."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from platforms.core.contract import Adapter, Address, Capabilities, PlatformSpec, Surroundings
from platforms.slack import SlackConfig
from platforms.slack.adapter import SlackAdapter
from platforms.slack.capabilities import CAPABILITIES
from platforms.slack.webhook import EVENTS_PATH
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
from tests.fakes.slack.kit import config_for
from tests.fakes.slack.server import Fault, SlackServer, rate_limited
from tests.fakes.slack.workspace import BOT_USER, TEAM, Message, Workspace


class _Quick(SlackAdapter):
    capabilities = quick(CAPABILITIES)

    def capabilities_in(self, address: Address) -> Capabilities:
        return quick(super().capabilities_in(address))


class SlackService(Service):
    """A DM, and a channel in which every mention opens a thread."""

    name = "slack"
    allow: tuple[str, ...] = ("slack:T1/U1",)
    direct = Place("D1")
    room: Place | None = Place("C1")
    opens_threads = True

    def __init__(self, server: SlackServer) -> None:
        self.server = server
        self.served = server.over_http
        server.add_channel("C1")
        server.workspace.add_user("U3", "Bob")

    def spec(self) -> PlatformSpec:
        return PlatformSpec("slack", SlackConfig, _build)

    def config(self) -> SlackConfig:
        return config_for(self.server)

    @contextlib.asynccontextmanager
    async def meeting(self, adapter: Adapter, url: str) -> AsyncIterator[None]:
        if not self.server.over_http:
            await self.until(self.server.connected.is_set)
            yield
            return
        self.server.listen_at(f"{url.rstrip('/')}{EVENTS_PATH}")
        try:
            yield
        finally:
            self.server.listen_at("")

    def address(self, place: Place) -> Address:
        return Address("slack", f"{TEAM}/{place.chat}", "", place.thread)

    # --- what people do

    async def utter(self, place: Place, words: Words) -> str:
        """Send a message; a reply to a message opens a thread below it."""
        called = place == self.direct or words.aside
        text = words.text if called else f"<@{BOT_USER}> {words.text}"
        thread = place.thread
        if answers := words.answers:
            thread = self.server.workspace.get(place.chat, answers).thread or answers
        more: dict[str, Any] = {}
        if words.file:
            more["files"] = [self.server.workspace.add_file(*words.file)]
        return self.server.write(place.chat, text, thread=thread, **more)

    async def elsewhere(self) -> Place:
        root = Message(self.server.workspace.new_ts(), "U3", "by the way")
        return Place("C1", self.server.workspace.put("C1", root).ts)

    async def settled(self) -> None:
        await self.server.until(lambda: not self.server.pending)

    async def edit(self, place: Place, message: str, text: str) -> None:
        await self.server.change(place.chat, message, text)

    async def delete(self, place: Place, message: str) -> None:
        await self.server.erase(place.chat, message)

    async def press(self, place: Place, label: str) -> None:
        for message in reversed(self._ours(place)):
            if label in _labels(message):
                await self.server.press(place.chat, message.ts, label)
                return
        msg = f"there is no button {label!r}"
        raise AssertionError(msg)

    async def command(self, place: Place, word: str, words: str = "") -> None:
        await self.server.command(place.chat, f"{word} {words}".strip())

    async def stop(self, place: Place) -> None:
        for message in self._ours(place):
            if message.streaming:
                await self.server.stop(place.chat, message.ts)
                return
        await self.stop_as_shown(place)

    def spelled(self, word: str) -> str:
        return f"!{word}"

    # --- what people see

    def _ours(self, place: Place) -> list[Message]:
        return self.server.workspace.ours(place.chat, place.thread or None)

    def seen(self, place: Place) -> list[Seen]:
        contents = self.server.workspace.contents
        return [
            Seen(
                each.shown,
                each.ts,
                tuple(_labels(each)),
                each.thread,
                "".join(file["name"] for file in each.files),
                b"".join(contents[file["id"]] for file in each.files),
            )
            for each in self._ours(place)
        ]

    def private_texts(self, place: Place) -> list[str]:
        shown = self.server.workspace.ephemeral
        return [text for channel, _thread, _person, text in shown if channel == place.chat]

    def signs(self, place: Place, message: str) -> list[str] | None:
        names = {"eyes": "👀", "white_check_mark": "✅", "x": "❌"}
        found = self.server.workspace.get(place.chat, message).reactions
        return [names.get(name, name) for name, users in found.items() if BOT_USER in users]

    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        await self.server.until(enough, seconds)

    def violations(self) -> list[str]:
        return self.server.violations()

    # --- faults

    def called(self) -> list[Called]:
        return [Called(method, channel) for method, channel in self.server.calls]

    def let_fail(
        self, method: str, trouble: Trouble, place: Place | None, retry_after: float
    ) -> None:
        self.server.fail(method, _fault(trouble, retry_after), channel=place.chat if place else "")

    def unmet(self) -> list[str]:
        return self.server.unmet

    async def cut(self, *, politely: bool) -> None:
        if politely:
            await self.server.ask_to_reconnect()
        else:
            self.server.cut()

    async def send_again(self) -> None:
        await self.server.pass_time(61)

    async def forget(self) -> None:
        """Let Slack repeat at once, after one minute and after five more, and give up."""
        for seconds in (1, 60, 300):
            await self.server.pass_time(seconds)
        assert self.server.pending == 0


def _labels(message: Message) -> list[str]:
    return [button["text"]["text"] for button in message.buttons]


def _build(given: SlackConfig, surroundings: Surroundings) -> Adapter:
    return _Quick(given, surroundings)


def _fault(trouble: Trouble, retry_after: float) -> Fault:
    match trouble:
        case Trouble.LIMITED:
            return rate_limited(retry_after)
        case Trouble.BROKEN:
            return Fault(status=500)
        case Trouble.CUT_BEFORE:
            return Fault(drop="before")
        case Trouble.CUT_AFTER:
            return Fault(drop="after")


@contextlib.asynccontextmanager
async def opened(*, over_http: bool = False) -> AsyncIterator[SlackService]:
    clock = clock_here()  # the same clock for both sides, unaffected by load
    workspace = Workspace(lambda: clock.now() / 1000)
    async with SlackServer(workspace, over_http=over_http) as server:
        yield SlackService(server)
