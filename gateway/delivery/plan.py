"""Sans-IO: the next single op that brings a chat closer to the wanted state of an item.

`wanted_messages` returns the messages that should exist, `next_step` compares them with the shown
ones, and the `record_` functions return the shown state after an op.
"""

import enum
from collections.abc import Iterable, Iterator

import msgspec

from gateway.delivery.view import (
    ItemBody,
    ShownItem,
    ShownMessage,
    ShownState,
    fits_caption,
    mark_duplicate,
    may_be_streaming,
    message_digest,
)
from platforms.core.actions import ButtonAction, write_action
from platforms.core.contract import (
    Ask,
    Button,
    Capabilities,
    Delete,
    Edit,
    Live,
    Op,
    Post,
    Receipt,
    Repeat,
    Task,
    Upload,
)
from sessions.records import ItemKind, ItemState, OutboxItem
from sessions.values.item_ids import create_op, delete_op, edit_op, replace_op
from sessions.values.visible_text import visible_line

MAX_REPEATS = 5
"""Marked copies of one message; after that the state stays `unknown`."""

_ELLIPSIS = "…"
_DAY_MS = 86_400_000


class MessageKind(enum.Enum):
    """Op that creates a message."""

    POST = enum.auto()
    ASK = enum.auto()
    UPLOAD = enum.auto()


class WantedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that should be shown."""

    text: str
    kind: MessageKind = MessageKind.POST
    buttons: tuple[Button, ...] = ()
    streaming: bool = False
    tasks: tuple[Task, ...] = ()


class ItemPhase(enum.Enum):
    """Progress of an item."""

    LIVE = enum.auto()  # being written
    FINAL = enum.auto()  # must be shown
    WITHDRAWN = enum.auto()  # must be removed
    ABANDONED = enum.auto()  # its process died before it had a final form


class DeliveryStep(msgspec.Struct, frozen=True, kw_only=True):
    """An op, the index of the message, and the state before the op."""

    op: Op
    part: int
    looks: str
    shown_before: ShownItem
    marked: bool = False

    @property
    def creates(self) -> bool:
        """True if carrying out the op twice could show a message twice."""
        return isinstance(self.op, Post | Ask | Upload)


class ItemResult(msgspec.Struct, frozen=True):
    """The final state of an item."""

    state: ItemState
    error: str | None = None


def wanted_messages(
    item: OutboxItem,
    body: ItemBody,
    texts: tuple[str, ...],
    capabilities: Capabilities,
    *,
    streaming: bool,
) -> tuple[WantedMessage, ...]:
    """Return the messages that should exist; only the last one has buttons or is streaming."""
    if streaming:
        stop = _stop_buttons(item)[: capabilities.buttons]
        complete = _plain_messages(texts[:-1])
        return (
            *complete,
            *(WantedMessage(text=text, buttons=stop, streaming=True) for text in texts[-1:]),
        )
    if item.kind is ItemKind.UPLOAD:
        if len(texts) == 1 and fits_caption(texts[0], capabilities):
            return (WantedMessage(text=texts[0], kind=MessageKind.UPLOAD),)
        return (*_plain_messages(texts), WantedMessage(text="", kind=MessageKind.UPLOAD))
    if not texts:
        return ()
    form = MessageKind.ASK if item.kind is ItemKind.ASK else MessageKind.POST
    buttons = body.buttons[: capabilities.buttons]
    return (
        *_plain_messages(texts[:-1]),
        WantedMessage(text=texts[-1], kind=form, buttons=buttons),
    )


def _plain_messages(texts: Iterable[str]) -> Iterator[WantedMessage]:
    return (WantedMessage(text=text) for text in texts)


def _stop_buttons(item: OutboxItem) -> tuple[Button, ...]:
    """Return the Stop button of an answer being written; no other item has one."""
    if item.kind is not ItemKind.ANSWER or not item.turn_id:
        return ()
    return (Button("Stop", write_action(ButtonAction.STOP, item.turn_id)),)


class ItemPlanner(msgspec.Struct, frozen=True):
    """Compares one item with the shown messages."""

    item: OutboxItem
    body: ItemBody
    capabilities: Capabilities
    phase: ItemPhase

    @property
    def _is_own_text(self) -> bool:
        """True for texts of the gateway, false for the model's answers."""
        return self.item.kind in {ItemKind.NOTICE, ItemKind.ASK}

    def next_step(
        self, want: tuple[WantedMessage, ...], shown: ShownItem, texts: dict[str, str] | None = None
    ) -> DeliveryStep | ItemResult | None:
        """Return the next op, the result, or None if there is no op yet.

        `texts` are the current texts of live messages by op.
        """
        for index, message in enumerate(want):
            part = shown.parts[index] if index < len(shown.parts) else None
            step = self._step(index, message, part, shown, texts or {})
            if step or (self.phase is ItemPhase.LIVE and self._blocks_later(part, message)):
                return step
        if self.phase is ItemPhase.LIVE:
            return None
        # An abandoned answer keeps its messages, unless it is empty.
        keeps = self.phase is ItemPhase.ABANDONED and want
        if not keeps and (step := self._delete_extra(len(want), shown)):
            return step
        if self.phase is ItemPhase.WITHDRAWN:
            return ItemResult(ItemState.DEAD, "withdrawn: the answer stayed empty")
        if any(part.fate is ShownState.UNKNOWN for part in shown.parts):
            return ItemResult(ItemState.DEAD, "the platform did not confirm whether it arrived")
        return ItemResult(ItemState.SENT)

    def _step(
        self,
        index: int,
        message: WantedMessage,
        part: ShownMessage | None,
        shown: ShownItem,
        texts: dict[str, str],
    ) -> DeliveryStep | None:
        if part is None:
            return (
                None if self.phase is ItemPhase.ABANDONED else self._create(index, message, shown)
            )
        if part.fate in {ShownState.UNKNOWN, ShownState.TRYING}:
            return self._repeat(index, message, part, shown)
        if part.fate is ShownState.LOST:
            if self.phase is not ItemPhase.FINAL:
                return None
            return self._create(index, message, shown, replace_op(part.op))
        return self._change(index, message, part, shown, texts.get(part.op))

    def _create(
        self, index: int, message: WantedMessage, shown: ShownItem, op: str = "", since: int = 0
    ) -> DeliveryStep:
        if message.streaming and self.capabilities.repeat is Repeat.MARK:
            # A message whose fate is unknown cannot be edited, so its button would stay forever.
            message = msgspec.structs.replace(message, buttons=())
        item, again = self.item, since > 0
        op, address = op or create_op(item.id, index), item.address
        mark = again and self.capabilities.repeat is Repeat.MARK
        text = mark_duplicate(message.text) if mark else message.text
        new_op: Op
        match message.kind:
            case MessageKind.UPLOAD:
                path, media_type = self.body.path, self.body.media_type
                name = visible_line(self.body.name)
                new_op = Upload(
                    op,
                    address,
                    path=path,
                    name=name,
                    media_type=media_type,
                    caption=text,
                    again=again,
                    since=since,
                )
            case MessageKind.ASK:
                new_op = Ask(
                    op, address, text=text, buttons=message.buttons, again=again, since=since
                )
            case MessageKind.POST:
                new_op = Post(
                    op,
                    address,
                    text,
                    reply_to=item.reply_to if self._replies(index) else None,
                    buttons=message.buttons,
                    streaming=message.streaming,
                    again=again,
                    since=since,
                    notice=self._is_own_text,
                    tasks=message.tasks,
                    only_for=self.body.only_for,
                )
        return DeliveryStep(
            op=new_op, part=index, looks=_wanted_digest(message), shown_before=shown, marked=mark
        )

    def _replies(self, index: int) -> bool:
        """Return True if a message of the item names the message that the item answers."""
        return bool(self.body.only_for) or (index == 0 and self.capabilities.reply)

    def _repeat(
        self, index: int, message: WantedMessage, part: ShownMessage, shown: ShownItem
    ) -> DeliveryStep | None:
        final = self.phase is ItemPhase.FINAL and self.item.kind is not ItemKind.NOTICE
        if self.capabilities.repeat is Repeat.MARK and not (final and part.repeats < MAX_REPEATS):
            return None
        return self._create(index, message, shown, part.op, part.since)

    def _change(
        self,
        index: int,
        message: WantedMessage,
        part: ShownMessage,
        shown: ShownItem,
        text: str | None,
    ) -> DeliveryStep | None:
        if message.kind is MessageKind.UPLOAD or part.looks == _wanted_digest(message):
            return None
        stoppable = bool(_stop_buttons(self.item)[: self.capabilities.buttons])
        closes = may_be_streaming(part) and (self.capabilities.live is Live.STREAM or stoppable)
        if self.phase is ItemPhase.ABANDONED and not closes:
            return None
        if not (part.message and self.capabilities.edit):
            replace = self.phase is ItemPhase.FINAL and part.looks
            return self._create(index, message, shown, replace_op(part.op)) if replace else None
        if self._must_append(message) and (text is None or not message.text.startswith(text)):
            return None
        new_op = Edit(
            edit_op(part.op),
            self.item.address,
            message=part.message,
            text=mark_duplicate(message.text) if part.marked else message.text,
            buttons=message.buttons,
            streaming=message.streaming,
            notice=self._is_own_text,
            tasks=message.tasks,
        )
        return DeliveryStep(
            op=new_op, part=index, looks=_wanted_digest(message), shown_before=shown
        )

    def _must_append(self, message: WantedMessage) -> bool:
        return self.capabilities.live is Live.STREAM and message.streaming

    def _blocks_later(self, part: ShownMessage | None, message: WantedMessage) -> bool:
        """Return True if later messages of a live answer must wait for this one."""
        return part is not None and (
            part.fate is not ShownState.SHOWN or part.looks != _wanted_digest(message)
        )

    def _delete_extra(self, keep: int, shown: ShownItem) -> DeliveryStep | None:
        """Return an op that deletes a surplus message, the last one first."""
        for index in range(len(shown.parts) - 1, keep - 1, -1):
            part = shown.parts[index]
            if part.fate is not ShownState.SHOWN or not part.message:
                continue
            op, address = delete_op(part.op), self.item.address
            if self.capabilities.delete:
                return DeliveryStep(
                    op=Delete(op, address, part.message), part=index, looks="", shown_before=shown
                )
            gone = message_digest(_ELLIPSIS, (), streaming=False)
            if self.capabilities.edit and part.looks != gone:
                new_op = Edit(
                    op, address, message=part.message, text=_ELLIPSIS, notice=self._is_own_text
                )
                return DeliveryStep(op=new_op, part=index, looks=gone, shown_before=shown)
        return None


