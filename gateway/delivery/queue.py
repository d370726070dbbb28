"""Sans-IO: which of a chat's items is next, with which op, and when.

What must be shown goes in order, the earliest first, and holds back what came after it. An answer
that is being written gives way to all of that; it shows its newest state whenever there is room.
"""

import math
from collections.abc import Callable, Iterator

import msgspec

from gateway.delivery.pacing import Pace, Weight
from gateway.delivery.plan import Phase, Planner, Settled, Step, Wanted, wanted
from gateway.delivery.view import (
    Body,
    Shown,
    read_address,
    read_body,
    read_shown,
    render,
    render_live,
)
from platforms.core.contract import Capabilities, Draft, Edit, Live, Task, Typing
from platforms.core.split import Growing
from sessions.records import Item, ItemState

FIRST_LIVE_DELAY = 0.3
"""An answer that is whole within this time is shown once, without a live update before it."""

DRAFT_FADES = 20.0
"""Seconds after which a draft that did not change is shown again, lest it vanish."""

_NO_PART = -1
_REMEMBERED = 4  # items of a chat that may be put again with news


class Entry:
    """One item on its way into a chat."""

    def __init__(self, item: Item, phase: Phase, *, stored: bool) -> None:
        self.item = item
        self.body: Body = read_body(item)
        self.shown: Shown = read_shown(item)
        self.phase = phase
        self.stored = stored  # has a row in the store
        self.gone = False  # left the queue while an op was under way
        self.tries = item.tries  # since something last went well
        self.not_before = 0.0  # backing off
        self.changed_at = -math.inf  # when one of its messages last changed
        self.probe = False  # first see whether the platform answers at all
        begun = self.body.text
        self.read: Callable[[], str] = lambda: begun  # of an answer being written
        self.status = ""
        self.tasks: tuple[Task, ...] = ()
        self.dirty = False  # a newer text than was shown
        self.live_at = 0.0  # not before this moment
        self.typing_at = 0.0
        self.told = ""  # the status that is shown apart from the messages
        self.drafted = False  # a draft of it is shown
        self.at_work = False  # it may be seen that it is being written
        self.mute = False  # the platform refused its live updates
        self.texts: dict[str, str] = {}  # what its live messages show
        self._parts_of_tasks: dict[str, int] = {}  # the message in which each is shown
        self._growing = Growing()
        self._want: tuple[Wanted, ...] | None = None

    @property
    def text(self) -> str:
        """What an answer that is being written has come to."""
        return self.read()

    def adopt(self) -> None:
        """Somebody writes it again, or has: there is nothing to wait for any more."""
        if self.phase is Phase.ABANDONED:
            self.not_before = 0.0

    def finish(self, item: Item) -> None:
        """Take over what the item should show for good."""
        self.adopt()
        self.item = item
        self.body = read_body(item)
        self.phase = Phase.FINAL
        self.stored = True
        self._want = None

    def want(self, capabilities: Capabilities, clean: Callable[[str], str]) -> tuple[Wanted, ...]:
        """Say which messages should be there for good; worked out once."""
        if self._want is None:
            if self.phase is Phase.WITHDRAWN:
                self._want = ()
            else:
                texts = render(clean(self.body.text), capabilities)
                want = wanted(self.item, self.body, texts, capabilities, streaming=False)
                if self._parts_of_tasks:  # what was quick was not shown while it was written
                    last = max(self._parts_of_tasks.values())
                    for task in self.tasks:
                        self._parts_of_tasks.setdefault(task.id, last)
                    want = self._with_tasks(want, clean)
                self._want = want
        return self._want

    def want_live(
        self, capabilities: Capabilities, clean: Callable[[str], str]
    ) -> tuple[Wanted, ...]:
        """Say which messages should be there while the answer is written."""
        status = clean(self.status)
        texts = render_live(clean(self.text), capabilities, status, self._growing)
        if not (self.tasks and capabilities.tasks):
            return wanted(self.item, self.body, texts, capabilities, streaming=True)
        texts = texts or ("",)
        for task in self.tasks:  # it stays in the message that was being written when it began
            self._parts_of_tasks.setdefault(task.id, len(texts) - 1)
        want = wanted(self.item, self.body, texts, capabilities, streaming=True)
        return self._with_tasks(want, clean)

    def _with_tasks(
        self, want: tuple[Wanted, ...], clean: Callable[[str], str]
    ) -> tuple[Wanted, ...]:
        """Say which message each task belongs to."""
        tasks: dict[int, list[Task]] = {}
        for task in self.tasks:
            if (part := self._parts_of_tasks.get(task.id)) is not None:
                shown = msgspec.structs.replace(task, title=clean(task.title))
                tasks.setdefault(part, []).append(shown)
        return tuple(
            msgspec.structs.replace(message, tasks=tuple(tasks[part])) if part in tasks else message
            for part, message in enumerate(want)
        )


class Do(msgspec.Struct, frozen=True):
    """Carry out an op."""

    entry: Entry
    step: Step
    weight: Weight


class Settle(msgspec.Struct, frozen=True):
    """An item is done."""

    entry: Entry
    settled: Settled


class Until(msgspec.Struct, frozen=True):
    """Nothing to do before this moment, unless something new comes."""

    moment: float


