"""The adapter, with chats as lists of messages."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Capabilities,
    Delete,
    Draft,
    Edit,
    File,
    Inbound,
    InboundAction,
    InboundMessage,
    Inbox,
    Live,
    Op,
    Post,
    React,
    Receipt,
    Repeat,
    Sender,
    Text,
    Typing,
    Unit,
    Upload,
)
from platforms.core.errors import ChatGone, PlatformError, Rejected, Unavailable
from sessions.values.clock import Clock
from tests.fakes.memory.faults import DeliveryFault
from tests.fakes.memory.screen import VisibleMessage, find_violations, visible_message
from tests.fakes.quick_time import TimerClock

DEFAULT_SENDER = Sender(id="1001", name="Somebody")

DRAFT_LIFETIME_SECONDS = 30.0
"""Seconds after which a draft expires unless it is shown again."""

_ROUNDING = 1e-6


class _PendingEvent(msgspec.Struct):
    """An inbound event, and the future for its acceptance."""

    inbound: Inbound
    accepted: asyncio.Future[Accepted]


class _MemoryChat:
    """The screen of one chat, and its rate allowance."""

    def __init__(self, burst: float, now: float) -> None:
        self.messages: list[VisibleMessage] = []
        self.drafts: dict[str, tuple[Draft, float]] = {}
        self.reactions: dict[str, str] = {}
        self.typing_until = now
        self.gone = False
        self.reported_gone = False
        self.tokens = burst
        self.refilled_at = now
        self.blocked_until = now


class MemoryAdapter:
    """In-memory adapter; keyword arguments override capabilities, such as `text_limit=200`."""

    def __init__(
        self,
        name: str = "memory",
        *,
        account: str = "",
        live: Live = Live.NONE,
        repeat: Repeat = Repeat.ALWAYS,
        clock: Clock | None = None,
        **limits: Any,
    ) -> None:
        self.name = name
        self.account = account
        usual = Capabilities(
            text_limit=2000,
            unit=Unit.CHARACTERS,
            live=live,
            repeat=repeat,
            typing_interval=5.0,
            buttons=8,
            reactions=True,
            files=10_000_000,
            repeat_seconds=120.0,
        )
        self.capabilities = msgspec.structs.replace(usual, **limits)
        self.ops: list[Op] = []  # all ops, including failed ones
        self.files: dict[str, bytes] = {}  # content by `File.ref`
        self._clock: Clock = clock or TimerClock()
        self._chats: dict[str, _MemoryChat] = {}
        self._done: dict[str, tuple[Receipt, float]] = {}
        self._faults: list[tuple[type, str | None, DeliveryFault]] = []
        self._violations: list[str] = []
        self._events: asyncio.Queue[_PendingEvent | PlatformError] = asyncio.Queue()
        self._last_id = 0

    # --- adapter contract --------------------------------------------------------------------

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """Hand injected events to the inbox until cancelled or broken."""
        ready()
        while True:
            event = await self._events.get()
            if isinstance(event, PlatformError):
                raise event
            try:
                event.accepted.set_result(await inbox(event.inbound))
            finally:
                if not event.accepted.done():
                    event.accepted.cancel()  # not stored, so not acknowledged

    async def deliver(self, op: Op) -> Receipt:
        """Carry out an op, or let it fail as ordered."""
        self.ops.append(op)
        chat = self._chat(op.address.chat)
        if chat.gone:
            if chat.reported_gone:
                self._add_violation(op, "the platform had said that this chat is gone")
            chat.reported_gone = True
            raise ChatGone
        self._check_pace(chat, op)
        fault = self._fault_for(op) or DeliveryFault()
        if fault.gate and not fault.carried_out:
            await fault.gate.wait()
        receipt = self._carry_out(chat, op) if fault.carried_out or not fault.error else Receipt()
        if fault.gate and fault.carried_out:
            await fault.gate.wait()
        if fault.error:
            error = fault.error()
            if isinstance(error, Unavailable) and error.retry_after:
                chat.blocked_until = self._clock.monotonic() + error.retry_after
            raise error
        return receipt

    async def fetch(self, file: File) -> AsyncIterator[bytes]:
        """Yield a file in chunks."""
        if file.ref not in self.files:
            msg = f"There is no file {file.ref}."
            raise Rejected(msg)
        content = self.files[file.ref]
        for start in range(0, len(content), 4096):
            yield content[start : start + 4096]

    # --- observation -------------------------------------------------------------------------

    def messages(self, chat: str) -> list[VisibleMessage]:
        """Return the bot's messages in a chat as they look now, oldest first."""
        return list(self._chat(chat).messages)

    def screen(self, chat: str) -> list[str]:
        """Return the texts a person sees in a chat: messages, then drafts with their status."""
        shown = self._chat(chat)
        drafts = [f"{draft.text} {draft.status}".strip() for draft in self._drafts(shown)]
        return [message.text for message in shown.messages] + drafts

    def typing(self, chat: str) -> bool:
        """Return True if the chat shows a typing indicator."""
        return self._chat(chat).typing_until > self._clock.monotonic()

    def reactions(self, chat: str) -> dict[str, str]:
        """Return the bot's reactions, by message."""
        return dict(self._chat(chat).reactions)

    def violations(self) -> list[str]:
        """Return everything a real platform would punish or a person would notice."""
        left = [
            f"{name}: {message.op} still says that it is being written"
            for name, chat in self._chats.items()
            for message in chat.messages
            if message.streaming
        ]
        for name, chat in self._chats.items():
            left += [f"{name}: the draft {draft.draft} was left" for draft in self._drafts(chat)]
            if chat.messages and self.typing(name):
                left.append(f"{name}: typing is shown although nothing follows")
        return self._violations + left

    # --- control -----------------------------------------------------------------------------

    async def inject(self, event: Inbound) -> Accepted:
        """Let an event arrive; return once it is stored. `run` must be running."""
        accepted: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self._events.put_nowait(_PendingEvent(event, accepted))
        return await accepted

    async def say(
        self,
        chat: str,
        text: str,
        *,
        sender: Sender = DEFAULT_SENDER,
        event: str = "",
        thread: str = "",
    ) -> Accepted:
        """Send a private message to the bot; a redelivery has the same `event`."""
        return await self.inject(
            InboundMessage(
                id=event or self._new_id(),
                at=self._clock.now(),
                address=Address(self.name, chat, self.account, thread),
                sender=sender,
                parts=(Text(text),),
                direct=True,
                addressed=True,
            )
        )

    async def press(
        self, chat: str, action: str, *, sender: Sender = DEFAULT_SENDER, message: str = ""
    ) -> Accepted:
        """Press a button of the bot."""
        return await self.inject(
            InboundAction(
                id=self._new_id(),
                at=self._clock.now(),
                address=Address(self.name, chat, self.account),
                sender=sender,
                action=action,
                message=message,
                direct=True,
            )
        )

    def fail(
        self, fault: DeliveryFault, kind: type = object, *, chat: str | None = None, times: int = 1
    ) -> None:
        """Let the next matching op (of a type such as `Post`) fail; faults occur in order."""
        self._faults += [(kind, chat, fault)] * times

    def break_connection(self, error: PlatformError) -> None:
        """Make `run` raise an error."""
        self._events.put_nowait(error)

    def lose_chat(self, chat: str) -> None:
        """Make a chat unavailable, as when a person blocks the bot."""
        self._chat(chat).gone = True

    def restore_chat(self, chat: str) -> None:
        """Make a lost chat available again."""
        found = self._chat(chat)
        found.gone = found.reported_gone = False

    def erase(self, chat: str, message: str) -> None:
        """Delete a message of the bot, as a person would."""
        shown = self._chat(chat)
        shown.messages = [each for each in shown.messages if each.id != message]

    # --- private -----------------------------------------------------------------------------

    def _chat(self, chat: str) -> _MemoryChat:
        if chat not in self._chats:
            self._chats[chat] = _MemoryChat(self.capabilities.burst, self._clock.monotonic())
        return self._chats[chat]

    def _drafts(self, chat: _MemoryChat) -> list[Draft]:
        now = self._clock.monotonic()
        return [
            draft for draft, since in chat.drafts.values() if now < since + DRAFT_LIFETIME_SECONDS
        ]

    def _new_id(self) -> str:
        self._last_id += 1
        return str(self._last_id)

    def _fault_for(self, op: Op) -> DeliveryFault | None:
        for number, (kind, chat, fault) in enumerate(self._faults):
            if isinstance(op, kind) and chat in {None, op.address.chat}:
                del self._faults[number]
                return fault
        return None

    def _carry_out(self, chat: _MemoryChat, op: Op) -> Receipt:
        self._check_op(chat, op)
        if not isinstance(op, Typing | React) and not self.capabilities.typing_ends:
            chat.typing_until = self._clock.monotonic()
        match op:
            case Post() | Ask() | Upload():
                return self._show_once(chat, op)
            case Edit():
                message = self._find(chat, op.message)
                message.text, message.buttons = op.text, op.buttons
                message.streaming, message.tasks = op.streaming, op.tasks
            case Delete():
                chat.messages.remove(self._find(chat, op.message))
            case Draft():
                chat.drafts.pop(op.draft, None)
                if op.text or op.status:
                    chat.drafts[op.draft] = (op, self._clock.monotonic())
            case React():
                chat.reactions[op.message] = op.emoji
            case Typing():
                interval = self.capabilities.typing_interval or 0.0
                if self.capabilities.typing_ends:  # the indicator stays until it is ended
                    interval = 0.0 if op.over else math.inf
                chat.typing_until = self._clock.monotonic() + interval
        return Receipt()

    def _show_once(self, chat: _MemoryChat, op: Post | Ask | Upload) -> Receipt:
        """Show a new message, unless the platform recognises a duplicate."""
        now = self._clock.monotonic()
        known = self._done.get(op.op)
        if known and self._is_duplicate(op, now - known[1]):
            return known[0]
        receipt = Receipt(self._new_id())
        chat.messages.append(visible_message(receipt.message, op))
        for draft in [draft for draft in chat.drafts if op.op.startswith(f"{draft}.")]:
            del chat.drafts[draft]
        self._done[op.op] = (receipt, now)
        return receipt

    def _is_duplicate(self, op: Post | Ask | Upload, passed: float) -> bool:
        match self.capabilities.repeat:
            case Repeat.ALWAYS:
                return True
            case Repeat.NONCE:
                return op.again or passed <= self.capabilities.repeat_seconds
            case Repeat.LOOKUP:
                return op.again
            case Repeat.MARK:
                return False

    def _find(self, chat: _MemoryChat, message: str) -> VisibleMessage:
        for each in chat.messages:
            if each.id == message:
                return each
        msg = f"There is no message {message}."
        raise Rejected(msg)

    # --- violations --------------------------------------------------------------------------

    def _add_violation(self, op: Op, complaint: str) -> None:
        self._violations.append(f"{op.address.chat}: {type(op).__name__} {op.op}: {complaint}")

    def _check_pace(self, chat: _MemoryChat, op: Op) -> None:
        now, can = self._clock.monotonic(), self.capabilities
        if now < chat.blocked_until - _ROUNDING:
            self._add_violation(op, "sent before the Retry-After was over")
        chat.tokens = min(can.burst, chat.tokens + (now - chat.refilled_at) * can.per_second)
        chat.refilled_at = now
        if chat.tokens < 1.0 - _ROUNDING:
            self._add_violation(op, "over the documented pace")
        chat.tokens = max(0.0, chat.tokens - 1.0)

    def _check_op(self, chat: _MemoryChat, op: Op) -> None:
        for complaint in find_violations(op, self.capabilities):
            self._add_violation(op, complaint)
        if isinstance(op, Edit) and op.streaming and self.capabilities.live is Live.STREAM:
            before = self._find(chat, op.message)
            if not before.streaming or not op.text.startswith(before.text):
                self._add_violation(op, "a stream may only grow, until its last edit")
