"""The page `/metrics`: counters and histograms, plus gauges that are read on request."""

import asyncio
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Protocol

from gateway.observe.disk import DiskGauge
from gateway.observe.metric_types import GaugeMetric, GaugeReadings, Labels
from gateway.observe.metrics import Metrics
from sessions.errors import StoreError
from sessions.records import StoreCounts
from sessions.store.store import SessionStore
from sessions.values.clock import Clock

CENSUS_CACHE_SECONDS = 15.0
"""Minimum interval between two counts of records in the store."""

_STORE_TIMEOUT_SECONDS = 5.0
_NO_LABELS: Labels = ()

_SESSIONS = GaugeMetric("holdfast_sessions", "Sessions in the store, by state.", "state")
_INBOX = GaugeMetric(
    "holdfast_inbox_messages",
    "Unanswered messages: queued, or held with a suspended session.",
    "state",
)
_OUTBOX = GaugeMetric("holdfast_outbox_items", "Answers and notices that are not delivered yet.")
_RUNNING_TURNS = GaugeMetric("holdfast_running_turns", "Running turns.")
_TASKS = GaugeMetric("holdfast_tasks", "Tasks of the event loop.")
_HTTP_REQUESTS = GaugeMetric("holdfast_http_requests", "HTTP requests in progress.")
_PLATFORM_CONNECTED = GaugeMetric(
    "holdfast_platform_connected", "1 if a platform is connected without a problem.", "platform"
)
_DISK_FREE = GaugeMetric("holdfast_disk_free_bytes", "Free disk space of the state folder.")
_BUILD_INFO = GaugeMetric(
    "holdfast_build_info", "Version of Holdfast and Python; always 1.", "version", "python"
)
GAUGES = (
    _SESSIONS,
    _INBOX,
    _OUTBOX,
    _RUNNING_TURNS,
    _TASKS,
    _HTTP_REQUESTS,
    _PLATFORM_CONNECTED,
    _DISK_FREE,
    _BUILD_INFO,
)


class RuntimeMetrics(Protocol):
    """Source of gauges about the daemon; see `gateway.process.health.GatewayHealth`."""

    def running_turns(self) -> int:
        """Return the number of running turns."""
        ...

    def active_requests(self) -> int:
        """Return the number of HTTP requests in progress."""
        ...

    def platform_health(self) -> Mapping[str, bool]:
        """Return for each platform whether it is connected without a problem."""
        ...


class MetricsRenderer(Protocol):
    """See `gateway.observe.prometheus.PrometheusPage`."""

    content_type: str

    def render(self, gauges: GaugeReadings) -> bytes:
        """Return the page with all metrics."""
        ...


class MetricsPage:
    """Builder of the page; caches the counts of the store."""

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
        """Return the page and its content type."""
        if self._renderer is None:
            self._renderer = await asyncio.to_thread(_create_renderer, self._metrics)
        return self._renderer.render(await self._gauge_values()), self._renderer.content_type

    async def _gauge_values(self) -> list[tuple[GaugeMetric, Mapping[Labels, float]]]:
        runtime = self._runtime
        connected: dict[Labels, float] = {
            (name,): float(healthy) for name, healthy in runtime.platform_health().items()
        }
        gauges: list[tuple[GaugeMetric, Mapping[Labels, float]]] = [
            (_RUNNING_TURNS, {_NO_LABELS: runtime.running_turns()}),
            (_TASKS, {_NO_LABELS: len(asyncio.all_tasks())}),
            (_HTTP_REQUESTS, {_NO_LABELS: runtime.active_requests()}),
            (_PLATFORM_CONNECTED, connected),
            (_BUILD_INFO, {(metadata.version("holdfast"), platform.python_version()): 1}),
            (_DISK_FREE, await self._disk_free()),
        ]
        census = await self._read_census()
        if census:  # without an answer of the store, its gauges are left out
            states = ("active", "suspended", "closed")
            sessions = (census.active, census.suspended, census.closed)
            gauges += [
                (_SESSIONS, {(state,): n for state, n in zip(states, sessions, strict=True)}),
                (_INBOX, {("waiting",): census.waiting, ("held",): census.held}),
                (_OUTBOX, {_NO_LABELS: census.to_show}),
            ]
        return gauges

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


def _create_renderer(metrics: Metrics) -> MetricsRenderer:
    """Create the renderer; its library is loaded on the first request of the page."""
    from gateway.observe.prometheus import PrometheusPage

    return PrometheusPage(metrics)