class Queue:
    """The items of one chat, in order."""

    __slots__ = ("_capabilities", "_clean", "_entries", "_recent")

    def __init__(self, capabilities: Capabilities, clean: Callable[[str], str]) -> None:
        self._capabilities = capabilities
        self._clean = clean
        self._entries: dict[str, Entry] = {}
        self._recent: dict[str, Shown] = {}

    def learn(self, capabilities: Capabilities) -> None:
        """Go on with what the chat has turned out to be able to show."""
        self._capabilities = capabilities

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, item_id: str) -> Entry | None:
        """Find an item that is not done yet."""
        return self._entries.get(item_id)

    def add(self, entry: Entry) -> None:
        """Put an item at the end; one that was shown before goes on with its messages."""
        recent = self._recent.pop(entry.item.id, None)
        if recent and not entry.shown.parts:
            entry.shown = recent
        self._entries[entry.item.id] = entry

    def remove(self, entry: Entry) -> None:
        """Forget an item, but for a while not what is shown of it."""
        entry.gone = True
        entry.read = str  # lets go of its writer, who holds it: the collector need not find them
        self._entries.pop(entry.item.id, None)
        if entry.shown.parts:
            self._recent[entry.item.id] = entry.shown
            if len(self._recent) > _REMEMBERED:
                del self._recent[next(iter(self._recent))]

    def has_work(self, *, urgent: bool) -> bool:
        """Tell whether there is anything of this urgency."""
        return any(entry.body.urgent is urgent for entry in self._entries.values())

    def owes(self) -> bool:
        """Tell whether there is something that must still be shown."""
        return any(entry.phase is Phase.FINAL for entry in self._entries.values())

    def next_move(self, *, urgent: bool, now: float, pace: Pace) -> Do | Settle | Until | None:
        """Say what to do next among the urgent items, or among the others."""
        live: list[Entry] = []
        later: list[float] = []
        for entry in self._entries.values():
            if entry.body.urgent is not urgent:
                continue
            if entry.phase is not Phase.LIVE:
                if entry.not_before <= now:
                    weight = Weight.URGENT if urgent else Weight.FINAL
                    final = self._rested(self._final_move(entry, weight), now)
                    return self._paced(final, weight, now, pace)
                later.append(entry.not_before)
                if entry.phase is Phase.FINAL:  # holds back what came after it
                    return Until(min(later))
            else:
                live.append(entry)
        # Whoever has waited longest comes first: several answers share the chat's allowance.
        for entry in sorted(live, key=lambda entry: entry.live_at):
            move = self._live_move(entry, now, pace)
            if isinstance(move, Do):
                return move
            if move:
                later.append(move.moment)
        return Until(min(later)) if later else None

    def _rested(self, move: Do | Settle, now: float) -> Do | Settle | Until:
        """Let a message rest between its last live update and the edit that ends it."""
        if isinstance(move, Do) and isinstance(move.step.op, Edit):
            at = move.entry.changed_at + self._capabilities.rest
            return move if at <= now else Until(at)
        return move

    def _paced(
        self, move: Do | Settle | Until, weight: Weight, now: float, pace: Pace
    ) -> Do | Settle | Until:
        if not isinstance(move, Do):
            return move
        at = pace.ready_at(weight, now)
        return move if at <= now else Until(at)

    def _final_move(self, entry: Entry, weight: Weight) -> Do | Settle:
        want = entry.want(self._capabilities, self._clean)
        probe = entry.probe and self._capabilities.typing_interval is not None
        if probe or entry.told:
            return Do(entry, self._typing(entry, over=not probe), weight)
        if entry.drafted and not want:
            return Do(entry, self._draft(entry, "", ""), weight)
        planner = Planner(entry.item, entry.body, self._capabilities, entry.phase)
        found = planner.next_step(want, entry.shown)
        if isinstance(found, Step):
            return Do(entry, found, weight)
        if entry.at_work and self._capabilities.typing_ends:
            return Do(entry, self._typing(entry, over=True), weight)
        return Settle(entry, found or Settled(ItemState.SENT))

    def _live_move(self, entry: Entry, now: float, pace: Pace) -> Do | Until | None:
        if entry.mute:
            return None
        can = self._capabilities
        if can.live is Live.DRAFT and entry.drafted and now >= entry.live_at + DRAFT_FADES:
            entry.dirty = True
        status = self._clean(entry.status) if can.status else ""
        if status != entry.told or (entry.dirty and can.live is not Live.NONE):
            if now < entry.live_at:
                return Until(entry.live_at)
            if (at := pace.ready_at(Weight.COSMETIC, now)) > now:
                return Until(at)  # what it will say then is not worked out now
            if status != entry.told:
                return Do(entry, self._typing(entry, status), Weight.COSMETIC)
            if step := self._live_step(entry):
                return Do(entry, step, Weight.COSMETIC)
            entry.dirty = False
        if entry.drafted:
            return Until(entry.live_at + DRAFT_FADES)
        if can.typing_interval is None or entry.shown.parts:
            return None
        if now < entry.typing_at:
            return Until(entry.typing_at)
        at = pace.ready_at(Weight.TRIFLE, now)
        return Do(entry, self._typing(entry, status), Weight.TRIFLE) if at <= now else Until(at)

    def _live_step(self, entry: Entry) -> Step | None:
        want = entry.want_live(self._capabilities, self._clean)
        if self._capabilities.live is Live.DRAFT:
            text = want[-1].text if want else ""
            status = self._clean(entry.status)
            return self._draft(entry, text, status) if text or status or entry.drafted else None
        planner = Planner(entry.item, entry.body, self._capabilities, Phase.LIVE)
        found = planner.next_step(want, entry.shown, entry.texts)
        return found if isinstance(found, Step) else None

    def _typing(self, entry: Entry, status: str = "", *, over: bool = False) -> Step:
        over = over and self._capabilities.typing_ends
        op = Typing(f"{entry.item.id}.t", read_address(entry.item.address), status, over)
        return Step(op, _NO_PART, "", entry.shown)

    def _draft(self, entry: Entry, text: str, status: str) -> Step:
        item = entry.item
        op = Draft(f"{item.id}.p", read_address(item.address), item.id, text, status)
        return Step(op, _NO_PART, "", entry.shown)
