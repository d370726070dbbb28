"""How the gateway stands: told to the service manager, the health page, figures and commands.

It looks and answers; it changes nothing.
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

WRITE_TIMEOUT_SECONDS = 2.0  # or the store counts as one that cannot be written


class LifecycleEvents(msgspec.Struct, frozen=True):
    """How the gateway as a whole is told what to do, and how far it is."""

    ready: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    restarting: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set besides `stopping` when the process is to come back."""
    skip_drain: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Running turns are not waited for."""


class GatewayHealth:
    """Of one gateway, from before it has a store until after its end."""

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
        """For so many starts that crashed it runs in safe mode."""
        self._settings = settings
        self._adapters = adapters
        self._disk_gauge = disk_gauge
        self._concurrency = concurrency

    # --- the service manager: see `gateway.process.systemd_notify.ManagedDaemon` -------------------------------------

    @property
    def drain_seconds(self) -> float:
        """How long running turns may finish when it stops."""
        return self._settings().gateway.drain_seconds

    def describe_status(self) -> str:
        """Say in one line how it stands."""
        return format_status_summary(
            self.platform_states(),
            self.running_turns(),
            stopping=self.stopping.is_set(),
            restarting=self.restarting.is_set(),
        )

    async def wait_first_attempts(self) -> None:
        """Wait until each platform was connected, or could not be, for the first time."""
        await self._adapters.wait_first_attempts()

    async def ping_writer(self) -> None:
        """Wait for an answer of the thread that writes; without a store there is none to ask."""
        if self.store is not None:
            await self.store.check_responsive()

    def writer_steps(self) -> int:
        """Count what that thread has taken in hand."""
        return self.store.writer_transactions if self.store is not None else 0

    # --- the health page: see `gateway.http.app.Health` -----------------------------------------

    async def problems(self) -> Sequence[str]:
        """What keeps the gateway from doing its work."""
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
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                await self.store.check_writable()
        except StoreError as error:
            return f"store: {error}"
        except TimeoutError:
            return f"store: nothing could be written within {WRITE_TIMEOUT_SECONDS:g} s"
        return ""

    async def _disk_problem(self) -> str:
        try:
            return (await self._disk_gauge.read()).warning
        except OSError as error:
            return f"disk: {self._disk_gauge.folder}: {error.strerror}"

    def mode(self) -> str:
        """How `/readyz` says it: running, stopping, or why it runs in safe mode."""
        return safe_mode_text(self.crash_count) if self.crash_count else self.state()

    # --- figures: see `gateway.observe.metrics_page.RuntimeMetrics` ---------------------------------------------------

    def running_turns(self) -> int:
        """Turns under way."""
        return len(self.pool.running_turns()) if self.pool else 0

    def active_requests(self) -> int:
        """HTTP requests at work."""
        return self._concurrency.active_requests

    def platform_health(self) -> Mapping[str, bool]:
        """Which platforms are connected and undisturbed."""
        return {each.name: not each.problem for each in self._adapters}

    # --- commands -------------------------------------------------------------------------------

    def state(self) -> str:
        """Say it in one word."""
        if self.restarting.is_set():
            return "restarting"
        return "stopping" if self.stopping.is_set() else "running"

    def platform_states(self) -> dict[str, str]:
        """How each platform stands: `connected`, or what is wrong."""
        return {each.name: each.problem or each.state.value for each in self._adapters}

    def status(self) -> dict[str, Any]:
        """What `holdfast status` begins with."""
        return {
            "state": self.state(),
            "pid": os.getpid(),
            "safe_mode": safe_mode_text(self.crash_count) if self.crash_count else None,
            "platforms": self.platform_states(),
            "running": self.running_turns(),
        }


MAX_PROBLEM_LENGTH = 80
"""Characters of one trouble; `holdfast status` has all of it."""


CONNECTED = "connected"


def format_status_summary(
    platforms: Mapping[str, str],
    running: int,
    *,
    stopping: bool = False,
    restarting: bool = False,
) -> str:
    """Say where it answers, where it does not and why, and what it is working on.

    `platforms` says of each how it stands: `connected`, or what is wrong.
    """
    turns = f"{running} turn{'' if running == 1 else 's'}"
    if stopping:
        ending = "Restarting" if restarting else "Stopping"
        return f"{ending}; {turns} still running." if running else f"{ending}."
    well = [name for name, standing in platforms.items() if standing == CONNECTED]
    ill = [f"{name}: {_single_line(how)}" for name, how in platforms.items() if how != CONNECTED]
    first = f"Answering on {_join_names(well)}" if well else "Nobody can be reached"
    return "; ".join([first, *ill, f"{turns} running" if running else "idle"]) + "."


def _join_names(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _single_line(text: str) -> str:
    # A platform's words stand in it: a line break would begin another message to the manager.
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return (
        line.rstrip(".")
        if len(line) <= MAX_PROBLEM_LENGTH
        else f"{line[: MAX_PROBLEM_LENGTH - 1]}…"
    )
