"""`Delivery`: the lanes of all chats, and the interface for queueing items."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from gateway.delivery import plan
from gateway.delivery.lane import Lane
from gateway.delivery.link import AdapterLink, OnDelivered
from gateway.delivery.plan import ItemPhase
from gateway.delivery.queue import FIRST_LIVE_DELAY_SECONDS, QueueEntry
from gateway.delivery.rendering import LiveRedaction
from gateway.delivery.text_files import TextFiles
from platforms.core.contract import (
    Adapter,
    Address,
    Capabilities,
    React,
    Task,
    capabilities_in,
)
from platforms.core.errors import Unauthorized
from sessions.changes import Change, PutItem
from sessions.errors import StoreError
from sessions.records import ItemState, OutboxItem
from sessions.store.store import SessionStore
from sessions.values.address import write_address
from sessions.values.clock import Clock
from sessions.values.item_ids import reaction_op
from sessions.values.tasks import start_task
from sessions.values.visible_text import visible_text

log = logging.getLogger(__name__)

_MAX_IDLE_LANES = 256
"""Idle chats whose pace and recent messages are remembered."""

MAX_REACTING_LANES = 512
"""Chats with waiting reactions; at Telegram's 30 a second the last one is 17 s late."""

ABANDONED_SECONDS = 5.0
"""Seconds after a start until an unfinished answer counts as abandoned."""

_SHELF = "delivery"
_PAUSES_KEY = "pauses"


def _unchanged(text: str) -> str:
    return text


async def read_pauses(store: SessionStore) -> dict[str, int]:
    """Return the end of each platform-requested pause by chat, in milliseconds."""
    kept = await store.get_value(_SHELF, _PAUSES_KEY)
    return msgspec.json.decode(kept, type=dict[str, int]) if kept else {}


class LiveItem:
    """An answer being written; created by `Delivery.start_live`."""

    def __init__(self, delivery: "Delivery", item: OutboxItem) -> None:
        self._delivery = delivery
        self._entry = delivery.queue_live(item)

    def update(self, text: str, status: str = "") -> None:
        """Show a text and a status line when the budget allows."""
        self.follow(lambda: text, status)

    def follow(
        self,
        read: Callable[[], str],
        status: str = "",
        tasks: tuple[Task, ...] = (),
        *,
        growing: bool = True,
    ) -> None:
        """Show a growing text: `read` is called when the budget allows an update.

        Called for every token, so the call only marks the item as changed. `tasks` are the tool
        calls made so far. Without `growing` the text ends with a whole word.
        """
        entry = self._entry
        entry.read_text = read
        entry.status = status
        entry.tasks = tasks
        entry.is_growing = growing
        if not entry.dirty:
            entry.dirty = True
            self._delivery.wake_entry(entry)

    def close(self) -> None:
        """Stop live updates because the final form is about to be committed."""
        self._entry.is_muted = True

    def drop(self) -> None:
        """Remove the shown messages, because the answer stays empty."""
        self._delivery.withdraw(self._entry)


