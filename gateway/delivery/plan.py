"""Sans-IO: the next single op that brings a chat closer to what it should show of an item.

`wanted` says which messages there should be, `next_step` compares them with what is shown, and the
functions below it say what is shown after the op was tried.
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
    read_address,
)
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
from sessions.records import ItemState, OutboxItem

MAX_REPEATS = 5
"""Marked copies of one message that are tried before it is left at `unknown`."""

_ELLIPSIS = "…"
_DAY_MS = 86_400_000


class MessageKind(enum.Enum):
    """What kind of message shows a text."""

    POST = enum.auto()
    ASK = enum.auto()
    UPLOAD = enum.auto()


class WantedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that should be there."""

    text: str
    kind: MessageKind = MessageKind.POST
    buttons: tuple[Button, ...] = ()
    streaming: bool = False
    tasks: tuple[Task, ...] = ()


class ItemPhase(enum.Enum):
    """How far an item is."""

    LIVE = enum.auto()  # being written
    FINAL = enum.auto()  # must be shown
    WITHDRAWN = enum.auto()  # must not be shown any more
    ABANDONED = enum.auto()  # its writer died, and nobody gave it a final form


class DeliveryStep(msgspec.Struct, frozen=True, kw_only=True):
    """An op, the message of the item it is about, and what was shown before it."""

    op: Op
    part: int
    looks: str
    shown_before: ShownItem
    marked: bool = False

    @property
    def creates(self) -> bool:
        """Whether carrying it out twice would show something twice."""
        return isinstance(self.op, Post | Ask | Upload)


class ItemResult(msgspec.Struct, frozen=True):
    """There is nothing left to do."""

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
    """Say which messages should be there; only the last one has the buttons, or goes on."""
    if streaming:
        stop = _stop_buttons(item)[: capabilities.buttons]
        whole = _plain_messages(texts[:-1])
        return (
            *whole,
            *(WantedMessage(text=text, buttons=stop, streaming=True) for text in texts[-1:]),
        )
    if item.kind == "upload":
        if len(texts) == 1 and fits_caption(texts[0], capabilities):
            return (WantedMessage(text=texts[0], kind=MessageKind.UPLOAD),)
        return (*_plain_messages(texts), WantedMessage(text="", kind=MessageKind.UPLOAD))
    if not texts:
        return ()
    form = MessageKind.ASK if item.kind == "ask" else MessageKind.POST
    buttons = body.buttons[: capabilities.buttons]
    return (
        *_plain_messages(texts[:-1]),
        WantedMessage(text=texts[-1], kind=form, buttons=buttons),
    )


def _plain_messages(texts: Iterable[str]) -> Iterator[WantedMessage]:
    return (WantedMessage(text=text) for text in texts)


def _stop_buttons(item: OutboxItem) -> tuple[Button, ...]:
    """Below an answer that is being written stands what ends its turn, and no other one."""
    if item.kind != "answer" or not item.turn_id:
        return ()
    return (Button("Stop", f"stop:{item.turn_id}"),)


