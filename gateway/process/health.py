"""The gateway's state, read by the service manager, the health page, metrics and commands.

Everything here is read-only.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.connections.directory import AdapterDirectory
from gateway.http.concurrency import ConcurrencyLimit
from gateway.notices.catalogue import safe_mode_text
from gateway.observe.disk import DiskGauge
from gateway.process.control_socket import ProcessState
from gateway.settings import Settings
from sessions.errors import StoreError
from sessions.store.store import SessionStore
from sessions.values.text import shorten

_WRITE_TIMEOUT_SECONDS = 2.0  # a slower store counts as not writable
MAX_PROBLEM_LENGTH = 80
"""Characters of a problem in the status line; `holdfast status` shows the whole text."""

_CONNECTED = "connected"


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
        *,
        crash_count: int,
        store: Callable[[], SessionStore | None],
        running_turns: Callable[[], int],
    ) -> None:
        self.ready, self.stopping = lifecycle.ready, lifecycle.stopping
        self.restarting = lifecycle.restarting
        self._settings = settings
        self._adapters = adapters
        self._disk_gauge = disk_gauge
        self._concurrency = concurrency
        self._crash_count = crash_count
        self._store = store  # None until the start has opened the store
        self._running_turns = running_turns

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
        if store := self._store():
            await store.check_responsive()

    async def release_memory(self) -> None:
        """Free memory that the store keeps; a failure is ignored, because others report it."""
        if store := self._store():
            with contextlib.suppress(StoreError):
                await store.release_memory()

    def writer_steps(self) -> int:
        """Return the number of transactions that the writer thread has begun."""
        store = self._store()
        return store.writer_transactions if store else 0

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
        store = self._store()
        if store is None:
            return ""
        if store.damage:
            return f"store: {store.damage}"
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_SECONDS):
                await store.check_writable()
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
        return safe_mode_text(self._crash_count) if self._crash_count else self.state()

    # --- metrics: see `gateway.observe.metrics_page.RuntimeMetrics` -----------------------------

    def running_turns(self) -> int:
        """Return the number of running turns."""
        return self._running_turns()

    def active_requests(self) -> int:
        """Return the number of HTTP requests in progress."""
        return self._concurrency.active_requests

    def platform_health(self) -> Mapping[str, bool]:
        """Return for each platform whether it is connected without a problem."""
        return {each.name: not each.problem for each in self._adapters}

    # --- commands -------------------------------------------------------------------------------

    def state(self) -> ProcessState:
        """Return the state of the process."""
        if self.restarting.is_set():
            return ProcessState.RESTARTING
        return ProcessState.STOPPING if self.stopping.is_set() else ProcessState.RUNNING

    def platform_states(self) -> dict[str, str]:
        """Return the state of each platform: `connected`, or its problem."""
        return {each.name: each.problem or each.state.value for each in self._adapters}

    def status(self) -> dict[str, Any]:
        """Return the fields of `holdfast status` about the process."""
        return {
            "state": self.state().value,
            "pid": os.getpid(),
            "safe_mode": safe_mode_text(self._crash_count) if self._crash_count else None,
            "platforms": self.platform_states(),
            "running": self.running_turns(),
        }


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
    connected = [name for name, state in platforms.items() if state == _CONNECTED]
    problems = [
        f"{name}: {_single_line(state)}" for name, state in platforms.items() if state != _CONNECTED
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
        line.rstrip(".") if len(line) <= MAX_PROBLEM_LENGTH else shorten(line, MAX_PROBLEM_LENGTH)
    )
