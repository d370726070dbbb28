"""Sans-IO: the next item of a chat, the next op, and when.

Final items go in order, and each holds back the items after it; deferred items go after the others.
An answer being written yields to all of them and shows its newest text whenever the budget allows.
"""

import math
from collections.abc import Callable, Iterator

import msgspec

from gateway.delivery.long_text import max_messages
from gateway.delivery.pacing import OpPriority, Pace
from gateway.delivery.plan import (
    DeliveryStep,
    ItemPhase,
    ItemPlanner,
    ItemResult,
    MessageKind,
    WantedMessage,
    wanted_messages,
)
from gateway.delivery.rendering import LiveRedaction, Rendering, RenderJob
from gateway.delivery.view import ItemBody, ShownItem, read_body, read_shown
from platforms.core.contract import Capabilities, Draft, Edit, Live, Task, Typing
from platforms.core.split import IncrementalSplitter
from sessions.records import ItemKind, ItemState, OutboxItem
from sessions.values.item_ids import draft_op, typing_op

FIRST_LIVE_DELAY_SECONDS = 0.3
"""Answers finished within this time are sent once, without a live update first."""

_DRAFT_REFRESH_SECONDS = 20.0
"""Seconds after which an unchanged draft is sent again, because drafts expire."""

_LONG_TEXT_CHARACTERS = 16_000
"""Length from which a text is rendered in a thread."""

_NO_PART = -1
_MAX_RECENT = 4  # finished items whose messages can still be updated


