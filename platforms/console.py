"""The terminal as a platform: whoever sits at this machine talks to the agent.

Any number of terminals look at the same chat through a `Screen` each. What is shown while none of
them looks is not lost: the archive has it, and the next one is shown what nobody has seen.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import msgspec

from platforms.core.contract import (
    Address,
    Ask,
    Capabilities,
    Delete,
    Draft,
    Edit,
    File,
    InboundMessage,
    Inbox,
    Live,
    Op,
    PlatformSpec,
    Post,
    React,
    Receipt,
    Repeat,
    Sender,
    Surroundings,
    Text,
    TranscriptRow,
    Typing,
    Unit,
    Upload,
)
from platforms.core.errors import Rejected, Unavailable

CHAT = "terminal"
OWNER = Sender(id="owner", name="Owner")

CAPABILITIES = Capabilities(
    text_limit=1_000_000,
    unit=Unit.CHARACTERS,
    live=Live.STREAM,  # what is printed cannot be taken back
    repeat=Repeat.ALWAYS,
    live_interval=0.05,
    burst=1_000,
    per_second=200.0,
    delete=False,
    reply=False,
    status=True,
)

_LOOKED_BACK = 50  # rows of the archive in which something unseen is looked for
_REMEMBERED = 2 * _LOOKED_BACK  # ids of shown items; more than are looked back
_MESSAGES = 256  # messages whose text is remembered
_FRAMES = 10_000  # what a terminal may leave unread before it is let go
_LOOK_EVERY = 0.25  # seconds
_OPEN = ("waiting", "running", "command")  # states of a message that something will follow
_SETTLED = ("sent", "dead")  # states of an item that nothing will follow


class Answer(msgspec.Struct, frozen=True, tag="answer", omit_defaults=True):
    """More of an answer; `anew` when it is all of it, whatever was printed of it before.

    `asked` is what it answers, for whoever was not there.
    """

    item: str = msgspec.field(name="message")  # as terminals of earlier versions know it
    text: str
    done: bool = True
    anew: bool = False
    asked: str = ""


class Note(msgspec.Struct, frozen=True, tag="note"):
    """Words of ours, not of the model."""

    text: str


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """What was said from another terminal, or before this one looked."""

    text: str


class Status(msgspec.Struct, frozen=True, tag="status"):
    """What is going on, in place of what was said of it before; empty when there is nothing."""

    text: str


Frame = Answer | Note | Heard | Status


class ConsoleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[platforms.console]`; there is nothing to configure."""


class _Printed(msgspec.Struct, frozen=True):
    chat: str
    text: str
    done: bool
    ours: bool  # our words, not the model's


class Screen:
    """One terminal that looks at a chat."""

    def __init__(self, console: "ConsoleAdapter", chat: str) -> None:
        self.chat = chat
        self._console = console
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue(_FRAMES)
        self._said: list[str] = []

    async def frames(self) -> AsyncIterator[Frame]:
        """What to print, until `finish` has nothing to wait for or the gateway ends."""
        while (frame := await self._frames.get()) is not None:
            yield frame

    async def say(self, text: str, message: str = "") -> None:
        """Hand a message in; returns when it is stored. A repeat carries the same id."""
        self._said.append(await self._console.hear(self, text, message))

    async def finish(self, before: Iterable[str] = ()) -> None:
        """Nothing more will be said: wait until everything is answered, then end the frames.

        `before` this screen something may have been said on another one.
        """
        await self._console.answered(self.chat, [*before, *self._said])
        self.end()

    def show(self, frame: Frame) -> None:
        """Add something to print; a terminal that does not read is let go."""
        if self._frames.qsize() < _FRAMES - 1:
            self._frames.put_nowait(frame)
        else:
            self.end()

    def end(self) -> None:
        """Let the frames come to their end."""
        if not self._frames.full():
            self._frames.put_nowait(None)


