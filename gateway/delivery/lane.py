"""The ops of one chat: carried out one at a time, with their results stored.

Urgent items have a pump of their own, so they do not wait for a running op.
"""

import asyncio
import logging
import math
import zlib
from typing import Protocol

import msgspec

from gateway.delivery import plan
from gateway.delivery.link import AdapterLink, Crashed, DeliveryOutcome
from gateway.delivery.pacing import OPTIONAL_PRIORITIES, OpPriority, Pace
from gateway.delivery.plan import DeliveryStep, ItemPhase, ItemResult
from gateway.delivery.queue import (
    CarryOut,
    ChatQueue,
    QueueEntry,
    QueueMove,
    RenderText,
    SettleItem,
    WaitUntil,
)
from gateway.delivery.signs import ChatReactions
from gateway.delivery.text_files import TextFiles
from gateway.delivery.view import ShownState, write_body, write_shown
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

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 5.0
"""First and longest pause between attempts to store the result of an op."""

_FIRST_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 60.0
_REST_SHARE = 10
"""Pause between live updates of a long text, as a multiple of the time to render one."""

_UPLOAD_DEADLINE_SECONDS = 600.0
"""Deadline of an upload, longer than that of other ops for slow connections."""

_MAX_CRASHES = 3
"""Unexpected adapter errors after which an item is given up."""


class LaneHost(Protocol):
    """Services shared by all lanes."""

    store: SessionStore
    clock: Clock
    text_files: TextFiles
    deadline_seconds: float

    def redact(self, text: str) -> str:
        """Return a text as chats may see it."""
        ...

    def start_pump(self, lane: "Lane", *, urgent: bool) -> None:
        """Run a pump of a lane, at once or as soon as the task group is open."""
        ...

    def start_reaction(self, lane: "Lane", reaction: React, wait: float) -> None:
        """Run `show_reaction` of a lane in a task."""
        ...

    def on_item_settled(self, item_id: str, state: ItemState) -> None:
        """Receive an item's final state after the commit."""
        ...

    def on_pump_ended(self) -> None:
        """Check whether a shutdown still waits for a lane."""
        ...

    def on_lane_idle(self, lane: "Lane") -> None:
        """Receive a lane that has nothing to do."""
        ...

    async def save_pause(self, lane: "Lane", until: int) -> None:
        """Store the end of a Retry-After, in milliseconds of wall time, for the next start."""
        ...


