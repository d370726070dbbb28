"""A chat platform as tests play it: people on one side, an adapter of ours on the other.

`Service` is what the bodies of tests know; each platform has one beside this module. A service
outlasts the adapter and the gateway in front of it: what people say while nobody listens is kept as
the platform keeps it, and a later adapter finds the same chats.
"""

import abc
import asyncio
import enum
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, NoReturn

import msgspec

from platforms.core.contract import Adapter, Address, Capabilities, PlatformSpec

PATIENCE = 12.0
LIVE_INTERVAL = 0.25
"""Seconds between two live updates: shorter than in real life, so that tests need not wait."""


class Place(msgspec.Struct, frozen=True):
    """Where people talk to us: a chat, or a thread in it."""

    chat: str
    thread: str = ""


class Seen(msgspec.Struct, frozen=True):
    """A message of ours as a person sees it now."""

    text: str
    id: str = ""
    buttons: tuple[str, ...] = ()  # their labels
    reply_to: str = ""  # the message it is shown as an answer to
    file: str = ""  # its name
    content: bytes = b""
    passing: bool = False  # a preview that is no message yet


class Words(msgspec.Struct, frozen=True):
    """What a person says; see `Service.say`."""

    text: str
    answers: str = ""  # the id of an earlier message
    file: tuple[str, bytes, str] | None = None  # name, content, type
    aside: bool = False


class Called(NamedTuple):
    """A call that the service has received."""

    method: str
    chat: str = ""  # where it was about one


class Trouble(enum.Enum):
    """What a call can meet."""

    LIMITED = "429"
    BROKEN = "500"
    CUT_BEFORE = "cut before"
    CUT_AFTER = "cut after"