class ItemPlanner(msgspec.Struct, frozen=True):
    """Compares one item with what is shown of it."""

    item: OutboxItem
    body: ItemBody
    capabilities: Capabilities
    phase: ItemPhase

    @property
    def _is_own_text(self) -> bool:
        """Whether these are words of ours, not of the model."""
        return self.item.kind in {"notice", "ask"}

    def next_step(
        self, want: tuple[WantedMessage, ...], shown: ShownItem, texts: dict[str, str] | None = None
    ) -> DeliveryStep | ItemResult | None:
        """Give the next op. None: nothing now, more may come. `texts`: what the messages show."""
        for index, message in enumerate(want):
            part = shown.parts[index] if index < len(shown.parts) else None
            step = self._step(index, message, part, shown, texts or {})
            if step or (self.phase is ItemPhase.LIVE and self._blocks_later(part, message)):
                return step
        if self.phase is ItemPhase.LIVE:
            return None
        # An abandoned answer keeps what it has come to; one that has not a word is taken away.
        keeps = self.phase is ItemPhase.ABANDONED and want
        if not keeps and (step := self._delete_extra(len(want), shown)):
            return step
        if self.phase is ItemPhase.WITHDRAWN:
            return ItemResult(ItemState.DEAD, "withdrawn: there was nothing to say")
        if any(part.fate is ShownState.UNKNOWN for part in shown.parts):
            return ItemResult(ItemState.DEAD, "it is not known whether this arrived")
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
            return self._create(index, message, shown, f"{part.op}n")
        return self._change(index, message, part, shown, texts.get(part.op))

    def _create(
        self, index: int, message: WantedMessage, shown: ShownItem, op: str = "", since: int = 0
    ) -> DeliveryStep:
        if message.streaming and self.capabilities.repeat is Repeat.MARK:
            # Cut off, it may stand there, and could not be changed: a button would stay for ever.
            message = msgspec.structs.replace(message, buttons=())
        item, again = self.item, since > 0
        op, address = op or f"{item.id}.{index}", read_address(item.address)
        mark = again and self.capabilities.repeat is Repeat.MARK
        text = mark_duplicate(message.text) if mark else message.text
        made: Op
        match message.kind:
            case MessageKind.UPLOAD:
                path, name, media_type = self.body.path, self.body.name, self.body.media_type
                made = Upload(
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
                made = Ask(
                    op, address, text=text, buttons=message.buttons, again=again, since=since
                )
            case MessageKind.POST:
                made = Post(
                    op,
                    address,
                    text,
                    reply_to=item.reply_to if index == 0 and self.capabilities.reply else None,
                    buttons=message.buttons,
                    streaming=message.streaming,
                    again=again,
                    since=since,
                    notice=self._is_own_text,
                    tasks=message.tasks,
                )
        return DeliveryStep(
            op=made, part=index, looks=_wanted_digest(message), shown_before=shown, marked=mark
        )

    def _repeat(
        self, index: int, message: WantedMessage, part: ShownMessage, shown: ShownItem
    ) -> DeliveryStep | None:
        final = self.phase is ItemPhase.FINAL and self.item.kind != "notice"
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
            anew = self.phase is ItemPhase.FINAL and part.looks
            return self._create(index, message, shown, f"{part.op}n") if anew else None
        if self._must_append(message) and (text is None or not message.text.startswith(text)):
            return None
        made = Edit(
            f"{part.op}.e",
            read_address(self.item.address),
            message=part.message,
            text=mark_duplicate(message.text) if part.marked else message.text,
            buttons=message.buttons,
            streaming=message.streaming,
            notice=self._is_own_text,
            tasks=message.tasks,
        )
        return DeliveryStep(op=made, part=index, looks=_wanted_digest(message), shown_before=shown)

    def _must_append(self, message: WantedMessage) -> bool:
        return self.capabilities.live is Live.STREAM and message.streaming

    def _blocks_later(self, part: ShownMessage | None, message: WantedMessage) -> bool:
        """While an answer is written its later messages wait for the earlier ones."""
        return part is not None and (
            part.fate is not ShownState.SHOWN or part.looks != _wanted_digest(message)
        )

    def _delete_extra(self, keep: int, shown: ShownItem) -> DeliveryStep | None:
        """Delete what should not be there, the last message first."""
        for index in range(len(shown.parts) - 1, keep - 1, -1):
            part = shown.parts[index]
            if part.fate is not ShownState.SHOWN or not part.message:
                continue
            op, address = f"{part.op}.d", read_address(self.item.address)
            if self.capabilities.delete:
                return DeliveryStep(
                    op=Delete(op, address, part.message), part=index, looks="", shown_before=shown
                )
            gone = message_digest(_ELLIPSIS, (), streaming=False)
            if self.capabilities.edit and part.looks != gone:
                made = Edit(
                    op, address, message=part.message, text=_ELLIPSIS, notice=self._is_own_text
                )
                return DeliveryStep(op=made, part=index, looks=gone, shown_before=shown)
        return None


def _wanted_digest(message: WantedMessage) -> str:
    return message_digest(
        message.text, message.buttons, streaming=message.streaming, tasks=message.tasks
    )


def fix_future_start(op: Op, now: int) -> Op:
    """An op as it is handed over: a first try that lies ahead of us means a clock that was set back.

    Nobody knows then how long ago it was, so what it may have left is looked for in a whole day.
    """
    if isinstance(op, Post | Ask | Upload) and op.since > now:
        return msgspec.structs.replace(op, since=now - _DAY_MS)
    return op


# --- what is shown after an op was tried -----------------------------------------------------


def record_attempt(shown: ShownItem, step: DeliveryStep, now: int) -> ShownItem:
    """Say that a message is about to be created: from here on it may be there."""
    part = ShownMessage(
        op=step.op.op, fate=ShownState.TRYING, looks=step.looks, since=now, marked=step.marked
    )
    old = shown.parts[step.part] if step.part < len(shown.parts) else None
    if old and old.op == part.op:
        # Unless this is a copy of its own, the first try's text may be what is shown.
        sure = step.marked or old.looks == step.looks
        part = msgspec.structs.replace(
            part,
            looks=step.looks if sure else "",
            since=old.since,
            repeats=old.repeats + 1,
        )
    return _replace_part(shown, step.part, part)


def record_success(shown: ShownItem, step: DeliveryStep, receipt: Receipt) -> ShownItem:
    """Say that the op was carried out."""
    if isinstance(step.op, Delete):
        return ShownItem((*shown.parts[: step.part], *shown.parts[step.part + 1 :]))
    part = shown.parts[step.part]
    if step.creates:
        part = msgspec.structs.replace(part, fate=ShownState.SHOWN, message=receipt.message)
    else:
        part = msgspec.structs.replace(part, looks=step.looks)
    return _replace_part(shown, step.part, part)


def record_unknown(shown: ShownItem, step: DeliveryStep) -> ShownItem:
    """Say that nobody knows whether the op was carried out."""
    if isinstance(step.op, Delete):
        return shown
    part = shown.parts[step.part]
    if step.creates:
        return _replace_part(
            shown, step.part, msgspec.structs.replace(part, fate=ShownState.UNKNOWN)
        )
    return _replace_part(shown, step.part, msgspec.structs.replace(part, looks=""))


def record_refusal(shown: ShownItem, step: DeliveryStep) -> ShownItem:
    """Say that a message cannot be changed: it must be shown anew, or is gone already."""
    if isinstance(step.op, Delete):
        return record_success(shown, step, Receipt())
    part = msgspec.structs.replace(shown.parts[step.part], fate=ShownState.LOST)
    return _replace_part(shown, step.part, part)


def record_restart(shown: ShownItem) -> ShownItem:
    """Say that what was being tried when the process died may have been carried out."""
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
