"""Sans-IO: the next single op that brings a chat closer to what it should show of an item.

`wanted` says which messages there should be, `next_step` compares them with what is shown, and the
functions below it say what is shown after the op was tried.
"""

import enum

import msgspec

from gateway.delivery.view import (
    Body,
    Fate,
    Part,
    Shown,
    fits_caption,
    looks,
    marked,
    may_be_streaming,
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
from sessions.records import Item, ItemState

MOST_REPEATS = 5
"""Marked copies of one message that are tried before it is left at `unknown`."""

_ELLIPSIS = "…"
_DAY = 86_400_000


class Form(enum.Enum):
    """What kind of message shows a text."""

    POST = enum.auto()
    ASK = enum.auto()
    UPLOAD = enum.auto()


class Wanted(msgspec.Struct, frozen=True):
    """A message that should be there."""

    text: str
    form: Form = Form.POST
    buttons: tuple[Button, ...] = ()
    streaming: bool = False
    tasks: tuple[Task, ...] = ()


class Phase(enum.Enum):
    """How far an item is."""

    LIVE = enum.auto()  # being written
    FINAL = enum.auto()  # must be shown
    WITHDRAWN = enum.auto()  # must not be shown any more
    ABANDONED = enum.auto()  # its writer died, and nobody gave it a final form


class Step(msgspec.Struct, frozen=True):
    """An op, the message of the item it is about, and what was shown before it."""

    op: Op
    part: int
    looks: str
    before: Shown
    marked: bool = False

    @property
    def creates(self) -> bool:
        """Whether carrying it out twice would show something twice."""
        return isinstance(self.op, Post | Ask | Upload)


class Settled(msgspec.Struct, frozen=True):
    """There is nothing left to do."""

    state: ItemState
    error: str | None = None


def wanted(
    item: Item, body: Body, texts: tuple[str, ...], capabilities: Capabilities, *, streaming: bool
) -> tuple[Wanted, ...]:
    """Say which messages should be there; only the last one has the buttons, or goes on."""
    if streaming:
        stop = _stop(item)[: capabilities.buttons]
        whole = map(Wanted, texts[:-1])
        return (*whole, *(Wanted(text, buttons=stop, streaming=True) for text in texts[-1:]))
    if item.kind == "upload":
        if len(texts) == 1 and fits_caption(texts[0], capabilities):
            return (Wanted(texts[0], Form.UPLOAD),)
        return (*map(Wanted, texts), Wanted("", Form.UPLOAD))
    if not texts:
        return ()
    form = Form.ASK if item.kind == "ask" else Form.POST
    buttons = body.buttons[: capabilities.buttons]
    return (*map(Wanted, texts[:-1]), Wanted(texts[-1], form, buttons))


def _stop(item: Item) -> tuple[Button, ...]:
    """Below an answer that is being written stands what ends its turn, and no other one."""
    if item.kind != "answer" or not item.turn_id:
        return ()
    return (Button("Stop", f"stop:{item.turn_id}"),)


class Planner(msgspec.Struct, frozen=True):
    """Compares one item with what is shown of it."""

    item: Item
    body: Body
    capabilities: Capabilities
    phase: Phase

    @property
    def _ours(self) -> bool:
        """Whether these are words of ours, not of the model."""
        return self.item.kind in {"notice", "ask"}

    def next_step(
        self, want: tuple[Wanted, ...], shown: Shown, texts: dict[str, str] | None = None
    ) -> Step | Settled | None:
        """Give the next op. None: nothing now, more may come. `texts`: what the messages show."""
        for index, message in enumerate(want):
            part = shown.parts[index] if index < len(shown.parts) else None
            step = self._step(index, message, part, shown, texts or {})
            if step or (self.phase is Phase.LIVE and self._stuck(part, message)):
                return step
        if self.phase is Phase.LIVE:
            return None
        # An abandoned answer keeps what it has come to; one that has not a word is taken away.
        keeps = self.phase is Phase.ABANDONED and want
        if not keeps and (step := self._take_away(len(want), shown)):
            return step
        if self.phase is Phase.WITHDRAWN:
            return Settled(ItemState.DEAD, "withdrawn: there was nothing to say")
        if any(part.fate is Fate.UNKNOWN for part in shown.parts):
            return Settled(ItemState.DEAD, "it is not known whether this arrived")
        return Settled(ItemState.SENT)

    def _step(
        self, index: int, message: Wanted, part: Part | None, shown: Shown, texts: dict[str, str]
    ) -> Step | None:
        if part is None:
            return None if self.phase is Phase.ABANDONED else self._create(index, message, shown)
        if part.fate in {Fate.UNKNOWN, Fate.TRYING}:
            return self._repeat(index, message, part, shown)
        if part.fate is Fate.LOST:
            if self.phase is not Phase.FINAL:
                return None
            return self._create(index, message, shown, f"{part.op}n")
        return self._change(index, message, part, shown, texts.get(part.op))

    def _create(
        self, index: int, message: Wanted, shown: Shown, op: str = "", since: int = 0
    ) -> Step:
        if message.streaming and self.capabilities.repeat is Repeat.MARK:
            # Cut off, it may stand there, and could not be changed: a button would stay for ever.
            message = msgspec.structs.replace(message, buttons=())
        item, again = self.item, since > 0
        op, address = op or f"{item.id}.{index}", read_address(item.address)
        mark = again and self.capabilities.repeat is Repeat.MARK
        text = marked(message.text) if mark else message.text
        made: Op
        match message.form:
            case Form.UPLOAD:
                path, name, media_type = self.body.path, self.body.name, self.body.media_type
                made = Upload(op, address, path, name, media_type, text, again=again, since=since)
            case Form.ASK:
                made = Ask(op, address, text, message.buttons, again=again, since=since)
            case Form.POST:
                made = Post(
                    op,
                    address,
                    text,
                    reply_to=item.reply_to if index == 0 and self.capabilities.reply else None,
                    buttons=message.buttons,
                    streaming=message.streaming,
                    again=again,
                    since=since,
                    notice=self._ours,
                    tasks=message.tasks,
                )
        return Step(made, index, _looks(message), shown, mark)

    def _repeat(self, index: int, message: Wanted, part: Part, shown: Shown) -> Step | None:
        final = self.phase is Phase.FINAL and self.item.kind != "notice"
        if self.capabilities.repeat is Repeat.MARK and not (final and part.repeats < MOST_REPEATS):
            return None
        return self._create(index, message, shown, part.op, part.since)

    def _change(
        self, index: int, message: Wanted, part: Part, shown: Shown, text: str | None
    ) -> Step | None:
        if message.form is Form.UPLOAD or part.looks == _looks(message):
            return None
        stoppable = bool(_stop(self.item)[: self.capabilities.buttons])
        closes = may_be_streaming(part) and (self.capabilities.live is Live.STREAM or stoppable)
        if self.phase is Phase.ABANDONED and not closes:
            return None
        if not (part.message and self.capabilities.edit):
            anew = self.phase is Phase.FINAL and part.looks
            return self._create(index, message, shown, f"{part.op}n") if anew else None
        if self._must_grow(message) and (text is None or not message.text.startswith(text)):
            return None
        made = Edit(
            f"{part.op}.e",
            read_address(self.item.address),
            part.message,
            marked(message.text) if part.marked else message.text,
            message.buttons,
            streaming=message.streaming,
            notice=self._ours,
            tasks=message.tasks,
        )
        return Step(made, index, _looks(message), shown)

    def _must_grow(self, message: Wanted) -> bool:
        return self.capabilities.live is Live.STREAM and message.streaming

    def _stuck(self, part: Part | None, message: Wanted) -> bool:
        """While an answer is written its later messages wait for the earlier ones."""
        return part is not None and (part.fate is not Fate.SHOWN or part.looks != _looks(message))

    def _take_away(self, keep: int, shown: Shown) -> Step | None:
        """Delete what should not be there, the last message first."""
        for index in range(len(shown.parts) - 1, keep - 1, -1):
            part = shown.parts[index]
            if part.fate is not Fate.SHOWN or not part.message:
                continue
            op, address = f"{part.op}.d", read_address(self.item.address)
            if self.capabilities.delete:
                return Step(Delete(op, address, part.message), index, "", shown)
            gone = looks(_ELLIPSIS, (), streaming=False)
            if self.capabilities.edit and part.looks != gone:
                made = Edit(op, address, part.message, _ELLIPSIS, notice=self._ours)
                return Step(made, index, gone, shown)
        return None


def _looks(message: Wanted) -> str:
    return looks(message.text, message.buttons, streaming=message.streaming, tasks=message.tasks)


def dated(op: Op, now: int) -> Op:
    """An op as it is handed over: a first try that lies ahead of us means a clock that was set back.

    Nobody knows then how long ago it was, so what it may have left is looked for in a whole day.
    """
    if isinstance(op, Post | Ask | Upload) and op.since > now:
        return msgspec.structs.replace(op, since=now - _DAY)
    return op


# --- what is shown after an op was tried -----------------------------------------------------


def tried(shown: Shown, step: Step, now: int) -> Shown:
    """Say that a message is about to be created: from here on it may be there."""
    part = Part(step.op.op, Fate.TRYING, looks=step.looks, since=now, marked=step.marked)
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
    return _with(shown, step.part, part)


def done(shown: Shown, step: Step, receipt: Receipt) -> Shown:
    """Say that the op was carried out."""
    if isinstance(step.op, Delete):
        return Shown((*shown.parts[: step.part], *shown.parts[step.part + 1 :]))
    part = shown.parts[step.part]
    if step.creates:
        part = msgspec.structs.replace(part, fate=Fate.SHOWN, message=receipt.message)
    else:
        part = msgspec.structs.replace(part, looks=step.looks)
    return _with(shown, step.part, part)


def doubted(shown: Shown, step: Step) -> Shown:
    """Say that nobody knows whether the op was carried out."""
    if isinstance(step.op, Delete):
        return shown
    part = shown.parts[step.part]
    if step.creates:
        return _with(shown, step.part, msgspec.structs.replace(part, fate=Fate.UNKNOWN))
    return _with(shown, step.part, msgspec.structs.replace(part, looks=""))


def refused(shown: Shown, step: Step) -> Shown:
    """Say that a message cannot be changed: it must be shown anew, or is gone already."""
    if isinstance(step.op, Delete):
        return done(shown, step, Receipt())
    part = msgspec.structs.replace(shown.parts[step.part], fate=Fate.LOST)
    return _with(shown, step.part, part)


def after_restart(shown: Shown) -> Shown:
    """Say that what was being tried when the process died may have been carried out."""
    return Shown(
        tuple(
            msgspec.structs.replace(part, fate=Fate.UNKNOWN) if part.fate is Fate.TRYING else part
            for part in shown.parts
        )
    )


def _with(shown: Shown, index: int, part: Part) -> Shown:
    return Shown((*shown.parts[:index], part, *shown.parts[index + 1 :]))
