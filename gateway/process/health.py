"""The gateway's state, read by the service manager, the health page, metrics and commands.

Everything here is read-only.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.connections.directory import AdapterDirectory
from gateway.http.concurrency import ConcurrencyLimit
from gateway.notices.catalogue import safe_mode_text
from gateway.observe.disk import DiskGauge
from gateway.settings import Settings
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.store.store import SessionStore

_WRITE_TIMEOUT_SECONDS = 2.0  # a slower store counts as not writable


class LifecycleEvents(msgspec.Struct, frozen=True):
    """The events that control the life of the gateway and show its progress."""

    ready: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    restarting: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set together with `stopping` for a restart."""
    skip_drain: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set to stop without waiting for running turns."""


class GatewayHealth:
    """The state of one gateway, from before its store is open until after its end."""

    def __init__(
        self,
        lifecycle: LifecycleEvents,
        settings: Callable[[], Settings],
        adapters: AdapterDirectory,
        disk_gauge: DiskGauge,
        concurrency: ConcurrencyLimit,
    ) -> None:
        self.ready, self.stopping = lifecycle.ready, lifecycle.stopping
        self.restarting = lifecycle.restarting
        self.store: SessionStore | None = None
        self.pool: SessionPool | None = None
        self.crash_count = 0
        """Crashes in a row that caused safe mode; 0 outside safe mode."""
        self._settings = settings
        self._adapters = adapters
        self._disk_gauge = disk_gauge
        self._concurrency = concurrency

    # --- service manager: see `gateway.process.systemd_notify.ManagedDaemon` --------------------

    @property
    def drain_seconds(self) -> float:
        """Seconds that running turns get to finish at a stop."""
        return self._settings().gateway.drain_seconds

    def describe_status(self) -> str:
        """Return the state in one line."""
        return format_status_summary(
            self.platform_states(),
            self.running_turns(),
            stopping=self.stopping.is_set(),
            restarting=self.restarting.is_set(),
        )

    async def wait_first_attempts(self) -> None:
        """Wait until the first connection attempt of each platform has succeeded or failed."""
        await self._adapters.wait_first_attempts()

    async def ping_writer(self) -> None:
        """Wait for an answer of the store's writer thread; returns at once without a store."""
        if self.store is not None:
            await self.store.check_responsive()

    def writer_steps(self) -> int:
        """Return the number of transactions that the writer thread has begun."""
        return self.store.writer_transactions if self.store is not None else 0

    # --- health page: see `gateway.http.app.Health` ---------------------------------------------

    async def problems(self) -> Sequence[str]:
        """Return the problems that make the gateway not ready."""
        found = [f"{each.name}: {each.problem}" for each in self._adapters if each.problem]
        if self.stopping.is_set():
            found.append(f"gateway: {self.state()}, no new turns begin")
        async with asyncio.TaskGroup() as both:
            looks = [
                both.create_task(self._store_problem()),
                both.create_task(self._disk_problem()),
            ]
        return [*found, *(problem for look in looks if (problem := look.result()))]

    async def _store_problem(self) -> str:
        if self.store is None:
            return ""
        if self.store.damage:
            return f"store: {self.store.damage}"
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_SECONDS):
                await self.store.check_writable()
        except StoreError as error:
            return f"store: {error}"
        except TimeoutError:
            return f"store: nothing could be written within {_WRITE_TIMEOUT_SECONDS:g} s"
        return ""

    async def _disk_problem(self) -> str:
        try:
            return (await self._disk_gauge.read()).warning
        except OSError as error:
            return f"disk: {self._disk_gauge.folder}: {error.strerror}"

    def mode(self) -> str:
        """Return the state for `/readyz`: running, stopping, or the reason of safe mode."""
        return safe_mode_text(self.crash_count) if self.crash_count else self.state()

    # --- metrics: see `gateway.observe.metrics_page.RuntimeMetrics` -----------------------------

    def running_turns(self) -> int:
        """Return the number of running turns."""
        return len(self.pool.running_turns()) if self.pool else 0

    def active_requests(self) -> int:
        """Return the number of HTTP requests in progress."""
        return self._concurrency.active_requests

    def platform_health(self) -> Mapping[str, bool]:
        """Return for each platform whether it is connected without a problem."""
        return {each.name: not each.problem for each in self._adapters}

    # --- commands -------------------------------------------------------------------------------

    def state(self) -> str:
        """Return the state in one word."""
        if self.restarting.is_set():
            return "restarting"
        return "stopping" if self.stopping.is_set() else "running"

    def platform_states(self) -> dict[str, str]:
        """Return the state of each platform: `connected`, or its problem."""
        return {each.name: each.problem or each.state.value for each in self._adapters}

    def status(self) -> dict[str, Any]:
        """Return the fields of `holdfast status` about the process."""
        return {
            "state": self.state(),
            "pid": os.getpid(),
            "safe_mode": safe_mode_text(self.crash_count) if self.crash_count else None,
            "platforms": self.platform_states(),
            "running": self.running_turns(),
        }


MAX_PROBLEM_LENGTH = 80
"""Characters of a problem in the status line; `holdfast status` shows the whole text."""


CONNECTED = "connected"


def format_status_summary(
    platforms: Mapping[str, str],
    running: int,
    *,
    stopping: bool = False,
    restarting: bool = False,
) -> str:
    """Return one line with the connected platforms, the problems and the running turns.

    `platforms` maps each platform to `connected` or to its problem.
    """
    turns = f"{running} turn{'' if running == 1 else 's'}"
    if stopping:
        ending = "Restarting" if restarting else "Stopping"
        return f"{ending}; {turns} still running." if running else f"{ending}."
    connected = [name for name, state in platforms.items() if state == CONNECTED]
    problems = [
        f"{name}: {_single_line(state)}" for name, state in platforms.items() if state != CONNECTED
    ]
    first = f"Answering on {_join_names(connected)}" if connected else "No platform is connected"
    return "; ".join([first, *problems, f"{turns} running" if running else "idle"]) + "."


def _join_names(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _single_line(text: str) -> str:
    # The text may quote a platform; a line break would begin another field of the notification.
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return (
        line.rstrip(".")
        if len(line) <= MAX_PROBLEM_LENGTH
        else f"{line[: MAX_PROBLEM_LENGTH - 1]}…"
    )