class Lane:
    """Delivery to one chat; kept small, because every recently used chat has a lane."""

    __slots__ = (
        "_capabilities",
        "_commit_due",
        "_commits_running",
        "_host",
        "_ops_running",
        "_unsaved",
        "_wakeups",
        "key",
        "link",
        "pace",
        "queue",
        "reactions",
    )

    def __init__(
        self, key: str, link: AdapterLink, host: LaneHost, capabilities: Capabilities
    ) -> None:
        self.key = key
        self.link = link
        self._host = host
        self._capabilities = capabilities
        self.pace = Pace(
            self._capabilities.burst,
            self._capabilities.per_second,
            host.clock.monotonic(),
            per_minute=self._capabilities.per_minute,
            account=link.account_budget,
        )
        self.queue = ChatQueue(self._capabilities, host.redact)
        self.reactions = ChatReactions(
            link,
            self.pace,
            host.clock,
            has_pending=self.queue.has_pending,
            start=self._start_reaction,
            on_idle=self._report_idle,
        )
        self._wakeups: dict[bool, asyncio.Event] = {}  # by `urgent`, while that pump runs
        self._unsaved: dict[str, SetItem] = {}
        self._commit_due = False  # an unsaved result must be committed soon
        self._commits_running = 0
        self._ops_running = 0

    def wake(self) -> None:
        """Check for new work; start the pumps if needed."""
        for urgent in (True, False):
            if urgent in self._wakeups:
                self._wakeups[urgent].set()
            elif self.link.is_connected and self.queue.has_work(urgent=urgent):
                self._host.start_pump(self, urgent=urgent)

    def has_pending(self) -> bool:
        """Return True while an item must still be shown or a result stored."""
        return self._commit_due or self._commits_running > 0 or self.queue.has_pending()

    def is_ready_to_stop(self) -> bool:
        """Return True if a shutdown now interrupts no op and no delivery that could finish."""
        return not (self._ops_running or (self.link.is_connected and self.has_pending()))

    def on_pump_started(self, *, urgent: bool) -> None:
        """Record that a pump has a task, so that `wake` does not start a second one."""
        self._wakeups[urgent] = asyncio.Event()

    async def pump(self, *, urgent: bool) -> None:
        """Work until no work is left or the platform disconnects."""
        wakeup = self._wakeups[urgent]
        try:
            while True:
                wakeup.clear()
                move = self._next_move(urgent=urgent)
                if (move is None or isinstance(move, WaitUntil)) and self._commit_due:
                    await self._commit()
                    continue
                match move:
                    case None:
                        break
                    case WaitUntil():
                        await self._wait(move.moment, wakeup)
                    case RenderText():
                        await self._render(move.entry)
                    case SettleItem():
                        self._settle(move.entry, move.result)
                    case CarryOut():
                        await self._carry_out(move)
        finally:
            del self._wakeups[urgent]
        self._host.on_pump_ended()
        self._report_idle()

    def _start_reaction(self, reaction: React, wait: float) -> None:
        self._host.start_reaction(self, reaction, wait)

    async def show_reaction(self, reaction: React, wait: float) -> None:
        """Add a reaction to a person's message after `wait` seconds."""
        await self.reactions.deliver(reaction, wait)

    def _report_idle(self) -> None:
        if not self._wakeups and not self.queue and not self.reactions.is_busy:
            self._host.on_lane_idle(self)

    # --- carrying out an op ------------------------------------------------------------------

    def _next_move(self, *, urgent: bool) -> QueueMove | None:
        if not self.link.is_connected:
            return None
        now = self._host.clock.monotonic()
        return self.queue.next_move(urgent=urgent, now=now, pace=self.pace)

    async def _render(self, entry: QueueEntry) -> None:
        """Render a long text in a thread, so that other chats need not wait."""
        began = self._host.clock.monotonic()
        job = entry.render_job(self._capabilities)
        rendering = await asyncio.to_thread(job.run, self._host.redact)
        entry.set_rendering(rendering, self._host.clock.monotonic() - began)

    async def _carry_out(self, move: CarryOut) -> None:
        entry, step = move.entry, move.step
        began = self._host.clock.monotonic()
        if isinstance(step.op, Draft):
            entry.dirty = False
        if step.creates:
            await self._record_attempt(entry, step)
        if isinstance(step.op, Typing):
            entry.typing_shown = not step.op.over
        elif isinstance(step.op, Post) and step.op.streaming:
            entry.typing_shown = True
        await self._wait_for_turn(move.priority)
        host = self._host
        upload = isinstance(step.op, Upload)
        deadline = _UPLOAD_DEADLINE_SECONDS if upload else host.deadline_seconds
        self._ops_running += 1
        try:
            outcome = await self._deliver(
                entry, plan.fix_future_start(step.op, self._host.clock.now()), deadline
            )
        finally:
            self._ops_running -= 1
        if entry.removed:
            return
        if move.priority in OPTIONAL_PRIORITIES:
            self._schedule_live_updates(entry, step.op, began)
        match outcome:
            case Receipt():
                self._on_success(entry, step, outcome)
            case Unavailable():
                await self._on_unavailable(move, outcome)
            case ChatGone():
                self._on_chat_gone(outcome)
            case Rejected():
                self._on_rejected(move, outcome)
            case Unauthorized():
                self._undo(entry, step)
                self.link.on_credentials_refused(outcome)
            case _:
                self._on_unconfirmed(move, outcome)

    async def _deliver(self, entry: QueueEntry, op: Op, deadline: float) -> DeliveryOutcome:
        if isinstance(op, Upload) and not op.path:  # the file with a long text
            try:
                op = await self._host.text_files.write(op, entry.body.text, self._capabilities)
            except OSError as error:
                return Unavailable(f"the file with the whole text was not written: {error}")
        return await self.link.deliver(op, deadline)

    async def _wait_for_turn(self, priority: OpPriority) -> None:
        """Take budget and wait for it; the other pump may use it, or get a 429, meanwhile."""
        now = self._host.clock.monotonic()
        while (at := self.pace.ready_at(priority, now)) > now:
            now = await self._sleep_until(at)
        at = self.pace.take(now, priority)
        while (at := max(at, self.pace.blocked_until)) > now:
            now = await self._sleep_until(at)

    async def _sleep_until(self, moment: float) -> float:
        """Sleep until a moment; return the time then."""
        await asyncio.sleep(moment - self._host.clock.monotonic())
        return self._host.clock.monotonic()

    async def _wait(self, moment: float, wakeup: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(max(0.0, moment - self._host.clock.monotonic())):
                await wakeup.wait()
        except TimeoutError:
            pass

    # --- outcomes ----------------------------------------------------------------------------

    def _on_success(self, entry: QueueEntry, step: DeliveryStep, receipt: Receipt) -> None:
        entry.needs_probe = False
        entry.tries = 0
        op = step.op
        if isinstance(op, Typing):
            entry.shown_status = op.status
            return
        if isinstance(op, Draft):
            entry.draft_shown = bool(op.text or op.status)
            return
        entry.shown = plan.record_success(entry.shown, step, receipt)
        if isinstance(op, Post | Edit):
            entry.changed_at = self._host.clock.monotonic()
            entry.live_texts[entry.shown.parts[step.part].op] = op.text
        if step.creates:
            # Commit the receipt of a live message soon if a repeat would be marked as a duplicate,
            # or if the message has no text yet: it must be deleted if its answer stays empty.
            marks = self._capabilities.repeat is Repeat.MARK
            must = entry.phase is not ItemPhase.LIVE or marks or not entry.text.strip()
            self._queue_save(entry, ItemState.PENDING, commit_soon=must)

    async def _on_unavailable(self, move: CarryOut, error: Unavailable) -> None:
        entry = move.entry
        self._undo(entry, move.step)
        now = self._host.clock.monotonic()
        if error.retry_after is None:
            self._back_off(move)
            return
        self.pace.on_rate_limited(now, error.retry_after)
        until = self._host.clock.now() + math.ceil(error.retry_after * 1000) + 1
        if entry.stored and entry.item.id in self._unsaved:
            kept = self._unsaved[entry.item.id]
            self._unsaved[entry.item.id] = msgspec.structs.replace(kept, not_before=until)
        await self._host.save_pause(self, until)

    def _on_unconfirmed(self, move: CarryOut, error: PlatformError) -> None:
        entry, step = move.entry, move.step
        if isinstance(step.op, Draft | Typing):
            self._undo(entry, step)
            self._back_off(move)
            return
        log.warning("%s in %s may or may not have been sent: %s", step.op.op, self.key, error)
        entry.shown = plan.record_unknown(entry.shown, step)
        self._back_off(move)
        if isinstance(error, Crashed) and entry.tries >= _MAX_CRASHES:
            self._settle(entry, ItemResult(ItemState.DEAD, str(error)))
        elif step.creates:
            entry.needs_probe = self._capabilities.repeat is Repeat.MARK
            self._queue_save(entry, ItemState.UNKNOWN)

    def _on_rejected(self, move: CarryOut, error: Rejected) -> None:
        entry, step = move.entry, move.step
        if isinstance(step.op, Draft | Typing) or move.priority in OPTIONAL_PRIORITIES:
            self._undo(entry, step)
            if isinstance(step.op, Draft) and self._refresh_capabilities(step.op):
                entry.draft_shown = False
                return
            log.info("%s in %s: live updates stopped: %s", step.op.op, self.key, error)
            entry.is_muted, entry.needs_probe, entry.draft_shown = True, False, False
        elif step.creates:
            log.error("%s cannot be sent to %s: %s", entry.item.id, self.key, error)
            self._settle(entry, ItemResult(ItemState.DEAD, str(error)))
        else:
            entry.shown = plan.record_refusal(entry.shown, step)

    def _refresh_capabilities(self, refused: Draft) -> bool:
        """Reload the capabilities after a refused draft; return True if live updates changed."""
        can = capabilities_in(self.link.adapter, refused.address)
        if can.live is Live.DRAFT:
            return False
        self._capabilities = can
        self.queue.set_capabilities(can)
        return True

    def _on_chat_gone(self, error: ChatGone) -> None:
        log.warning("chat %s is gone: %s", self.key, error)
        for entry in list(self.queue):
            self._settle(entry, ItemResult(ItemState.DEAD, str(error)))

    def _undo(self, entry: QueueEntry, step: DeliveryStep) -> None:
        if step.creates:
            entry.shown = step.shown_before
            doubt = any(part.fate is ShownState.UNKNOWN for part in entry.shown.parts)
            self._queue_save(entry, ItemState.UNKNOWN if doubt else ItemState.PENDING)
        elif isinstance(step.op, Draft):
            entry.dirty = entry.phase is ItemPhase.LIVE
            entry.draft_shown = entry.draft_shown and entry.dirty
        elif isinstance(step.op, Typing) and entry.phase is not ItemPhase.LIVE:
            # A failure to clear the status must not delay the answer.
            entry.shown_status = ""

    def _back_off(self, move: CarryOut) -> None:
        entry = move.entry
        entry.tries += 1
        longest = min(_MAX_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2 ** min(entry.tries - 1, 10))
        # Jitter spreads the chats of a recovering platform; a hash of the id is repeatable.
        jitter = zlib.crc32(f"{move.step.op.op}{entry.tries}".encode()) / 2**32
        moment = self._host.clock.monotonic() + longest * (0.5 + jitter / 2)
        if move.priority in OPTIONAL_PRIORITIES:  # the final form does not wait for this pause
            entry.next_live_at = entry.next_typing_at = moment
        else:
            entry.not_before = moment

    def _schedule_live_updates(self, entry: QueueEntry, op: Op, started_at: float) -> None:
        if isinstance(op, Typing):
            entry.next_typing_at = started_at + (self._capabilities.typing_interval or 0.0)
        if self._capabilities.status or not isinstance(op, Typing):
            pause = max(self._capabilities.live_interval, _REST_SHARE * entry.render_seconds)
            entry.next_live_at = started_at + pause

    # --- storing results ---------------------------------------------------------------------

    async def _record_attempt(self, entry: QueueEntry, step: DeliveryStep) -> None:
        """Store that a message may exist, before the attempt to create one."""
        entry.shown = plan.record_attempt(entry.shown, step, self._host.clock.now())
        if entry.phase is ItemPhase.LIVE:
            live = msgspec.structs.replace(
                entry.item,
                body=write_body(msgspec.structs.replace(entry.body, text=entry.text)),
                state=ItemState.ATTEMPTING,
                shown=write_shown(entry.shown),
            )
            known, entry.stored = entry.stored, True
            self._queue_save(entry, ItemState.ATTEMPTING)
            if (
                known
                and self._capabilities.repeat is Repeat.ALWAYS
                and self._capabilities.live is not Live.STREAM
            ):
                return  # a repeat is harmless; a stream must be stored, because it must be closed
            await self._commit(PutItem(live))
        elif self._capabilities.repeat is not Repeat.ALWAYS:
            self._queue_save(entry, ItemState.ATTEMPTING)
            await self._commit()

    def _queue_save(self, entry: QueueEntry, state: ItemState, *, commit_soon: bool = True) -> None:
        if not entry.stored:
            return
        self._unsaved[entry.item.id] = SetItem(
            id=entry.item.id,
            state=state,
            at=self._host.clock.now(),
            shown=write_shown(entry.shown),
            tries=entry.tries,
        )
        self._commit_due = self._commit_due or commit_soon

    def _settle(self, entry: QueueEntry, result: ItemResult) -> None:
        self.queue.remove(entry)
        self.reactions.wake()
        if entry.stored:
            self._queue_save(entry, result.state)
            saved = self._unsaved[entry.item.id]
            self._unsaved[entry.item.id] = msgspec.structs.replace(saved, error=result.error)

    async def _commit(self, *first: Change) -> None:
        unsaved, self._unsaved, self._commit_due = self._unsaved, {}, False
        self._commits_running += 1
        try:
            await self._apply_with_retry((*first, *unsaved.values()))
        finally:
            self._commits_running -= 1
        for change in unsaved.values():
            if change.state in {ItemState.SENT, ItemState.DEAD}:
                self._host.on_item_settled(change.id, change.state)

    async def _apply_with_retry(self, changes: tuple[Change, ...]) -> None:
        """Retry until the results are stored: a full disk must not lose them."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                await self._host.store.apply(*changes)
            except Conflict:
                log.exception(
                    "%s: delivery results conflict with the store and are dropped", self.key
                )
                return
            except StoreError as error:
                log.warning(
                    "%s: delivery results not stored, retrying in %.1f s: %s",
                    self.key,
                    pause,
                    error,
                )
            else:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_RETRY_SECONDS)
