"""The terminal as a platform, used by the owner of this machine.

Any number of terminals can show the same chat, each through a `TerminalScreen`. Output without an
attached terminal is not lost: the archive has it, and the next terminal shows the unseen part.
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
    RowAuthor,
    Sender,
    Surroundings,
    Text,
    TranscriptRow,
    Typing,
    Unit,
    Upload,
)
from platforms.core.errors import Rejected, Unavailable
from sessions.values.item_ids import item_of_op

CHAT = "terminal"
_OWNER = Sender(id="owner", name="Owner")

_CAPABILITIES = Capabilities(
    text_limit=1_000_000,
    unit=Unit.CHARACTERS,
    live=Live.STREAM,  # printed text cannot be taken back
    repeat=Repeat.ALWAYS,
    live_interval=0.05,
    burst=1_000,
    per_second=200.0,
    delete=False,
    reply=False,
    status=True,
)

_HISTORY_ROWS = 50  # newest rows of the archive that are searched for unseen ones
_MAX_SEEN_IDS = 2 * _HISTORY_ROWS  # ids of shown items
_MAX_MESSAGES = 256  # messages whose text is remembered
_MAX_QUEUED_FRAMES = 10_000  # unread frames after which a terminal is disconnected
_POLL_SECONDS = 0.25
_OPEN_STATES = ("waiting", "running", "command")  # states of messages that will still get an answer
_SETTLED_STATES = ("sent", "dead")  # final delivery states of items


class AnswerFrame(msgspec.Struct, frozen=True, tag="answer", omit_defaults=True, kw_only=True):
    """More text of an answer, or all of it so far if `replaces` is set.

    `asked` is the question, for a terminal that did not see it.
    """

    item: str = msgspec.field(name="message")  # name known to terminals of earlier versions
    text: str
    done: bool = True
    replaces: bool = msgspec.field(name="anew", default=False)  # name known to earlier terminals
    asked: str = ""


class NoteFrame(msgspec.Struct, frozen=True, tag="note"):
    """A notice of the gateway, not text of the model."""

    text: str


class UserFrame(msgspec.Struct, frozen=True, tag="heard"):
    """A message sent from another terminal, or before this one attached."""

    text: str


class StatusFrame(msgspec.Struct, frozen=True, tag="status"):
    """The current activity; replaces the previous status, and is empty when there is none."""

    text: str


TerminalFrame = AnswerFrame | NoteFrame | UserFrame | StatusFrame


class ConsoleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[platforms.console]`; has no keys."""


class _PrintedMessage(msgspec.Struct, frozen=True):
    chat: str
    text: str
    done: bool
    ours: bool  # a notice, not text of the model


class TerminalScreen:
    """One terminal attached to a chat."""

    def __init__(self, console: "ConsoleAdapter", chat: str) -> None:
        self.chat = chat
        self._console = console
        self._frames: asyncio.Queue[TerminalFrame | None] = asyncio.Queue(_MAX_QUEUED_FRAMES)
        self._sent_ids: list[str] = []

    async def frames(self) -> AsyncIterator[TerminalFrame]:
        """Iterate over output, until `finish` has nothing to wait for or the gateway ends."""
        while (frame := await self._frames.get()) is not None:
            yield frame

    async def send(self, text: str, message: str = "") -> None:
        """Send a message and return once stored. A repeat carries the same id."""
        self._sent_ids.append(await self._console.submit(self, text, message))

    async def finish(self, before: Iterable[str] = ()) -> None:
        """Wait until all messages are answered, then end the frames.

        `before` are ids of messages sent through an earlier screen.
        """
        await self._console.wait_until_answered(self.chat, [*before, *self._sent_ids])
        self.end()

    def show(self, frame: TerminalFrame) -> None:
        """Queue a frame; a terminal that does not read is disconnected."""
        if self._frames.qsize() < _MAX_QUEUED_FRAMES - 1:
            self._frames.put_nowait(frame)
        else:
            self.end()

    def end(self) -> None:
        """End the frames after those already queued."""
        if not self._frames.full():
            self._frames.put_nowait(None)


