"""Delivery: every chat's lane, and the door through which items come in."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from gateway.delivery import plan
from gateway.delivery.lane import Lane
from gateway.delivery.link import AdapterLink, OnDelivered
from gateway.delivery.plan import ItemPhase
from gateway.delivery.queue import FIRST_LIVE_DELAY_SECONDS, QueueEntry
from gateway.delivery.view import read_address
from platforms.core.contract import (
    Adapter,
    Address,
    Capabilities,
    React,
    Task,
    capabilities_in,
)
from sessions.changes import Change, PutItem
from sessions.errors import StoreError
from sessions.records import ItemState, OutboxItem
from sessions.store.store import SessionStore
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

MAX_IDLE_LANES = 256
"""Chats whose pace and last messages are remembered although nothing is to be done there."""

MAX_REACTING_LANES = 512
"""Chats in which signs may wait; at Telegram's 30 a second the last is shown 17 s late."""

ABANDONED_SECONDS = 5.0
"""Seconds after the start in which somebody may take over an answer whose writer died."""

_SHELF = "delivery"
_PAUSES_KEY = "pauses"


def _unchanged(text: str) -> str:
    return text


async def read_pauses(store: SessionStore) -> dict[str, int]:
    """Until when platforms want nothing more of us, by chat; milliseconds."""
    kept = await store.get_value(_SHELF, _PAUSES_KEY)
    return msgspec.json.decode(kept, type=dict[str, int]) if kept else {}


class LiveItem:
    """An answer that is being written; made by `Delivery.live`."""

    def __init__(self, delivery: "Delivery", item: OutboxItem) -> None:
        self._delivery = delivery
        self._entry = delivery.queue_live(item)

    def update(self, text: str, status: str = "") -> None:
        """Let the chat show this text, and a line about what is going on, when there is room."""
        self.follow(lambda: text, status)

    def follow(
        self, read: Callable[[], str], status: str = "", tasks: tuple[Task, ...] = ()
    ) -> None:
        """The same for a text that grows: it is read when there is room to show it.

        Called for every token: the lane looks at its own pace. `tasks` are what was done so far.
        """
        entry = self._entry
        entry.read_text = read
        entry.status = status
        entry.tasks = tasks
        if not entry.dirty:
            entry.dirty = True
            self._delivery.wake_entry(entry)

    def close(self) -> None:
        """Show no more live states: the final form is about to be committed."""
        self._entry.is_muted = True

    def drop(self) -> None:
        """There is nothing to keep: take away what was shown."""
        self._delivery.withdraw(self._entry)