class Delivery:
    """Delivers every item to the chat exactly once, where the platform allows that.

    Callers commit items through `put`, or commit them themselves and pass them to `enqueue`. Later
    changes of an item's row (`SetItem`) are written by this class only.
    """

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        files_folder: Path,
        *,
        redact: Callable[[str], str] = _unchanged,
        start_redaction: Callable[[], LiveRedaction | None] = lambda: None,
        deadline_seconds: float = 30.0,
        on_refused: Callable[[Adapter, Unauthorized], None] = lambda *_: None,
        on_delivered: OnDelivered = lambda *_: None,
    ) -> None:
        self.store = store
        self.clock = clock
        self._redact = redact
        self._start_redaction = start_redaction  # for each answer being written
        self.text_files = TextFiles(files_folder, self.redact)
        self.deadline_seconds = deadline_seconds  # for one op
        self._on_refused = on_refused
        self._on_delivered = on_delivered
        self._links: dict[tuple[str, str], AdapterLink] = {}
        self._lanes: dict[str, Lane] = {}
        self._group: asyncio.TaskGroup | None = None
        self._idle_lanes: OrderedDict[str, Lane] = OrderedDict()
        self._reacting_lanes: dict[str, Lane] = {}  # with waiting reactions, oldest first
        self._pauses: dict[str, int] = {}
        self._sent_waiters: dict[str, list[asyncio.Future[ItemState]]] = {}
        self._progress = asyncio.Event()

    def redact(self, text: str) -> str:
        """Return a text as chats may see it: without hidden characters and without secrets."""
        return self._redact(visible_text(text))

    # --- start and end -----------------------------------------------------------------------

    def attach(self, adapter: Adapter) -> None:
        """Deliver a platform's items through this adapter, starting with `on_connected`."""
        self._links[adapter.name, adapter.account] = AdapterLink(
            adapter, self._on_refused, self._on_delivered, self.clock.monotonic()
        )

    def on_connected(self, platform: str, account: str = "") -> None:
        """Resume delivery to a platform and skip running backoffs."""
        link = self._links[platform, account]
        link.is_connected = True
        for lane in [lane for lane in self._lanes.values() if lane.link is link]:
            for entry in lane.queue:
                if entry.tries:
                    entry.not_before = 0.0
            lane.wake()
            lane.reactions.wake()

    def on_disconnected(self, platform: str, account: str = "") -> None:
        """Pause delivery to a platform."""
        self._links[platform, account].is_connected = False
        self._progress.set()

    async def recover(self) -> int:
        """Queue the items of an earlier process; return their number."""
        now = self.clock.now()
        pauses = await read_pauses(self.store)
        self._pauses = {key: until for key, until in pauses.items() if until > now}
        items = await self.store.outbox.undelivered()
        for item in items:
            entry = QueueEntry(
                item, ItemPhase.FINAL if item.final else ItemPhase.ABANDONED, stored=True
            )
            entry.shown = plan.record_restart(entry.shown)
            if not item.final:
                entry.not_before = self.clock.monotonic() + ABANDONED_SECONDS
            lane = self._lane_for_item(item)
            if lane is None:
                log.warning(
                    "%s stays queued: no adapter delivers to %s",
                    item.id,
                    write_address(item.address),
                )
                continue
            lane.queue.add(entry)
            lane.wake()
        return len(items)

    async def run(self) -> None:
        """Run the tasks of all lanes until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for lane in self._lanes.values():
                    lane.wake()
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def flush(self, timeout: float) -> None:  # noqa: ASYNC109 - a timeout is not an error
        """Wait up to `timeout` seconds for final items of connected platforms, and running ops.

        Ops may still run on a platform that is reconnecting.
        """
        try:
            async with asyncio.timeout(timeout):
                while not all(lane.is_ready_to_stop() for lane in self._lanes.values()):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            log.warning("some answers were not delivered before the shutdown; they stay queued")

    # --- items -------------------------------------------------------------------------------

    async def put(self, *changes: Change) -> None:
        """Commit changes atomically and deliver their items; raises store errors."""
        await self.store.apply(*changes)
        self.enqueue([change.item for change in changes if isinstance(change, PutItem)])

    def enqueue(self, items: Iterable[OutboxItem]) -> None:
        """Deliver items that were just committed, or update the ones already queued."""
        for item in items:
            lane = self._lane_for_item(item)
            if lane is None:
                log.warning(
                    "%s stays queued: no adapter delivers to %s",
                    item.id,
                    write_address(item.address),
                )
                continue
            entry = lane.queue.get(item.id)
            if entry:
                entry.finish(item)
            else:
                lane.queue.add(QueueEntry(item, ItemPhase.FINAL, stored=True))
            lane.wake()

    def start_live(self, item: OutboxItem) -> LiveItem:
        """Start showing an answer being written; the item need not be stored."""
        return LiveItem(self, item)

    def react(self, address: Address, message: str, emoji: str) -> None:
        """Add a reaction to a person's message when the budget allows; nothing is stored."""
        link = self._links.get((address.platform, address.account))
        if link is None or not capabilities_in(link.adapter, address).reactions:
            return
        if self._group is None:
            return
        lane = self._lane_for_address(address, link)
        self._idle_lanes.pop(lane.key, None)  # a waiting reaction keeps its lane
        lane.reactions.add(React(reaction_op(message), address, message, emoji))
        self._reacting_lanes[lane.key] = lane
        if len(self._reacting_lanes) > MAX_REACTING_LANES:
            self._reacting_lanes.pop(next(iter(self._reacting_lanes))).reactions.clear()

    async def wait_sent(self, item_id: str) -> ItemState:
        """Wait until a queued item is sent or dead; return the state."""
        future: asyncio.Future[ItemState] = asyncio.get_running_loop().create_future()
        self._sent_waiters.setdefault(item_id, []).append(future)
        try:
            return await future
        finally:
            self._sent_waiters[item_id].remove(future)
            if not self._sent_waiters[item_id]:
                del self._sent_waiters[item_id]

    def paused_until(self, address: Address) -> int:
        """Return the end of the pause that the platform asked for in this chat, or 0."""
        link = self._links.get((address.platform, address.account))
        if link is None:
            return 0
        return self._pauses.get(_lane_key(address, capabilities_in(link.adapter, address)), 0)

    # --- for LiveItem ------------------------------------------------------------------------

    def queue_live(self, item: OutboxItem) -> QueueEntry:
        """Queue an answer being written; continue the messages an earlier process showed."""
        lane = self._lane_for_item(item)
        entry = lane.queue.get(item.id) if lane else None
        if entry is None:
            entry = QueueEntry(item, ItemPhase.LIVE, stored=False)
            if lane:
                lane.queue.add(entry)
        entry.start_live(self._start_redaction())
        entry.next_live_at = entry.next_typing_at = (
            self.clock.monotonic() + FIRST_LIVE_DELAY_SECONDS
        )
        self.wake_entry(entry)
        return entry

    def wake_entry(self, entry: QueueEntry) -> None:
        """Wake the lane of a changed entry."""
        if entry.removed:
            return
        if lane := self._lane_for_item(entry.item):
            lane.wake()

    def withdraw(self, entry: QueueEntry) -> None:
        """Remove the shown messages of an answer that is not final."""
        if entry.phase is ItemPhase.LIVE:
            entry.phase = ItemPhase.WITHDRAWN
            self.wake_entry(entry)

    # --- for lanes ---------------------------------------------------------------------------

    def start_pump(self, lane: Lane, *, urgent: bool) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        self._idle_lanes.pop(lane.key, None)
        if self._group is None:  # `run` starts it
            return
        if start_task(self._group, lane.pump(urgent=urgent), name=f"lane {lane.key}"):
            lane.on_pump_started(urgent=urgent)

    def start_reaction(self, lane: Lane, reaction: React, wait: float) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        if self._group:  # else the reaction is lost, which is acceptable
            work = lane.show_reaction(reaction, wait)
            start_task(self._group, work, name=f"reaction {lane.key}")

    def on_item_settled(self, item_id: str, state: ItemState) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        for future in self._sent_waiters.get(item_id, ()):
            if not future.done():
                future.set_result(state)
        self._progress.set()

    def on_pump_ended(self) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        self._progress.set()

    def on_lane_idle(self, lane: Lane) -> None:
        """See `gateway.delivery.lane.LaneHost`; forgets the lanes that were idle longest."""
        self._reacting_lanes.pop(lane.key, None)
        self._idle_lanes[lane.key] = lane
        self._idle_lanes.move_to_end(lane.key)
        now = self.clock.monotonic()
        while len(self._idle_lanes) > _MAX_IDLE_LANES:
            oldest = next(iter(self._idle_lanes.values()))
            if not oldest.queue and not oldest.pace.is_rested(now):
                break
            del self._idle_lanes[oldest.key]
            if not oldest.queue:  # else its items wait for the platform
                del self._lanes[oldest.key]

    async def save_pause(self, lane: Lane, until: int) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        now = self.clock.now()
        self._pauses = {key: end for key, end in self._pauses.items() if end > now}
        self._pauses[lane.key] = max(until, self._pauses.get(lane.key, 0))
        kept = msgspec.json.encode(self._pauses).decode()
        try:
            await self.store.put_value(_SHELF, _PAUSES_KEY, kept)
        except StoreError as error:  # the pause still holds in this process
            log.warning("pause of %s not stored: %s", lane.key, error)

    # --- private -----------------------------------------------------------------------------

    def _lane_for_item(self, item: OutboxItem) -> Lane | None:
        link = self._links.get((item.address.platform, item.address.account))
        return self._lane_for_address(item.address, link) if link else None

    def _lane_for_address(self, address: Address, link: AdapterLink) -> Lane:
        can = capabilities_in(link.adapter, address)
        key = _lane_key(address, can)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, link, self, can)
            if until := self._pauses.get(key):
                lane.pace.block(self._to_monotonic(until))
        return lane

    def _to_monotonic(self, moment: int) -> float:
        """Convert a wall time in milliseconds; a past moment becomes now."""
        return self.clock.monotonic() + max(0, moment - self.clock.now()) / 1000


def _lane_key(address: Address, capabilities: Capabilities) -> str:
    """Return the name of a chat, or of a thread with a separate budget."""
    chat = f"{address.platform}@{address.account}:{address.chat}"
    return f"{chat}:{address.thread}" if capabilities.threads_apart and address.thread else chat