class ConsoleAdapter:
    """Shows a chat on every attached terminal."""

    name = "console"
    capabilities = _CAPABILITIES

    def __init__(self, surroundings: Surroundings) -> None:
        self.account = surroundings.account
        self._surroundings = surroundings
        self._inbox: Inbox | None = None
        self._screens: list[TerminalScreen] = []
        self._printed: OrderedDict[str, _PrintedMessage] = OrderedDict()
        self._status: dict[str, str] = {}  # by chat; absent if there is none
        self._seen: dict[str, list[str]] = {}  # ids of shown items by chat, newest last
        self._show_lock = asyncio.Lock()  # keeps frames in delivery order
        self._activity = asyncio.Event()

    # --- interface of the gateway ------------------------------------------------------------

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """Accept messages until cancelled, then disconnect every terminal; see `Adapter.run`."""
        self._inbox = inbox
        try:
            ready()
            await asyncio.Event().wait()  # terminals attach by themselves
        finally:
            self._inbox = None
            for screen in self._screens:
                screen.end()

    async def deliver(self, op: Op) -> Receipt:
        """Print on the attached terminals; see `Adapter.deliver`."""
        async with self._show_lock:
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
                    self._show_status(op.address.chat, op.status)
                case Draft():
                    pass
                case Delete() | Upload() | React():
                    msg = "A terminal shows only text, and cannot take it back."
                    raise Rejected(msg)
        self._activity.set()
        return Receipt(message=op.op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """Refuse, because terminals have no attachments; see `Adapter.fetch`."""
        msg = f"{file.name} cannot be read: a terminal takes no files."
        raise Rejected(msg)

    # --- interface of terminals --------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def attach(self, chat: str = CHAT) -> AsyncIterator[TerminalScreen]:
        """Attach a terminal to a chat for the duration of the block."""
        screen = TerminalScreen(self, chat)
        async with self._show_lock:
            await self._catch_up(screen)
            self._screens.append(screen)
        try:
            yield screen
        finally:
            self._screens.remove(screen)

    async def submit(self, screen: TerminalScreen, text: str, message: str) -> str:
        """Store a message from a terminal and show the text on the others."""
        if self._inbox is None:
            msg = "Holdfast is not accepting messages at the moment."
            raise Unavailable(msg)
        message = message or self._surroundings.ids.new("c")
        text = text.replace("\r\n", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
        for other in self._screens_of(screen.chat):
            if other is not screen:
                other.show(UserFrame(text))
        await self._inbox(
            InboundMessage(
                id=message,
                at=self._surroundings.clock.now(),
                address=self._address(screen.chat),
                sender=_OWNER,
                parts=(Text(text),),
                direct=True,
                addressed=True,
            )
        )
        return message

    async def wait_until_answered(self, chat: str, message_ids: list[str]) -> None:
        """Wait until these messages can get no further answer."""
        while not await self._is_answered(chat, message_ids):
            self._activity.clear()
            # Not everything that settles a message is shown in the chat.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._activity.wait()

    async def _is_answered(self, chat: str, message_ids: list[str]) -> bool:
        if not message_ids:
            return True
        rows = await self._rows(chat)
        ours = [row for row in rows if row.author is RowAuthor.USER and row.id in message_ids]
        if any(row.state in _OPEN_STATES for row in ours):
            return False
        first = min((row.seq for row in ours), default=0)
        seen = await self._seen_items(chat)
        return all(
            row.state in _SETTLED_STATES or row.id in seen
            for row in rows
            if row.author is not RowAuthor.USER and row.seq > first
        )

    # --- printing ---------------------------------------------------------------------------

    async def _print(
        self, message: str, op: Post | Ask | Edit, text: str, *, streaming: bool, ours: bool
    ) -> None:
        chat = op.address.chat
        item = item_of_op(message)
        before = self._printed.get(message)
        ours = ours or (before is not None and before.ours)  # an edit of a question lacks the flag
        self._printed[message] = _PrintedMessage(chat, text, done=not streaming, ours=ours)
        self._printed.move_to_end(message)
        if len(self._printed) > _MAX_MESSAGES:
            self._printed.popitem(last=False)
        if before is None and item in await self._seen_items(chat):
            return  # already shown from the archive
        for frame in _change_frames(item, before, text, done=not streaming, ours=ours):
            for screen in self._screens_of(chat):
                screen.show(frame)
        if not streaming and self._screens_of(chat):
            await self._mark_seen(chat, item)

    def _show_status(self, chat: str, status: str) -> None:
        if status == self._status.get(chat, ""):
            return
        self._status[chat] = status
        for screen in self._screens_of(chat):
            screen.show(StatusFrame(status))

    async def _catch_up(self, screen: TerminalScreen) -> None:
        seen = await self._seen_items(screen.chat)
        growing = {
            item_of_op(message): printed.text
            for message, printed in self._printed.items()
            if printed.chat == screen.chat and not printed.done
        }
        rows = await self._rows(screen.chat)
        for frame in _unseen_frames(rows, {*seen, *growing}):
            screen.show(frame)
        shown = [
            row.id for row in rows if row.author is not RowAuthor.USER and row.id not in growing
        ]
        await self._mark_seen(screen.chat, *shown)
        for item, text in growing.items():
            screen.show(AnswerFrame(item=item, text=text, done=False, replaces=True))
        if status := self._status.get(screen.chat):
            screen.show(StatusFrame(status))

    def _screens_of(self, chat: str) -> list[TerminalScreen]:
        return [screen for screen in self._screens if screen.chat == chat]

    # --- memory -----------------------------------------------------------------------------

    async def _rows(self, chat: str) -> list[TranscriptRow]:
        address = self._address(chat)
        return list(await self._surroundings.archive.transcript(address, 0, _HISTORY_ROWS))

    async def _seen_items(self, chat: str) -> list[str]:
        if chat not in self._seen:
            kept = await self._surroundings.shelf.get(f"seen:{chat}")
            self._seen[chat] = msgspec.json.decode(kept, type=list[str]) if kept else []
        return self._seen[chat]

    async def _mark_seen(self, chat: str, *items: str) -> None:
        seen = await self._seen_items(chat)
        fresh = [item for item in items if item not in seen]
        if fresh:
            self._seen[chat] = [*seen, *fresh][-_MAX_SEEN_IDS:]
            await self._surroundings.shelf.put(
                f"seen:{chat}", msgspec.json.encode(self._seen[chat]).decode()
            )

    def _address(self, chat: str) -> Address:
        return Address(platform=self.name, chat=chat, account=self.account)


def _change_frames(
    item: str, before: _PrintedMessage | None, text: str, *, done: bool, ours: bool
) -> Iterator[TerminalFrame]:
    """Yield the frames that turn the text printed before into `text`."""
    known = before.text if before else ""
    if ours:
        if text != known:
            yield NoteFrame(text)
    elif before is None or text != known or done != before.done:
        grown = text.startswith(known)
        added = text[len(known) :] if grown else text
        yield AnswerFrame(item=item, text=added, done=done, replaces=before is None or not grown)


def _unseen_frames(rows: list[TranscriptRow], seen: set[str]) -> Iterator[TerminalFrame]:
    """Yield the unseen rows, each answer with the question."""
    asked: TranscriptRow | None = None
    for row in rows:
        if row.author is RowAuthor.USER:
            asked = row
            continue
        if row.id not in seen:
            question = asked.text if asked else ""
            if row.author is RowAuthor.ANSWER:
                yield AnswerFrame(item=row.id, text=row.text, replaces=True, asked=question)
            else:
                yield from [UserFrame(question)] if question else []
                yield NoteFrame(row.text)
        asked = None


def _build(_: Any, surroundings: Surroundings) -> ConsoleAdapter:  # noqa: ANN401 - the registry knows no config type
    return ConsoleAdapter(surroundings)


SPEC = PlatformSpec(name="console", config=ConsoleConfig, build=_build)
