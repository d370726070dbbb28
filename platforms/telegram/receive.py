"""Intake of raw updates into the inbox, in order within each chat and without loss.

`TelegramReceiver.receive` returns once every event is committed or, for pieces of a split message,
saved on the shelf. Only then may the caller acknowledge the updates to Telegram.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec

from platforms.core.contract import (
    Accepted,
    Inbound,
    InboundAction,
    InboundEdit,
    InboundMessage,
    Inbox,
    Shelf,
)
from platforms.telegram.decode import UpdateDecoder
from platforms.telegram.held import HeldEvent, HeldEvents
from platforms.telegram.join import MessageJoiner, MessagePiece
from platforms.telegram.payloads import TelegramChat, TelegramUpdate, read_number, read_update
from platforms.telegram.room_context import RoomContext
from sessions.values.clock import Clock
from sessions.values.text import count_of

log = logging.getLogger(__name__)

_HELD_KEY = "held"
_THREADS_KEY = "threads"
_MAX_THREADS = 500

_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_read_pieces = msgspec.json.Decoder(list[MessagePiece]).decode
_read_threads = msgspec.json.Decoder(list[tuple[str, str]]).decode

_T = TypeVar("_T")

MembershipCheck = Callable[[TelegramChat, str], Awaitable[bool | None]]
"""Callback that returns whether a person belongs to a group; None if Telegram does not answer."""

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.5, 60.0
"""Pauses between lookups of memberships that are not known."""


class TelegramReceiver:
    """Pipeline of one connection: decode updates, join split messages, submit events.

    `answer_callback` is called for each button press. `is_member` is None when no access rule
    depends on group membership.
    """

    def __init__(
        self,
        reader: UpdateDecoder,
        inbox: Inbox,
        shelf: Shelf,
        clock: Clock,
        *,
        answer_callback: Callable[[str], None],
        is_member: MembershipCheck | None,
        join_scale: float = 1.0,
    ) -> None:
        self._reader = reader
        self._inbox = inbox
        self._shelf = shelf
        self._clock = clock
        self._answer_callback = answer_callback
        self._is_member = is_member
        self._joiner = MessageJoiner(join_scale)
        self._room_context = RoomContext()
        self._held = HeldEvents(shelf, clock)
        self._saved_pieces: list[MessagePiece] = []  # as last written to the shelf
        self._threads: dict[tuple[str, str], None] = {}  # topics in which the bot was addressed
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._shelving = asyncio.Lock()
        self._pieces_changed = asyncio.Event()

    async def restore(self) -> None:
        """Load the active topics and submit the messages that an earlier run still held.

        Events of people whose membership is unknown wait for `decide_held_forever`.
        """
        await self._held.restore()
        threads = _decode_saved(await self._shelf.get(_THREADS_KEY), _read_threads)
        self._threads = dict.fromkeys(threads)
        self._saved_pieces = _decode_saved(await self._shelf.get(_HELD_KEY), _read_pieces)
        for message in self._joiner.restore(self._saved_pieces):
            await self._submit(message)
        await self._save_pieces()

    async def receive(self, updates: Sequence[bytes]) -> None:
        """Process a batch of updates; raises if an event could not be stored."""
        chats: dict[str, list[TelegramUpdate]] = defaultdict(list)
        for raw in updates:
            if update := _decode_update(raw):
                if update.callback_query:
                    self._answer_callback(update.callback_query.id)
                chats[_chat_id(update)].append(update)
        if len(chats) == 1:
            for chat, chat_updates in chats.items():
                await self._receive_chat(chat, chat_updates)
        else:
            async with asyncio.TaskGroup() as group:
                for chat, chat_updates in chats.items():
                    group.create_task(self._receive_chat(chat, chat_updates))
        await self._save_pieces()

    async def submit_due_forever(self) -> None:
        """Submit held messages when their join windows close; runs until cancelled."""
        while True:
            self._pieces_changed.clear()
            due = self._joiner.next_due
            seconds = None if due is None else max(0.0, due - self._clock.monotonic())
            try:
                async with asyncio.timeout(seconds):
                    await self._pieces_changed.wait()
            except TimeoutError:
                await self._submit_due()

    async def decide_held_forever(self) -> None:
        """Look up unknown memberships again and submit the events; runs until cancelled."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            await self._held.wait()
            await asyncio.sleep(pause)
            before = len(self._held)
            for held in self._held:
                await self._decide_held(held)
            is_slower = len(self._held) >= before
            pause = min(pause * 2, _MAX_RETRY_SECONDS) if is_slower else _FIRST_RETRY_SECONDS

    async def _decide_held(self, held: HeldEvent) -> None:
        event = held.event
        group = TelegramChat(id=int(event.address.chat), type="supergroup")
        belongs = await self._is_member(group, event.sender.id) if self._is_member else False
        if belongs is None and not self._held.is_expired(held):
            return
        async with self._lock(event.address.chat):
            await self._submit_decided(_with_membership(event, belongs is True))
            await self._held.release(held)

    async def _submit_due(self) -> None:
        for message in self._joiner.release_due(self._clock.monotonic()):
            async with self._lock(message.address.chat):
                await self._submit(message)
        await self._save_pieces()

    async def _receive_chat(self, chat: str, updates: list[TelegramUpdate]) -> None:
        async with self._lock(chat):
            for update in updates:
                await self._receive_update(update)

    def _lock(self, chat: str) -> asyncio.Lock:
        return self._locks.setdefault(chat, asyncio.Lock())

    async def _receive_update(self, update: TelegramUpdate) -> None:
        event = self._reader.decode(update, self._clock.now(), self._threads)
        if event is None:
            log.debug("telegram: ignored update %d", update.update_id)
            return
        event = await self._with_membership(update, event)
        for complete in self._complete_events(update, event):
            await self._submit(complete)

    def _complete_events(self, update: TelegramUpdate, event: Inbound) -> Sequence[Inbound]:
        """Return the events that are ready to submit, after buffering a message that may continue."""
        if isinstance(event, InboundMessage):
            message = update.message
            assert message is not None  # noqa: S101 - the event was decoded from the message
            event = self._room_context.add_context(event)
            piece = MessagePiece(event, message.media_group_id, message.forward_origin is not None)
            complete = self._joiner.add(piece, self._clock.monotonic())
            if piece.may_continue:
                self._pieces_changed.set()
            return complete
        if isinstance(event, InboundEdit):
            event = self._joiner.redirect_edit(event)
        return [*self._joiner.release_of(event.address.chat, event.sender.id), event]

    async def _with_membership(self, update: TelegramUpdate, event: Inbound) -> Inbound:
        """Add the group to the sender's memberships if the sender of an addressed event belongs."""
        chat, is_member = _chat_in(update), self._is_member
        if is_member is None or chat is None or chat.type not in {"group", "supergroup"}:
            return event
        if isinstance(event, InboundMessage) and not event.addressed:
            return event
        if event.sender.id == str(chat.id):  # an anonymous admin
            return _with_membership(event, belongs=True)
        belongs = None if self._held.has_person(event) else await is_member(chat, event.sender.id)
        return _with_membership(event, belongs)

    async def _submit(self, event: Inbound) -> None:
        """Submit an event, or keep it while the membership of its sender is not known."""
        if self._held.has_person(event):  # keeps the order
            accepted = Accepted.UNDECIDED
        else:
            accepted = await self._submit_decided(event)
        if accepted is Accepted.UNDECIDED:
            await self._held.hold(event)
        if isinstance(event, InboundMessage):
            self._joiner.on_stored(event)

    async def _submit_decided(self, event: Inbound) -> Accepted:
        accepted = await self._inbox(event)
        if not isinstance(event, InboundMessage | InboundAction) or accepted in {
            Accepted.IGNORED,
            Accepted.UNDECIDED,
        }:
            return accepted
        address = event.address
        addressed = isinstance(event, InboundMessage) and event.addressed and not event.direct
        if address.thread and addressed and (address.chat, address.thread) not in self._threads:
            self._threads[address.chat, address.thread] = None
            while len(self._threads) > _MAX_THREADS:
                del self._threads[next(iter(self._threads))]
            await self._shelf.put(_THREADS_KEY, msgspec.json.encode(list(self._threads)).decode())
        return accepted

    async def _save_pieces(self) -> None:
        """Write the unstored pieces to the shelf if they changed."""
        async with self._shelving:
            pieces = self._joiner.pieces
            if pieces != self._saved_pieces:
                await self._shelf.put(_HELD_KEY, msgspec.json.encode(pieces).decode())
                self._saved_pieces = pieces


