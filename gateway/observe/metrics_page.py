"""The page `/metrics`: what was counted, and what is read when somebody asks."""

import asyncio
import platform
from collections.abc import Mapping
from importlib import import_module, metadata
from typing import Protocol

from gateway.observe.disk import Gauge
from gateway.observe.metric_types import Labels, Level
from gateway.observe.metrics import Ledger
from sessions.errors import StoreError
from sessions.records import Census
from sessions.store.store import SessionStore
from sessions.values.clock import Clock

CENSUS_SECONDS = 15.0
"""For so long the sessions are not counted again, however often somebody asks."""

_STORE_WITHIN = 5.0
_NOTHING: Labels = ()

SESSIONS = Level("holdfast_sessions", "Sessions in the store, by state.", "state")
INBOX = Level(
    "holdfast_inbox_messages",
    "Messages that are not answered: waiting for their turn, or held with a suspended session.",
    "state",
)
TO_SHOW = Level("holdfast_outbox_items", "Answers and notices that are not delivered yet.")
RUNNING = Level("holdfast_running_turns", "Turns under way.")
TASKS = Level("holdfast_tasks", "Tasks of the event loop.")
AT_WORK = Level("holdfast_http_requests", "HTTP requests at work.")
CONNECTED = Level(
    "holdfast_platform_connected", "Whether a platform is connected and undisturbed.", "platform"
)
ROOM = Level("holdfast_disk_free_bytes", "Room left where the state folder is.")
BUILD = Level("holdfast_build_info", "What runs; always 1.", "version", "python")
LEVELS = (SESSIONS, INBOX, TO_SHOW, RUNNING, TASKS, AT_WORK, CONNECTED, ROOM, BUILD)


class House(Protocol):
    """What is asked about the daemon as a whole; see `gateway.process.health.Condition`."""

    def running_turns(self) -> int:
        """Turns under way."""
        ...

    def requests_at_work(self) -> int:
        """HTTP requests at work."""
        ...

    def platforms_well(self) -> Mapping[str, bool]:
        """Which platforms are connected and undisturbed."""
        ...


class Page(Protocol):
    """See `gateway.observe.prometheus.Exposition`."""

    def write(self, levels: object) -> bytes:
        """Write everything."""
        ...


class Figures:
    """Writes the page."""

    def __init__(
        self, ledger: Ledger, house: House, store: SessionStore, clock: Clock, gauge: Gauge
    ) -> None:
        self._ledger = ledger
        self._house = house
        self._store = store
        self._clock = clock
        self._gauge = gauge
        self._page: Page | None = None
        self._census: Census | None = None
        self._counted_at = float("-inf")
        self._counting = asyncio.Lock()

    async def page(self) -> tuple[bytes, str]:
        """Give the page and its content type."""
        form = await asyncio.to_thread(import_module, "gateway.observe.prometheus")
        if self._page is None:
            self._page = form.Exposition(self._ledger)
        return self._page.write(await self._levels()), form.CONTENT_TYPE

    async def _levels(self) -> list[tuple[Level, Mapping[Labels, float]]]:
        house = self._house
        well: dict[Labels, float] = {
            (name,): float(each) for name, each in house.platforms_well().items()
        }
        found: list[tuple[Level, Mapping[Labels, float]]] = [
            (RUNNING, {_NOTHING: house.running_turns()}),
            (TASKS, {_NOTHING: len(asyncio.all_tasks())}),
            (AT_WORK, {_NOTHING: house.requests_at_work()}),
            (CONNECTED, well),
            (BUILD, {(metadata.version("holdfast"), platform.python_version()): 1}),
            (ROOM, await self._room()),
        ]
        census = await self._counted()
        if census:  # a store that cannot be asked has no numbers, rather than wrong ones
            states = ("active", "suspended", "closed")
            sessions = (census.active, census.suspended, census.closed)
            found += [
                (SESSIONS, {(state,): n for state, n in zip(states, sessions, strict=True)}),
                (INBOX, {("waiting",): census.waiting, ("held",): census.held}),
                (TO_SHOW, {_NOTHING: census.to_show}),
            ]
        return found

    async def _room(self) -> Mapping[Labels, float]:
        try:
            return {_NOTHING: (await self._gauge.read()).free}
        except OSError:
            return {}

    async def _counted(self) -> Census | None:
        async with self._counting:
            now = self._clock.monotonic()
            if now - self._counted_at < CENSUS_SECONDS:
                return self._census
            self._counted_at = now
            try:
                async with asyncio.timeout(_STORE_WITHIN):
                    self._census = await self._store.census()
            except (StoreError, TimeoutError):
                self._census = None
            return self._census