class ConsoleAdapter:
    """Shows a chat on every terminal that looks at it."""

    name = "console"
    capabilities = CAPABILITIES

    def __init__(self, surroundings: Surroundings) -> None:
        self.account = surroundings.account
        self._around = surroundings
        self._inbox: Inbox | None = None
        self._screens: list[Screen] = []
        self._printed: OrderedDict[str, _Printed] = OrderedDict()
        self._status: dict[str, str] = {}  # by chat, where there is one
        self._seen: dict[str, list[str]] = {}  # ids of items, the newest last
        self._showing = asyncio.Lock()  # what is shown first stands first
        self._news = asyncio.Event()

    # --- the gateway's side -----------------------------------------------------------------

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`. When cancelled, every terminal is let go."""
        self._inbox = inbox
        try:
            ready()
            await asyncio.Event().wait()  # the terminals come by themselves
        finally:
            self._inbox = None
            for screen in self._screens:
                screen.end()

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        async with self._showing:
            match op:
                case Post():
                    await self._print(op.op, op, op.text, streaming=op.streaming, ours=op.notice)
                case Ask():
                    await self._print(op.op, op, op.text, streaming=False, ours=True)
                case Edit():
                    await self._print(
                        op.message, op, op.text, streaming=op.streaming, ours=op.notice
                    )
                case Typing():
                    self._tell(op.address.chat, op.status)
                case Draft():
                    pass
                case Delete() | Upload() | React():
                    msg = "A terminal shows only text, and cannot take it back."
                    raise Rejected(msg)
        self._news.set()
        return Receipt(message=op.op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`. Nothing is ever attached in a terminal."""
        msg = f"{file.name} cannot be read: a terminal takes no files."
        raise Rejected(msg)

    # --- the terminals' side ----------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def attach(self, chat: str = CHAT) -> AsyncIterator[Screen]:
        """Let a terminal look at a chat inside of this block."""
        screen = Screen(self, chat)
        async with self._showing:
            await self._catch_up(screen)
            self._screens.append(screen)
        try:
            yield screen
        finally:
            self._screens.remove(screen)

    async def hear(self, screen: Screen, text: str, message: str) -> str:
        """Store what was said at a terminal, and let the others know."""
        if self._inbox is None:
            msg = "Holdfast takes no messages at the moment."
            raise Unavailable(msg)
        message = message or self._around.ids.new("c")
        text = text.replace("\r\n", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
        for other in self._watching(screen.chat):
            if other is not screen:
                other.show(Heard(text))
        await self._inbox(
            InboundMessage(
                id=message,
                at=self._around.clock.now(),
                address=self._address(screen.chat),
                sender=OWNER,
                parts=(Text(text),),
                direct=True,
                addressed=True,
            )
        )
        return message

    async def answered(self, chat: str, said: list[str]) -> None:
        """Wait until nothing more will follow on these messages."""
        while not await self._is_answered(chat, said):
            self._news.clear()
            # Not everything that settles a message shows in the chat.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._news.wait()

    async def _is_answered(self, chat: str, said: list[str]) -> bool:
        if not said:
            return True
        rows = await self._rows(chat)
        ours = [row for row in rows if row.author == "user" and row.id in said]
        if any(row.state in _OPEN for row in ours):
            return False
        first = min((row.seq for row in ours), default=0)
        seen = await self._seen_in(chat)
        return all(
            row.state in _SETTLED or row.id in seen
            for row in rows
            if row.author != "user" and row.seq > first
        )

    # --- printing ---------------------------------------------------------------------------

    async def _print(
        self, message: str, op: Post | Ask | Edit, text: str, *, streaming: bool, ours: bool
    ) -> None:
        chat = op.address.chat
        item = _item(message)
        before = self._printed.get(message)
        ours = ours or (before is not None and before.ours)  # an edited question does not say it
        self._printed[message] = _Printed(chat, text, done=not streaming, ours=ours)
        self._printed.move_to_end(message)
        if len(self._printed) > _MESSAGES:
            self._printed.popitem(last=False)
        if before is None and item in await self._seen_in(chat):
            return  # a terminal was shown it out of the archive
        for frame in _difference(item, before, text, done=not streaming, ours=ours):
            for screen in self._watching(chat):
                screen.show(frame)
        if not streaming and self._watching(chat):
            await self._mark_seen(chat, item)

    def _tell(self, chat: str, status: str) -> None:
        if status == self._status.get(chat, ""):
            return
        self._status[chat] = status
        for screen in self._watching(chat):
            screen.show(Status(status))

    async def _catch_up(self, screen: Screen) -> None:
        seen = await self._seen_in(screen.chat)
        growing = {
            _item(message): printed.text
            for message, printed in self._printed.items()
            if printed.chat == screen.chat and not printed.done
        }
        rows = await self._rows(screen.chat)
        for frame in _unseen(rows, {*seen, *growing}):
            screen.show(frame)
        shown = [row.id for row in rows if row.author != "user" and row.id not in growing]
        await self._mark_seen(screen.chat, *shown)
        for item, text in growing.items():
            screen.show(Answer(item, text, done=False, anew=True))
        if status := self._status.get(screen.chat):
            screen.show(Status(status))

    def _watching(self, chat: str) -> list[Screen]:
        return [screen for screen in self._screens if screen.chat == chat]

    # --- memory -----------------------------------------------------------------------------

    async def _rows(self, chat: str) -> list[TranscriptRow]:
        address = self._address(chat)
        return list(await self._around.archive.transcript(address, 0, _LOOKED_BACK))

    async def _seen_in(self, chat: str) -> list[str]:
        if chat not in self._seen:
            kept = await self._around.shelf.get(f"seen:{chat}")
            self._seen[chat] = msgspec.json.decode(kept, type=list[str]) if kept else []
        return self._seen[chat]

    async def _mark_seen(self, chat: str, *items: str) -> None:
        seen = await self._seen_in(chat)
        fresh = [item for item in items if item not in seen]
        if fresh:
            self._seen[chat] = [*seen, *fresh][-_REMEMBERED:]
            await self._around.shelf.put(
                f"seen:{chat}", msgspec.json.encode(self._seen[chat]).decode()
            )

    def _address(self, chat: str) -> Address:
        return Address(platform=self.name, chat=chat, account=self.account)


def _item(message: str) -> str:
    """The k-th message of item X is named X.k; in a terminal an item is one message."""
    return message.rpartition(".")[0] or message


def _difference(
    item: str, before: _Printed | None, text: str, *, done: bool, ours: bool
) -> Iterator[Frame]:
    """Say what to print so that what was printed `before` becomes `text`."""
    known = before.text if before else ""
    if ours:
        if text != known:
            yield Note(text)
    elif before is None or text != known or done != before.done:
        grown = text.startswith(known)
        added = text[len(known) :] if grown else text
        yield Answer(item, added, done=done, anew=before is None or not grown)


def _unseen(rows: list[TranscriptRow], seen: set[str]) -> Iterator[Frame]:
    """What nobody was shown yet, each answer with what it answers."""
    asked: TranscriptRow | None = None
    for row in rows:
        if row.author == "user":
            asked = row
            continue
        if row.id not in seen:
            question = asked.text if asked else ""
            if row.author == "answer":
                yield Answer(row.id, row.text, anew=True, asked=question)
            else:
                yield from [Heard(question)] if question else []
                yield Note(row.text)
        asked = None


def _build(_: Any, surroundings: Surroundings) -> ConsoleAdapter:  # noqa: ANN401 - the registry knows no config type
    return ConsoleAdapter(surroundings)


SPEC = PlatformSpec(name="console", config=ConsoleConfig, build=_build)