class Delivery:
    """Shows in every chat what it should show, once.

    Whoever makes items has them committed by `put`, or commits them and hands them to `wake`. What
    is written about an item afterwards (`SetItem`) is written here alone.
    """

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        *,
        redact: Callable[[str], str] = _unchanged,
        deadline_seconds: float = 30.0,
        upload_deadline_seconds: float = 600.0,
        on_refused: Callable[[Adapter], None] = lambda _: None,
        on_delivered: OnDelivered = lambda *_: None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.redact = redact  # applied to every text that leaves
        self.deadline_seconds = deadline_seconds  # seconds that a platform may take over one op
        self.upload_deadline_seconds = (
            upload_deadline_seconds  # the same for a file, on a slow line
        )
        self._on_refused = on_refused
        self._on_delivered = on_delivered
        self._links: dict[tuple[str, str], AdapterLink] = {}
        self._lanes: dict[str, Lane] = {}
        self._group: asyncio.TaskGroup | None = None
        self._idle_lanes: OrderedDict[str, Lane] = OrderedDict()
        self._reacting_lanes: dict[str, Lane] = {}  # in which signs wait, the longest first
        self._pauses: dict[str, int] = {}
        self._sent_waiters: dict[str, list[asyncio.Future[ItemState]]] = {}
        self._progress = asyncio.Event()

    # --- start and end -----------------------------------------------------------------------

    def attach(self, adapter: Adapter) -> None:
        """Deliver through this adapter what goes to its platform; nothing before `connected`."""
        self._links[adapter.name, adapter.account] = AdapterLink(
            adapter, self._on_refused, self._on_delivered, self.clock.monotonic()
        )

    def on_connected(self, platform: str, account: str = "") -> None:
        """The platform can be reached: what waits goes out now, whatever it was backing off for."""
        link = self._links[platform, account]
        link.is_connected = True
        for lane in [lane for lane in self._lanes.values() if lane.link is link]:
            for entry in lane.queue:
                if entry.tries:
                    entry.not_before = 0.0
            lane.wake()
            lane.reactions.wake()

    def on_disconnected(self, platform: str, account: str = "") -> None:
        """The platform cannot be reached: its lanes wait."""
        self._links[platform, account].is_connected = False
        self._progress.set()

    async def recover(self) -> int:
        """Take up what an earlier process left; how many items that is."""
        now = self.clock.now()
        pauses = await read_pauses(self.store)
        self._pauses = {key: until for key, until in pauses.items() if until > now}
        items = await self.store.undelivered_items()
        for item in items:
            entry = QueueEntry(
                item, ItemPhase.FINAL if item.final else ItemPhase.ABANDONED, stored=True
            )
            entry.shown = plan.record_restart(entry.shown)
            if not item.final:
                entry.not_before = self.clock.monotonic() + ABANDONED_SECONDS
            lane = self._lane_for_item(item)
            if lane is None:
                log.warning("%s waits: nothing delivers to %s", item.id, item.address)
                continue
            lane.queue.add(entry)
            lane.wake()
        return len(items)

    async def run(self) -> None:
        """Own the tasks of all lanes; runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for lane in self._lanes.values():
                    lane.wake()
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def flush(self, timeout: float) -> None:  # noqa: ASYNC109 - it is no error to run out
        """Let what must be shown on connected platforms get out, for at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while any(
                    lane.link.is_connected and lane.has_pending() for lane in self._lanes.values()
                ):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            log.warning("some answers could not be delivered before the end; they are kept")

    # --- items -------------------------------------------------------------------------------

    async def put(self, *changes: Change) -> None:
        """Make changes true, all or none, and show the items among them; raises like the store."""
        await self.store.apply(*changes)
        self.enqueue([change.item for change in changes if isinstance(change, PutItem)])

    def enqueue(self, items: Iterable[OutboxItem]) -> None:
        """Show what was committed just now: new items, or news of items that are there already."""
        for item in items:
            lane = self._lane_for_item(item)
            if lane is None:
                log.warning("%s waits: nothing delivers to %s", item.id, item.address)
                continue
            entry = lane.queue.get(item.id)
            if entry:
                entry.finish(item)
            else:
                lane.queue.add(QueueEntry(item, ItemPhase.FINAL, stored=True))
            lane.wake()

    def start_live(self, item: OutboxItem) -> LiveItem:
        """Begin to show an answer that is being written; the item need not be in the store."""
        return LiveItem(self, item)

    def react(self, address: Address, message: str, emoji: str) -> None:
        """Put a sign on a person's message when there is room; it is not stored, and may be lost."""
        link = self._links.get((address.platform, address.account))
        if link is None or not capabilities_in(link.adapter, address).reactions:
            return
        if self._group is None:
            return
        lane = self._lane_for_address(address, link)
        self._idle_lanes.pop(lane.key, None)  # a lane in which a sign waits is not forgotten
        lane.reactions.add(React(f"{message}.s", address, message, emoji))
        self._reacting_lanes[lane.key] = lane
        if len(self._reacting_lanes) > MAX_REACTING_LANES:
            self._reacting_lanes.pop(next(iter(self._reacting_lanes))).reactions.clear()

    async def wait_sent(self, item_id: str) -> ItemState:
        """Wait until an item that was woken is sent or dead."""
        future: asyncio.Future[ItemState] = asyncio.get_running_loop().create_future()
        self._sent_waiters.setdefault(item_id, []).append(future)
        try:
            return await future
        finally:
            self._sent_waiters[item_id].remove(future)
            if not self._sent_waiters[item_id]:
                del self._sent_waiters[item_id]

    # --- for LiveItem ------------------------------------------------------------------------

    def queue_live(self, item: OutboxItem) -> QueueEntry:
        """Queue an answer; one that an earlier process began to show goes on."""
        lane = self._lane_for_item(item)
        entry = lane.queue.get(item.id) if lane else None
        if entry is None:
            entry = QueueEntry(item, ItemPhase.LIVE, stored=False)
            if lane:
                lane.queue.add(entry)
        entry.resume()
        entry.phase = ItemPhase.LIVE
        entry.next_live_at = entry.next_typing_at = (
            self.clock.monotonic() + FIRST_LIVE_DELAY_SECONDS
        )
        self.wake_entry(entry)
        return entry

    def wake_entry(self, entry: QueueEntry) -> None:
        """Let the entry's lane see what is new."""
        if entry.removed:
            return
        if lane := self._lane_for_item(entry.item):
            lane.wake()

    def withdraw(self, entry: QueueEntry) -> None:
        """Take away what an answer has shown so far, unless it is final."""
        if entry.phase is ItemPhase.LIVE:
            entry.phase = ItemPhase.WITHDRAWN
            self.wake_entry(entry)

    # --- for lanes ---------------------------------------------------------------------------

    def start_pump(self, lane: Lane, *, urgent: bool) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        self._idle_lanes.pop(lane.key, None)
        if self._group:  # else `run` starts it
            lane.on_pump_started(urgent=urgent)
            self._group.create_task(lane.pump(urgent=urgent), name=f"lane {lane.key}")

    def start_reaction(self, lane: Lane, reaction: React, wait: float) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        if self._group:  # else it is lost, as signs may be
            self._group.create_task(lane.show_reaction(reaction, wait), name=f"sign {lane.key}")

    def on_item_settled(self, item_id: str, state: ItemState) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        for future in self._sent_waiters.get(item_id, ()):
            if not future.done():
                future.set_result(state)
        self._progress.set()

    def on_lane_idle(self, lane: Lane) -> None:
        """See `gateway.delivery.lane.LaneHost`. The longest idle lanes are forgotten."""
        self._progress.set()
        self._reacting_lanes.pop(lane.key, None)
        self._idle_lanes[lane.key] = lane
        self._idle_lanes.move_to_end(lane.key)
        now = self.clock.monotonic()
        while len(self._idle_lanes) > MAX_IDLE_LANES:
            oldest = next(iter(self._idle_lanes.values()))
            if not oldest.queue and not oldest.pace.is_rested(now):
                break
            del self._idle_lanes[oldest.key]
            if not oldest.queue:  # else it waits for its platform
                del self._lanes[oldest.key]

    async def save_pause(self, lane: Lane, until: int) -> None:
        """See `gateway.delivery.lane.LaneHost`."""
        now = self.clock.now()
        self._pauses = {key: end for key, end in self._pauses.items() if end > now}
        self._pauses[lane.key] = max(until, self._pauses.get(lane.key, 0))
        kept = msgspec.json.encode(self._pauses).decode()
        try:
            await self.store.put_value(_SHELF, _PAUSES_KEY, kept)
        except StoreError as error:  # the pause is kept all the same, only not over a restart
            log.warning("a pause of %s is not stored: %s", lane.key, error)

    # --- inside ------------------------------------------------------------------------------

    def _lane_for_item(self, item: OutboxItem) -> Lane | None:
        address = read_address(item.address)
        link = self._links.get((address.platform, address.account))
        return self._lane_for_address(address, link) if link else None

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
        """Translate a moment of wall time; one that is over is now."""
        return self.clock.monotonic() + max(0, moment - self.clock.now()) / 1000


def _lane_key(address: Address, capabilities: Capabilities) -> str:
    """Name a chat, or one of its threads: what shares a budget shares a lane."""
    chat = f"{address.platform}@{address.account}:{address.chat}"
    return f"{chat}:{address.thread}" if capabilities.threads_apart and address.thread else chat