def _wanted_digest(message: WantedMessage) -> str:
    return message_digest(
        message.text, message.buttons, streaming=message.streaming, tasks=message.tasks
    )


def fix_future_start(op: Op, now: int) -> Op:
    """Return the op to hand over; replace a first attempt in the future by one a day ago.

    Such a time means that the clock was set back. The age of the attempt is then unknown, so the
    platform is searched for the message over a whole day.
    """
    if isinstance(op, Post | Ask | Upload) and op.since > now:
        return msgspec.structs.replace(op, since=now - _DAY_MS)
    return op


# --- the shown state after an op --------------------------------------------------------------


def record_attempt(shown: ShownItem, step: DeliveryStep, now: int) -> ShownItem:
    """Record that a message is about to be created and may exist from now on."""
    part = ShownMessage(
        op=step.op.op, fate=ShownState.TRYING, looks=step.looks, since=now, marked=step.marked
    )
    old = shown.parts[step.part] if step.part < len(shown.parts) else None
    if old and old.op == part.op:
        # Unless this copy is marked, the text of the first attempt may be the one shown.
        sure = step.marked or old.looks == step.looks
        part = msgspec.structs.replace(
            part,
            looks=step.looks if sure else "",
            since=old.since,
            repeats=old.repeats + 1,
        )
    return _replace_part(shown, step.part, part)


def record_success(shown: ShownItem, step: DeliveryStep, receipt: Receipt) -> ShownItem:
    """Record that the op was carried out."""
    if isinstance(step.op, Delete):
        return ShownItem((*shown.parts[: step.part], *shown.parts[step.part + 1 :]))
    part = shown.parts[step.part]
    if step.creates:
        part = msgspec.structs.replace(part, fate=ShownState.SHOWN, message=receipt.message)
    else:
        part = msgspec.structs.replace(part, looks=step.looks)
    return _replace_part(shown, step.part, part)


def record_unknown(shown: ShownItem, step: DeliveryStep) -> ShownItem:
    """Record that the outcome of the op is unknown."""
    if isinstance(step.op, Delete):
        return shown
    part = shown.parts[step.part]
    if step.creates:
        return _replace_part(
            shown, step.part, msgspec.structs.replace(part, fate=ShownState.UNKNOWN)
        )
    return _replace_part(shown, step.part, msgspec.structs.replace(part, looks=""))


def record_refusal(shown: ShownItem, step: DeliveryStep) -> ShownItem:
    """Record that a message cannot be changed: already deleted, or to be sent again."""
    if isinstance(step.op, Delete):
        return record_success(shown, step, Receipt())
    part = msgspec.structs.replace(shown.parts[step.part], fate=ShownState.LOST)
    return _replace_part(shown, step.part, part)


def record_restart(shown: ShownItem) -> ShownItem:
    """Mark the attempts of a dead process as unknown."""
    return ShownItem(
        tuple(
            msgspec.structs.replace(part, fate=ShownState.UNKNOWN)
            if part.fate is ShownState.TRYING
            else part
            for part in shown.parts
        )
    )


def _replace_part(shown: ShownItem, index: int, part: ShownMessage) -> ShownItem:
    return ShownItem((*shown.parts[:index], part, *shown.parts[index + 1 :]))