def _with_membership(event: Inbound, belongs: bool | None) -> Inbound:
    """Return the event of a person who belongs to the group or not; None: not known."""
    sender = msgspec.structs.replace(
        event.sender,
        memberships=(event.address.chat,) if belongs else (),
        memberships_unknown=belongs is None,
    )
    return msgspec.structs.replace(event, sender=sender)


def _decode_update(raw: bytes) -> TelegramUpdate | None:
    """Decode an update; return None for a malformed one, which must not block the others."""
    try:
        return read_update(raw)
    except _UNREADABLE as error:
        # Neither the update nor the message of the error, which may quote the update.
        log.warning(
            "telegram: skipped malformed update %s of %s (%s)",
            update_number(raw),
            count_of(len(raw), "byte"),
            type(error).__name__,
        )
        return None


def update_number(raw: bytes) -> int | None:
    """Return an update's number, even if the rest of the update is malformed."""
    try:
        return read_number(raw).update_id
    except _UNREADABLE:
        return None


def _decode_saved(text: str | None, read: Callable[[str], list[_T]]) -> list[_T]:
    try:
        return read(text) if text else []
    except msgspec.DecodeError as error:
        log.warning("telegram: ignored an unreadable stored value: %s", error)
        return []


def _chat_in(update: TelegramUpdate) -> TelegramChat | None:
    callback = update.callback_query
    message = update.message or update.edited_message or (callback.message if callback else None)
    return message.chat if message else None


def _chat_id(update: TelegramUpdate) -> str:
    chat = _chat_in(update)
    if update.stopped_message_generation:
        chat = update.stopped_message_generation.chat
    return str(chat.id) if chat else ""
