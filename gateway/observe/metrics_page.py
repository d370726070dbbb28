"""The page `/metrics`: what was counted, and what is read when somebody asks."""

import asyncio
import platform
from collections.abc import Mapping
from importlib import import_module, metadata
from typing import Protocol

from gateway.observe.disk import DiskGauge
from gateway.observe.metric_types import GaugeMetric, Labels
from gateway.observe.metrics import Metrics
from sessions.errors import StoreError
from sessions.records import StoreCounts
from sessions.store.store import SessionStore
from sessions.values.clock import Clock

CENSUS_CACHE_SECONDS = 15.0
"""For so long the sessions are not counted again, however often somebody asks."""

_STORE_TIMEOUT_SECONDS = 5.0
_NO_LABELS: Labels = ()

SESSIONS = GaugeMetric("holdfast_sessions", "Sessions in the store, by state.", "state")
INBOX = GaugeMetric(
    "holdfast_inbox_messages",
    "Messages that are not answered: waiting for their turn, or held with a suspended session.",
    "state",
)
OUTBOX = GaugeMetric("holdfast_outbox_items", "Answers and notices that are not delivered yet.")
RUNNING_TURNS = GaugeMetric("holdfast_running_turns", "Turns under way.")
TASKS = GaugeMetric("holdfast_tasks", "Tasks of the event loop.")
HTTP_REQUESTS = GaugeMetric("holdfast_http_requests", "HTTP requests at work.")
PLATFORM_CONNECTED = GaugeMetric(
    "holdfast_platform_connected", "Whether a platform is connected and undisturbed.", "platform"
)
DISK_FREE = GaugeMetric("holdfast_disk_free_bytes", "Room left where the state folder is.")
BUILD_INFO = GaugeMetric("holdfast_build_info", "What runs; always 1.", "version", "python")
GAUGES = (
    SESSIONS,
    INBOX,
    OUTBOX,
    RUNNING_TURNS,
    TASKS,
    HTTP_REQUESTS,
    PLATFORM_CONNECTED,
    DISK_FREE,
    BUILD_INFO,
)


class RuntimeMetrics(Protocol):
    """What is asked about the daemon as a whole; see `gateway.process.health.GatewayHealth`."""

    def running_turns(self) -> int:
        """Turns under way."""
        ...

    def active_requests(self) -> int:
        """HTTP requests at work."""
        ...

    def platform_health(self) -> Mapping[str, bool]:
        """Which platforms are connected and undisturbed."""
        ...


class MetricsRenderer(Protocol):
    """See `gateway.observe.prometheus.PrometheusPage`."""

    def render(self, gauges: object) -> bytes:
        """Write everything."""
        ...


class MetricsPage:
    """Writes the page."""

    def __init__(
        self,
        metrics: Metrics,
        runtime: RuntimeMetrics,
        store: SessionStore,
        clock: Clock,
        disk_gauge: DiskGauge,
    ) -> None:
        self._metrics = metrics
        self._runtime = runtime
        self._store = store
        self._clock = clock
        self._disk_gauge = disk_gauge
        self._renderer: MetricsRenderer | None = None
        self._census: StoreCounts | None = None
        self._census_at = float("-inf")
        self._census_lock = asyncio.Lock()

    async def render(self) -> tuple[bytes, str]:
        """Give the page and its content type."""
        form = await asyncio.to_thread(import_module, "gateway.observe.prometheus")
        if self._renderer is None:
            self._renderer = form.PrometheusPage(self._metrics)
        return self._renderer.render(await self._gauge_values()), form.CONTENT_TYPE

    async def _gauge_values(self) -> list[tuple[GaugeMetric, Mapping[Labels, float]]]:
        house = self._runtime
        well: dict[Labels, float] = {
            (name,): float(each) for name, each in house.platform_health().items()
        }
        found: list[tuple[GaugeMetric, Mapping[Labels, float]]] = [
            (RUNNING_TURNS, {_NO_LABELS: house.running_turns()}),
            (TASKS, {_NO_LABELS: len(asyncio.all_tasks())}),
            (HTTP_REQUESTS, {_NO_LABELS: house.active_requests()}),
            (PLATFORM_CONNECTED, well),
            (BUILD_INFO, {(metadata.version("holdfast"), platform.python_version()): 1}),
            (DISK_FREE, await self._disk_free()),
        ]
        census = await self._read_census()
        if census:  # a store that cannot be asked has no numbers, rather than wrong ones
            states = ("active", "suspended", "closed")
            sessions = (census.active, census.suspended, census.closed)
            found += [
                (SESSIONS, {(state,): n for state, n in zip(states, sessions, strict=True)}),
                (INBOX, {("waiting",): census.waiting, ("held",): census.held}),
                (OUTBOX, {_NO_LABELS: census.to_show}),
            ]
        return found

    async def _disk_free(self) -> Mapping[Labels, float]:
        try:
            return {_NO_LABELS: (await self._disk_gauge.read()).free_bytes}
        except OSError:
            return {}

    async def _read_census(self) -> StoreCounts | None:
        async with self._census_lock:
            now = self._clock.monotonic()
            if now - self._census_at < CENSUS_CACHE_SECONDS:
                return self._census
            self._census_at = now
            try:
                async with asyncio.timeout(_STORE_TIMEOUT_SECONDS):
                    self._census = await self._store.count_records()
            except (StoreError, TimeoutError):
                self._census = None
            return self._census
