"""How the gateway stands: told to the service manager, the health page, figures and commands.

It looks and answers; it changes nothing.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.connections.directory import Adapters
from gateway.http.concurrency import Crowd
from gateway.observe.disk import Gauge
from gateway.process.glance import glance
from gateway.process.safe_mode import safe_mode
from gateway.settings import Settings
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.store.store import SessionStore

WRITTEN_WITHIN = 2.0  # or the store counts as one that cannot be written


class Signals(msgspec.Struct, frozen=True):
    """How the gateway as a whole is told what to do, and how far it is."""

    ready: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    restarting: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set besides `stopping` when the process is to come back."""
    hurry: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Running turns are not waited for."""


class Condition:
    """Of one gateway, from before it has a store until after its end."""

    def __init__(
        self,
        signals: Signals,
        settings: Callable[[], Settings],
        adapters: Adapters,
        gauge: Gauge,
        crowd: Crowd,
    ) -> None:
        self.ready, self.stopping = signals.ready, signals.stopping
        self.restarting = signals.restarting
        self.store: SessionStore | None = None
        self.pool: SessionPool | None = None
        self.crashes = 0
        """For so many starts that crashed it runs in safe mode."""
        self._settings = settings
        self._adapters = adapters
        self._gauge = gauge
        self._crowd = crowd

    # --- the service manager: see `gateway.process.bulletin.Daemon` -------------------------------------

    @property
    def drain_seconds(self) -> float:
        """How long running turns may finish when it stops."""
        return self._settings().gateway.drain_seconds

    def glance(self) -> str:
        """Say in one line how it stands."""
        return glance(
            self.standings(),
            self.running_turns(),
            stopping=self.stopping.is_set(),
            restarting=self.restarting.is_set(),
        )

    async def all_tried(self) -> None:
        """Wait until each platform was connected, or could not be, for the first time."""
        await self._adapters.tried()

    async def ask_writer(self) -> None:
        """Wait for an answer of the thread that writes; without a store there is none to ask."""
        if self.store is not None:
            await self.store.prove_answering()

    def writer_steps(self) -> int:
        """Count what that thread has taken in hand."""
        return self.store.writer_steps if self.store is not None else 0

    # --- the health page: see `gateway.http.app.Health` -----------------------------------------

    async def problems(self) -> Sequence[str]:
        """What keeps the gateway from doing its work."""
        found = [f"{each.name}: {each.problem}" for each in self._adapters if each.problem]
        if self.stopping.is_set():
            found.append(f"gateway: {self.state()}, no new turns begin")
        async with asyncio.TaskGroup() as both:
            looks = [both.create_task(self._store_problem()), both.create_task(self._full())]
        return [*found, *(problem for look in looks if (problem := look.result()))]

    async def _store_problem(self) -> str:
        if self.store is None:
            return ""
        if self.store.damage:
            return f"store: {self.store.damage}"
        try:
            async with asyncio.timeout(WRITTEN_WITHIN):
                await self.store.prove_writable()
        except StoreError as error:
            return f"store: {error}"
        except TimeoutError:
            return f"store: nothing could be written within {WRITTEN_WITHIN:g} s"
        return ""

    async def _full(self) -> str:
        try:
            return (await self._gauge.read()).complaint
        except OSError as error:
            return f"disk: {self._gauge.folder}: {error.strerror}"

    def manner(self) -> str:
        """How `/readyz` says it: running, stopping, or why it runs in safe mode."""
        return safe_mode(self.crashes) if self.crashes else self.state()

    # --- figures: see `gateway.observe.metrics_page.House` ---------------------------------------------------

    def running_turns(self) -> int:
        """Turns under way."""
        return len(self.pool.running()) if self.pool else 0

    def requests_at_work(self) -> int:
        """HTTP requests at work."""
        return self._crowd.at_work

    def platforms_well(self) -> Mapping[str, bool]:
        """Which platforms are connected and undisturbed."""
        return {each.name: not each.problem for each in self._adapters}

    # --- commands -------------------------------------------------------------------------------

    def state(self) -> str:
        """Say it in one word."""
        if self.restarting.is_set():
            return "restarting"
        return "stopping" if self.stopping.is_set() else "running"

    def standings(self) -> dict[str, str]:
        """How each platform stands: `connected`, or what is wrong."""
        return {each.name: each.problem or each.standing.value for each in self._adapters}

    def status(self) -> dict[str, Any]:
        """What `holdfast status` begins with."""
        return {
            "state": self.state(),
            "pid": os.getpid(),
            "safe_mode": safe_mode(self.crashes) if self.crashes else None,
            "platforms": self.standings(),
            "running": self.running_turns(),
        }
