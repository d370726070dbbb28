"""The ops of one chat: carried out one after the other, and written down.

An urgent item does not wait for an op that is under way; it has a pump of its own.
"""

import asyncio
import logging
import math
import zlib
from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.delivery import plan
from gateway.delivery.link import Crashed, Link
from gateway.delivery.pacing import CAN_BE_LEFT_OUT, Pace, Weight
from gateway.delivery.plan import Phase, Settled, Step
from gateway.delivery.queue import Do, Entry, Queue, Settle, Until
from gateway.delivery.signs import Signs
from gateway.delivery.view import Fate, write_body, write_shown
from platforms.core.contract import (
    Capabilities,
    Draft,
    Edit,
    Live,
    Op,
    Post,
    React,
    Receipt,
    Repeat,
    Typing,
    Upload,
    capabilities_in,
)
from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
)
from sessions.changes import Change, PutItem, SetItem
from sessions.errors import Conflict, StoreError
from sessions.records import ItemState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""Seconds between tries to write down what became of a message."""

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 60.0
MOST_CRASHES = 3
"""Times an adapter may fail over one item with an error that it should not raise."""


class Office(Protocol):
    """What all lanes share."""

    store: SessionStore
    clock: Clock
    clean: Callable[[str], str]
    deadline: float
    upload_deadline: float

    def start(self, lane: "Lane", *, urgent: bool) -> None:
        """Run a pump of a lane, now or as soon as there is somebody to own its task."""
        ...

    def show(self, lane: "Lane", sign: React, wait: float) -> None:
        """Run `show_sign` of a lane."""
        ...

    def settled(self, item_id: str, state: ItemState) -> None:
        """An item is done, and that is committed."""
        ...

    def idle(self, lane: "Lane") -> None:
        """A lane has nothing to do."""
        ...

    async def pause(self, lane: "Lane", until: int) -> None:
        """Keep a Retry-After over a restart; `until` in milliseconds of wall time."""
        ...


class Lane:
    """Delivers to one chat. There is one for each that was used lately, so it is kept small."""

    __slots__ = (
        "_can",
        "_hurry",
        "_news",
        "_office",
        "_saving",
        "_unsaved",
        "key",
        "link",
        "pace",
        "queue",
        "signs",
    )

    def __init__(self, key: str, link: Link, office: Office, can: Capabilities) -> None:
        self.key = key
        self.link = link
        self._office = office
        self._can = can
        self.pace = Pace(
            self._can.burst,
            self._can.per_second,
            office.clock.monotonic(),
            per_minute=self._can.per_minute,
            account=link.account,
        )
        self.queue = Queue(self._can, office.clean)
        self.signs = Signs(
            link,
            self.pace,
            office.clock,
            owes=self.queue.owes,
            show=self._begin_sign,
            rested=self._rest,
        )
        self._news: dict[bool, asyncio.Event] = {}  # of the pumps that run: urgent, and not
        self._unsaved: dict[str, SetItem] = {}
        self._hurry = False  # something unsaved must not be lost
        self._saving = 0  # commits under way

    def wake(self) -> None:
        """Look again: something is new."""
        for urgent in (True, False):
            if urgent in self._news:
                self._news[urgent].set()
            elif self.link.up and self.queue.has_work(urgent=urgent):
                self._office.start(self, urgent=urgent)

    def owes(self) -> bool:
        """Tell whether something must still be shown, or written down."""
        return self._hurry or self._saving > 0 or self.queue.owes()

    def started(self, *, urgent: bool) -> None:
        """A pump has an owner now, so it need not be started again."""
        self._news[urgent] = asyncio.Event()

    async def pump(self, *, urgent: bool) -> None:
        """Do what there is to do, until there is nothing left or the platform is gone."""
        news = self._news[urgent]
        try:
            while True:
                news.clear()
                move = self._next_move(urgent=urgent)
                if (move is None or isinstance(move, Until)) and self._hurry:
                    await self._commit()
                    continue
                match move:
                    case None:
                        break
                    case Until():
                        await self._wait(move.moment, news)
                    case Settle():
                        self._settle(move.entry, move.settled)
                    case Do():
                        await self._do(move)
        finally:
            del self._news[urgent]
        self._rest()

    def _begin_sign(self, sign: React, wait: float) -> None:
        self._office.show(self, sign, wait)

    async def show_sign(self, sign: React, wait: float) -> None:
        """Put a sign on a person's message after a while."""
        await self.signs.deliver(sign, wait)

    def _rest(self) -> None:
        if not self._news and not self.queue and not self.signs.busy:
            self._office.idle(self)

    # --- one op ------------------------------------------------------------------------------

    def _next_move(self, *, urgent: bool) -> Do | Settle | Until | None:
        if not self.link.up:
            return None
        now = self._office.clock.monotonic()
        return self.queue.next_move(urgent=urgent, now=now, pace=self.pace)

    async def _do(self, move: Do) -> None:
        entry, step = move.entry, move.step
        began = self._office.clock.monotonic()
        if isinstance(step.op, Draft):
            entry.dirty = False
        if step.creates:
            await self._record_try(entry, step)
        if isinstance(step.op, Typing):
            entry.at_work = not step.op.over
        elif isinstance(step.op, Post) and step.op.streaming:
            entry.at_work = True
        await self._wait_for_room(move.weight)
        now = self._office.clock.monotonic()
        if (at := self.pace.take(now, move.weight)) > now:
            await asyncio.sleep(at - now)
        office = self._office
        upload = isinstance(step.op, Upload)
        deadline = office.upload_deadline if upload else office.deadline
        outcome = await self.link.deliver(plan.dated(step.op, self._office.clock.now()), deadline)
        if entry.gone:
            return
        if move.weight in CAN_BE_LEFT_OUT:
            self._spread(entry, step.op, began)
        match outcome:
            case Receipt():
                self._succeeded(entry, step, outcome)
            case Unavailable():
                await self._unavailable(move, outcome)
            case ChatGone():
                self._chat_gone(outcome)
            case Rejected():
                self._rejected(move, outcome)
            case Unauthorized():
                self._undo(entry, step)
                self.link.refused()
            case _:
                self._unconfirmed(move, outcome)

    async def _wait_for_room(self, weight: Weight) -> None:
        """The other pump may have taken the room that there was."""
        while True:
            now = self._office.clock.monotonic()
            at = self.pace.ready_at(weight, now)
            if at <= now:
                return
            await asyncio.sleep(at - now)

    async def _wait(self, moment: float, news: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(max(0.0, moment - self._office.clock.monotonic())):
                await news.wait()
        except TimeoutError:
            pass

    # --- what came of it ---------------------------------------------------------------------

    def _succeeded(self, entry: Entry, step: Step, receipt: Receipt) -> None:
        entry.probe = False
        entry.tries = 0
        op = step.op
        if isinstance(op, Typing):
            entry.told = op.status
            return
        if isinstance(op, Draft):
            entry.drafted = bool(op.text or op.status)
            return
        entry.shown = plan.done(entry.shown, step, receipt)
        if isinstance(op, Post | Edit):
            entry.changed_at = self._office.clock.monotonic()
            entry.texts[entry.shown.parts[step.part].op] = op.text
        if step.creates:
            # The receipt of a live message must not be lost where a repeat would be marked, and of
            # one without words: if its answer never gets any, it has to be taken away.
            marks = self._can.repeat is Repeat.MARK
            must = entry.phase is not Phase.LIVE or marks or not entry.text.strip()
            self._remember(entry, ItemState.PENDING, must=must)

    async def _unavailable(self, move: Do, error: Unavailable) -> None:
        entry = move.entry
        self._undo(entry, move.step)
        now = self._office.clock.monotonic()
        if error.retry_after is None:
            self._back_off(move)
            return
        self.pace.limited(now, error.retry_after)
        until = self._office.clock.now() + math.ceil(error.retry_after * 1000) + 1
        if entry.stored and entry.item.id in self._unsaved:
            kept = self._unsaved[entry.item.id]
            self._unsaved[entry.item.id] = msgspec.structs.replace(kept, not_before=until)
        await self._office.pause(self, until)

    def _unconfirmed(self, move: Do, error: PlatformError) -> None:
        entry, step = move.entry, move.step
        if isinstance(step.op, Draft | Typing):
            self._undo(entry, step)
            self._back_off(move)
            return
        log.warning("%s in %s: %s", step.op.op, self.key, error)
        entry.shown = plan.doubted(entry.shown, step)
        self._back_off(move)
        if isinstance(error, Crashed) and entry.tries >= MOST_CRASHES:
            self._settle(entry, Settled(ItemState.DEAD, str(error)))
        elif step.creates:
            entry.probe = self._can.repeat is Repeat.MARK
            self._remember(entry, ItemState.UNKNOWN)

    def _rejected(self, move: Do, error: Rejected) -> None:
        entry, step = move.entry, move.step
        if isinstance(step.op, Draft | Typing) or move.weight in CAN_BE_LEFT_OUT:
            self._undo(entry, step)
            if isinstance(step.op, Draft) and self._shows_otherwise(step.op):
                entry.drafted = False
                return
            log.info("%s in %s: no live updates: %s", step.op.op, self.key, error)
            entry.mute, entry.probe, entry.drafted = True, False, False
        elif step.creates:
            log.error("%s cannot be shown in %s: %s", entry.item.id, self.key, error)
            self._settle(entry, Settled(ItemState.DEAD, str(error)))
        else:
            entry.shown = plan.refused(entry.shown, step)

    def _shows_otherwise(self, refused: Draft) -> bool:
        """Whether the platform has found out that drafts cannot be had here, but something else."""
        can = capabilities_in(self.link.adapter, refused.address)
        if can.live is Live.DRAFT:
            return False
        self._can = can
        self.queue.learn(can)
        return True

    def _chat_gone(self, error: ChatGone) -> None:
        log.warning("%s is gone: %s", self.key, error)
        for entry in list(self.queue):
            self._settle(entry, Settled(ItemState.DEAD, str(error)))

    def _undo(self, entry: Entry, step: Step) -> None:
        if step.creates:
            entry.shown = step.before
            doubt = any(part.fate is Fate.UNKNOWN for part in entry.shown.parts)
            self._remember(entry, ItemState.UNKNOWN if doubt else ItemState.PENDING)
        elif isinstance(step.op, Draft):
            entry.dirty = entry.phase is Phase.LIVE
            entry.drafted = entry.drafted and entry.dirty
        elif isinstance(step.op, Typing) and entry.phase is not Phase.LIVE:
            # That a status is over must not hold up the answer.
            entry.told = ""

    def _back_off(self, move: Do) -> None:
        entry = move.entry
        entry.tries += 1
        longest = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** min(entry.tries - 1, 10))
        # The ids spread the chats of a platform that comes back; no dice, so that tests can tell.
        spread = zlib.crc32(f"{move.step.op.op}{entry.tries}".encode()) / 2**32
        moment = self._office.clock.monotonic() + longest * (0.5 + spread / 2)
        if move.weight in CAN_BE_LEFT_OUT:  # the final form need not wait for that
            entry.live_at = entry.typing_at = moment
        else:
            entry.not_before = moment

    def _spread(self, entry: Entry, op: Op, began: float) -> None:
        if isinstance(op, Typing):
            entry.typing_at = began + (self._can.typing_interval or 0.0)
        if self._can.status or not isinstance(op, Typing):
            entry.live_at = began + self._can.live_interval

    # --- writing it down ---------------------------------------------------------------------

    async def _record_try(self, entry: Entry, step: Step) -> None:
        """Before a message is created it is on record that it may be there."""
        entry.shown = plan.tried(entry.shown, step, self._office.clock.now())
        if entry.phase is Phase.LIVE:
            live = msgspec.structs.replace(
                entry.item,
                body=write_body(msgspec.structs.replace(entry.body, text=entry.text)),
                state=ItemState.ATTEMPTING,
                shown=write_shown(entry.shown),
            )
            known, entry.stored = entry.stored, True
            self._remember(entry, ItemState.ATTEMPTING)
            if known and self._can.repeat is Repeat.ALWAYS and self._can.live is not Live.STREAM:
                return  # a repeat does no harm; but a stream must be known, to be closed
            await self._commit(PutItem(live))
        elif self._can.repeat is not Repeat.ALWAYS:
            self._remember(entry, ItemState.ATTEMPTING)
            await self._commit()

    def _remember(self, entry: Entry, state: ItemState, *, must: bool = True) -> None:
        if not entry.stored:
            return
        self._unsaved[entry.item.id] = SetItem(
            entry.item.id,
            state,
            self._office.clock.now(),
            shown=write_shown(entry.shown),
            tries=entry.tries,
        )
        self._hurry = self._hurry or must

    def _settle(self, entry: Entry, settled: Settled) -> None:
        self.queue.remove(entry)
        self.signs.look_again()
        if entry.stored:
            self._remember(entry, settled.state)
            saved = self._unsaved[entry.item.id]
            self._unsaved[entry.item.id] = msgspec.structs.replace(saved, error=settled.error)

    async def _commit(self, *first: Change) -> None:
        unsaved, self._unsaved, self._hurry = self._unsaved, {}, False
        self._saving += 1
        try:
            await self._stored((*first, *unsaved.values()))
        finally:
            self._saving -= 1
        for change in unsaved.values():
            if change.state in {ItemState.SENT, ItemState.DEAD}:
                self._office.settled(change.id, change.state)

    async def _stored(self, changes: tuple[Change, ...]) -> None:
        """Write until it is written: what a chat shows must not be forgotten by a full disk."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._office.store.apply(*changes)
            except Conflict:
                log.exception("%s: what became of its messages cannot be stored", self.key)
                return
            except StoreError as error:
                log.warning("%s: %s; trying again in %.1f s", self.key, error, pause)
            else:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