class QueueEntry:
    """One item on its way to a chat."""

    def __init__(self, item: OutboxItem, phase: ItemPhase, *, stored: bool) -> None:
        self.item = item
        self.body: ItemBody = read_body(item)
        self.shown: ShownItem = read_shown(item)
        self.phase = phase
        self.stored = stored  # has a row in the store
        self.removed = False  # left the queue while an op was running
        self.tries = item.tries  # failures in a row
        self.not_before = 0.0  # end of the backoff
        self.changed_at = -math.inf  # when one of its messages last changed
        self.needs_probe = False  # check with a harmless op that the platform answers
        initial = self.body.text
        self.read_text: Callable[[], str] = lambda: initial  # current text of a live answer
        self.status = ""
        self.tasks: tuple[Task, ...] = ()
        self.is_growing = True  # the end of the text may be the beginning of a word
        self.dirty = False  # the text is newer than the shown one
        self.next_live_at = 0.0
        self.next_typing_at = 0.0
        self.shown_status = ""  # status shown outside the messages
        self.draft_shown = False
        self.typing_shown = False  # a typing indicator may be visible
        self.is_muted = False  # no more live updates
        self.live_texts: dict[str, str] = {}  # shown text of live messages, by op
        self._task_parts: dict[str, int] = {}  # index of the message that shows each task
        self._growing = IncrementalSplitter()
        self._redaction: LiveRedaction | None = None  # of a live answer
        self._rendering: Rendering | None = None  # made in a thread, for the next move
        self.render_seconds = 0.0  # of the last rendering in a thread
        self._final_messages: tuple[WantedMessage, ...] | None = None

    @property
    def text(self) -> str:
        """Current text of an answer being written."""
        return self.read_text()

    @property
    def is_deferred(self) -> bool:
        """True if the other items go first; a notice shown in part is continued at once."""
        return self.body.deferred and not self.shown.parts

    def resume(self) -> None:
        """Stop waiting for a writer, because one has taken over the item."""
        if self.phase is ItemPhase.ABANDONED:
            self.not_before = 0.0

    def start_live(self, redaction: LiveRedaction | None) -> None:
        """Show the text of a writer until `finish`."""
        self.resume()
        self.phase = ItemPhase.LIVE
        self._redaction = redaction

    def finish(self, item: OutboxItem) -> None:
        """Adopt the final form of the item."""
        self.resume()
        self.item = item
        self.body = read_body(item)
        self.phase = ItemPhase.FINAL
        self._redaction = None
        self.stored = True
        self._final_messages = None

    def final_messages(
        self, capabilities: Capabilities, redact: Callable[[str], str]
    ) -> tuple[WantedMessage, ...]:
        """Return the final messages; computed once."""
        if self._final_messages is None:
            if self.phase is ItemPhase.WITHDRAWN:
                self._final_messages = ()
            else:
                done = self._take_rendering(capabilities, redact)
                want = wanted_messages(
                    self.item, self.body, done.texts, capabilities, streaming=False
                )
                if done.is_cut and self.phase is ItemPhase.FINAL:
                    want = (*want, WantedMessage(text="", kind=MessageKind.UPLOAD))
                if self._task_parts:  # fast tasks were never shown live
                    last = max(self._task_parts.values())
                    for task in self.tasks:
                        self._task_parts.setdefault(task.id, last)
                    want = self._assign_tasks(want, redact)
                self._final_messages = want
        return self._final_messages

    def live_messages(
        self,
        capabilities: Capabilities,
        redact: Callable[[str], str],
    ) -> tuple[WantedMessage, ...]:
        """Return the messages to show while the answer is being written."""
        texts = self._take_rendering(capabilities, redact).texts
        if not (self.tasks and capabilities.tasks):
            return wanted_messages(self.item, self.body, texts, capabilities, streaming=True)
        texts = texts or ("",)
        for task in self.tasks:  # a task stays in the message that was last when it started
            self._task_parts.setdefault(task.id, len(texts) - 1)
        want = wanted_messages(self.item, self.body, texts, capabilities, streaming=True)
        return self._assign_tasks(want, redact)

    def render_job(self, capabilities: Capabilities) -> RenderJob:
        """Return the work of rendering the present text."""
        live = self.phase is ItemPhase.LIVE
        # A file would be visible to the whole room.
        messages = None if self.body.only_for else max_messages(self.item, capabilities)
        if messages is not None and len(self.shown.parts) > messages + 2:
            messages = None  # an earlier version has shown more, and there is no place for a file
        return RenderJob(
            text=self._live_text() if live else self.body.text,
            capabilities=capabilities,
            is_of_model=self.item.kind in {ItemKind.ANSWER, ItemKind.UPLOAD},
            messages=messages,
            has_file=self.phase is ItemPhase.FINAL,
            growing=self._growing if live else None,
            redaction=self._redaction if live else None,
            status=self.status if live else "",
        )

    def needs_rendering(self) -> bool:
        """Return True if the text is long and must be rendered before its next op is known."""
        if self.phase is ItemPhase.LIVE:
            return self._rendering is None and len(self.text) > _LONG_TEXT_CHARACTERS
        if self._final_messages is not None or self.phase is ItemPhase.WITHDRAWN:
            return False
        return len(self.body.text) > _LONG_TEXT_CHARACTERS and not self._is_rendered()

    def set_rendering(self, rendering: Rendering, seconds: float) -> None:
        """Keep a rendering made in a thread for the next move."""
        self._rendering, self.render_seconds = rendering, seconds

    def _is_rendered(self) -> bool:
        return self._rendering is not None and self._rendering.source is self.body.text

    def _live_text(self) -> str:
        if self._redaction and self.is_growing:
            return self._redaction.hold_back(self.text)
        return self.text

    def _take_rendering(
        self,
        capabilities: Capabilities,
        redact: Callable[[str], str],
    ) -> Rendering:
        """Return the messages' texts: rendered before, or now. A live text may have grown since."""
        ready, is_current = self._rendering, self.phase is ItemPhase.LIVE or self._is_rendered()
        self._rendering = None
        if ready and is_current:
            return ready
        return self.render_job(capabilities).run(redact)

    def _assign_tasks(
        self, messages: tuple[WantedMessage, ...], redact: Callable[[str], str]
    ) -> tuple[WantedMessage, ...]:
        """Attach each task to its message."""
        tasks: dict[int, list[Task]] = {}
        for task in self.tasks:
            if (part := self._task_parts.get(task.id)) is not None:
                shown = msgspec.structs.replace(task, title=redact(task.title))
                tasks.setdefault(part, []).append(shown)
        return tuple(
            msgspec.structs.replace(message, tasks=tuple(tasks[part])) if part in tasks else message
            for part, message in enumerate(messages)
        )