class Service(abc.ABC):
    """See the module. `done` is what must be released at the end of a test."""

    name: str
    allow: tuple[str, ...]  # the people, as `access.allow` has them
    direct = Place("")
    room: Place | None = None  # in which we have to be called
    opens_threads = False  # each message in the room begins a conversation of its own
    is_remote = True  # reached by calls that can fail
    edits = True  # people can change what they wrote, and we learn of it
    deletes = True
    sends_files = True
    quotes = True  # people can answer one message in particular
    retry_after: float = 1  # seconds, the shortest that the service knows
    served = False  # the gateway's HTTP port is a part of it

    # --- our side ----------------------------------------------------------------------------

    @abc.abstractmethod
    def spec(self) -> PlatformSpec:
        """How the gateway builds the adapter, at the pace of a test."""

    @abc.abstractmethod
    def config(self) -> msgspec.Struct:
        """What stands in `[platforms.NAME]`."""

    @abc.abstractmethod
    def meeting(self, adapter: Adapter, url: str) -> AbstractAsyncContextManager[None]:
        """Inside of this block an adapter is connected and people can reach it.

        `url` is the HTTP port of the gateway, where there is one.
        """

    @abc.abstractmethod
    def address(self, place: Place) -> Address:
        """What the adapter calls a place."""

    # --- what people do ----------------------------------------------------------------------

    async def say(
        self,
        place: Place,
        text: str,
        *,
        answers: str = "",
        file: tuple[str, bytes, str] | None = None,
        aside: bool = False,
    ) -> str:
        """Say something and call us where that is needed, unless it is `aside`; gives its id.

        Does not wait until anybody takes it. `answers` is the id of an earlier message.
        """
        return await self.utter(place, Words(text, answers, file, aside))

    @abc.abstractmethod
    async def utter(self, place: Place, words: Words) -> str:
        """Carry `say` out."""

    @abc.abstractmethod
    async def elsewhere(self) -> Place:
        """Open another thread or topic, or where there are none another conversation."""

    async def settled(self) -> None:  # noqa: B027 - not all acknowledge
        """Wait until everything that was said was taken in and acknowledged."""

    async def edit(self, place: Place, message: str, text: str) -> None:
        """Change a message; only where `edits`."""
        self._lack("changes what they wrote")

    async def delete(self, place: Place, message: str) -> None:
        """Take a message back; only where `deletes`."""
        self._lack("takes back what they wrote")

    async def press(self, place: Place, label: str) -> None:
        """Press the newest button of that name; only where there are buttons."""
        self._lack("presses buttons")

    def _lack(self, what: str) -> NoReturn:
        """Not every platform has this: a body asks first, so it is the body that is wrong."""
        msg = f"nobody {what} on {self.name}"
        raise NotImplementedError(msg)

    @abc.abstractmethod
    async def command(self, place: Place, word: str, words: str = "") -> None:
        """Give a command in the way that people have there."""

    async def stop(self, place: Place) -> None:
        """End an answer that is being written, in the way that is nearest at hand."""
        await self.command(place, "stop")

    async def stop_as_shown(self, place: Place) -> None:
        """End it by the button below the message, if there is one."""
        if any("Stop" in each.buttons for each in self.seen(place)):
            await self.press(place, "Stop")
        else:
            await self.command(place, "stop")

    async def typed(self, place: Place, word: str, words: str = "") -> None:
        """Write a command out, as our own texts tell people to."""
        await self.say(place, f"{self.spelled(word)} {words}".strip())

    def spelled(self, word: str) -> str:
        """How our texts name a command there."""
        return f"/{word}"

    # --- what people see ---------------------------------------------------------------------

    @abc.abstractmethod
    def seen(self, place: Place) -> list[Seen]:
        """Our messages, the oldest first, then what is only a preview."""

    def screen(self, place: Place) -> list[str]:
        """The texts of these."""
        return [each.text for each in self.seen(place)]

    def private_texts(self, place: Place) -> list[str]:
        """The texts that only the person who asked sees in a room; empty where all are public."""
        return []

    def signs(self, place: Place, message: str) -> list[str] | None:
        """Our signs on a person's message, or None where there are none."""
        return None

    @abc.abstractmethod
    async def until(self, enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until something is so; looked at whenever something changes."""

    async def shows(self, place: Place, *texts: str) -> list[Seen]:
        """Wait until each of these is a part of some message that is there to stay."""

        def enough() -> bool:
            lasting = [each.text for each in self.seen(place) if not each.passing]
            return all(any(text in each for each in lasting) for text in texts)

        await self.until(enough)
        return self.seen(place)

    async def rests(self) -> None:
        """Wait until there is nothing to complain of, such as a message that looks unfinished."""
        try:
            await self.until(lambda: not self.violations())
        except AssertionError as error:
            msg = f"{self.violations()}: {error}"
            raise AssertionError(msg) from None

    @abc.abstractmethod
    def violations(self) -> list[str]:
        """What the platform would punish, or a person would notice."""

    # --- what goes wrong ---------------------------------------------------------------------

    def called(self) -> list[Called]:
        """The calls so far, in order."""
        return []

    def fail(
        self,
        method: str,
        trouble: Trouble,
        *,
        place: Place | None = None,
        seconds: int | None = None,
    ) -> float:
        """Let the next call of a method go wrong, anywhere or in one chat.

        Gives the Retry-After of a 429, which is as short as the service knows it, or `seconds`.
        """
        retry_after = seconds or self.retry_after
        self.let_fail(method, trouble, place, retry_after)
        return retry_after

    def let_fail(
        self, method: str, trouble: Trouble, place: Place | None, retry_after: float
    ) -> None:
        """Carry `fail` out; only where `is_remote`."""
        self._lack("makes calls")

    def unmet(self) -> list[str]:
        """The calls that are still to go wrong."""
        return []

    @abc.abstractmethod
    async def cut(self, *, politely: bool) -> None:
        """Let the channel on which we hear of people break off; returns once it has."""

    async def send_again(self) -> None:  # noqa: B027 - not all do
        """Let as much time pass as makes the service send again what nobody acknowledged."""

    async def forget(self) -> None:  # noqa: B027 - not all do
        """While nobody listens let as much time pass as makes the service forget what it can."""


class News:
    """Wakes who waits for something to be so."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()

    async def tell(self) -> None:
        """Something has changed."""
        async with self._changed:
            self._changed.notify_all()

    async def until(
        self, enough: Callable[[], bool], seconds: float, shown: Callable[[], object]
    ) -> None:
        """Wait until something is so."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(enough)
        except TimeoutError:
            msg = f"it never came to be so; shown: {shown()}"
            raise AssertionError(msg) from None


def quick(can: Capabilities) -> Capabilities:
    """The same abilities at the pace of a test; the service still minds what is too fast for it."""
    return msgspec.structs.replace(
        can,
        live_interval=min(can.live_interval, LIVE_INTERVAL),
        burst=max(can.burst, 40),
        per_second=max(can.per_second, 20.0),
        per_minute=0,
    )