class CarryOut(msgspec.Struct, frozen=True):
    """Move: carry out an op."""

    entry: QueueEntry
    step: DeliveryStep
    priority: OpPriority


class SettleItem(msgspec.Struct, frozen=True):
    """Move: an item has reached a final state."""

    entry: QueueEntry
    result: ItemResult


class RenderText(msgspec.Struct, frozen=True):
    """Move: render a long text in a thread, then ask for the next move again."""

    entry: QueueEntry


class WaitUntil(msgspec.Struct, frozen=True):
    """Move: wait until this time or for new work."""

    moment: float


QueueMove = CarryOut | SettleItem | RenderText | WaitUntil


class ChatQueue:
    """The items of one chat, in order."""

    __slots__ = ("_capabilities", "_entries", "_recent", "_redact")

    def __init__(
        self,
        capabilities: Capabilities,
        redact: Callable[[str], str],
    ) -> None:
        self._capabilities = capabilities
        self._redact = redact
        self._entries: dict[str, QueueEntry] = {}
        self._recent: dict[str, ShownItem] = {}

    def set_capabilities(self, capabilities: Capabilities) -> None:
        """Replace the capabilities after the platform refused a feature."""
        self._capabilities = capabilities

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._entries.values())

    def get(self, item_id: str) -> QueueEntry | None:
        """Return an unfinished item."""
        return self._entries.get(item_id)

    def add(self, entry: QueueEntry) -> None:
        """Append an item; a recently finished one continues with the same messages."""
        recent = self._recent.pop(entry.item.id, None)
        if recent and not entry.shown.parts:
            entry.shown = recent
        self._entries[entry.item.id] = entry

    def remove(self, entry: QueueEntry) -> None:
        """Remove an item; the shown messages are remembered for a while."""
        entry.removed = True
        entry.read_text = str  # break the reference cycle with the writer
        self._entries.pop(entry.item.id, None)
        if entry.shown.parts:
            self._recent[entry.item.id] = entry.shown
            if len(self._recent) > _MAX_RECENT:
                del self._recent[next(iter(self._recent))]

    def has_work(self, *, urgent: bool) -> bool:
        """Return True if there are items of this urgency."""
        return any(entry.body.urgent is urgent for entry in self._entries.values())

    def has_pending(self) -> bool:
        """Return True if a final item is not shown yet."""
        return any(entry.phase is ItemPhase.FINAL for entry in self._entries.values())

    def next_move(self, *, urgent: bool, now: float, pace: Pace) -> QueueMove | None:
        """Return the next move among the urgent or the other items."""
        live: list[QueueEntry] = []
        later: list[float] = []
        for entry in self._in_turn(urgent=urgent):
            if entry.phase is not ItemPhase.LIVE:
                if entry.not_before <= now:
                    priority = OpPriority.URGENT if urgent else OpPriority.FINAL
                    final = self._after_rest(self._final_move(entry, priority), now)
                    return self._when_allowed(final, priority, now, pace)
                later.append(entry.not_before)
                if entry.phase is ItemPhase.FINAL:  # holds back the later items
                    return WaitUntil(min(later))
            else:
                live.append(entry)
        # Several live answers share the chat's budget: the one that waited longest goes first.
        for entry in sorted(live, key=lambda entry: entry.next_live_at):
            move = self._live_move(entry, now, pace)
            if isinstance(move, CarryOut | RenderText):
                return move
            if move:
                later.append(move.moment)
        return WaitUntil(min(later)) if later else None

    def _in_turn(self, *, urgent: bool) -> list[QueueEntry]:
        """Return the entries of this urgency in order, the deferred ones last."""
        chosen = [entry for entry in self._entries.values() if entry.body.urgent is urgent]
        if len(chosen) > 1:
            chosen.sort(key=lambda entry: entry.is_deferred)
        return chosen

    def _after_rest(self, move: CarryOut | SettleItem | RenderText, now: float) -> QueueMove:
        """Delay the final edit until the minimum time after the last live update has passed."""
        if isinstance(move, CarryOut) and isinstance(move.step.op, Edit):
            at = move.entry.changed_at + self._capabilities.rest
            return move if at <= now else WaitUntil(at)
        return move

    def _when_allowed(
        self, move: QueueMove, priority: OpPriority, now: float, pace: Pace
    ) -> QueueMove:
        if not isinstance(move, CarryOut):
            return move
        at = pace.ready_at(priority, now)
        return move if at <= now else WaitUntil(at)

    def _final_move(
        self, entry: QueueEntry, priority: OpPriority
    ) -> CarryOut | SettleItem | RenderText:
        if entry.needs_rendering():
            return RenderText(entry)
        want = entry.final_messages(self._capabilities, self._redact)
        probe = entry.needs_probe and self._capabilities.typing_interval is not None
        if probe or entry.shown_status:
            return CarryOut(entry, self._typing_step(entry, over=not probe), priority)
        if entry.draft_shown and not want:
            return CarryOut(entry, self._draft_step(entry, "", ""), priority)
        planner = ItemPlanner(entry.item, entry.body, self._capabilities, entry.phase)
        found = planner.next_step(want, entry.shown)
        if isinstance(found, DeliveryStep):
            return CarryOut(entry, found, priority)
        if entry.typing_shown and self._capabilities.typing_ends:
            return CarryOut(entry, self._typing_step(entry, over=True), priority)
        return SettleItem(entry, found or ItemResult(ItemState.SENT))

    def _live_move(
        self, entry: QueueEntry, now: float, pace: Pace
    ) -> CarryOut | RenderText | WaitUntil | None:
        if entry.is_muted:
            return None
        can = self._capabilities
        if (
            can.live is Live.DRAFT
            and entry.draft_shown
            and now >= entry.next_live_at + _DRAFT_REFRESH_SECONDS
        ):
            entry.dirty = True
        status = self._redact(entry.status) if can.status else ""
        if status != entry.shown_status or (entry.dirty and can.live is not Live.NONE):
            if now < entry.next_live_at:
                return WaitUntil(entry.next_live_at)
            if (at := pace.ready_at(OpPriority.COSMETIC, now)) > now:
                return WaitUntil(at)  # the text is rendered only then
            if status != entry.shown_status:
                return CarryOut(entry, self._typing_step(entry, status), OpPriority.COSMETIC)
            if entry.needs_rendering():
                return RenderText(entry)
            if step := self._live_step(entry):
                return CarryOut(entry, step, OpPriority.COSMETIC)
            entry.dirty = False
        if entry.draft_shown:
            return WaitUntil(entry.next_live_at + _DRAFT_REFRESH_SECONDS)
        if can.typing_interval is None or entry.shown.parts:
            return None
        if now < entry.next_typing_at:
            return WaitUntil(entry.next_typing_at)
        at = pace.ready_at(OpPriority.TRIVIAL, now)
        return (
            CarryOut(entry, self._typing_step(entry, status), OpPriority.TRIVIAL)
            if at <= now
            else WaitUntil(at)
        )

    def _live_step(self, entry: QueueEntry) -> DeliveryStep | None:
        want = entry.live_messages(self._capabilities, self._redact)
        if self._capabilities.live is Live.DRAFT:
            text = want[-1].text if want else ""
            status = self._redact(entry.status)
            return (
                self._draft_step(entry, text, status)
                if text or status or entry.draft_shown
                else None
            )
        planner = ItemPlanner(entry.item, entry.body, self._capabilities, ItemPhase.LIVE)
        found = planner.next_step(want, entry.shown, entry.live_texts)
        return found if isinstance(found, DeliveryStep) else None

    def _typing_step(
        self, entry: QueueEntry, status: str = "", *, over: bool = False
    ) -> DeliveryStep:
        over = over and self._capabilities.typing_ends
        op = Typing(typing_op(entry.item.id), entry.item.address, status, over)
        return DeliveryStep(op=op, part=_NO_PART, looks="", shown_before=entry.shown)

    def _draft_step(self, entry: QueueEntry, text: str, status: str) -> DeliveryStep:
        item = entry.item
        op = Draft(draft_op(item.id), item.address, draft=item.id, text=text, status=status)
        return DeliveryStep(op=op, part=_NO_PART, looks="", shown_before=entry.shown)
