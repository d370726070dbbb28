"""Tells the service manager how the daemon stands, from its start to its end.

The watchdog is fed while the event loop turns *and* the thread that writes the database answers.
"I cannot write, the disk is full" is an answer: starting anew would mend nothing, so it keeps the
daemon alive. Only a writer from which nothing is heard, and that gets nowhere, counts as hung.
"""

import asyncio
import contextlib
import logging
from typing import Protocol

from gateway.operate.systemd.unit import stop_seconds
from gateway.process.systemd_notify import Systemd
from sessions.errors import StoreError

log = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
"""Pause between two looks at what the status line says; it is sent when it has changed."""

START_SIGN_SECONDS = 10.0
START_EXTENDED_BY = 30
LONGEST_START = 3600.0
"""How long a start may take, as when a large database is brought up to date."""

FIRST_CHANCES_WITHIN = 30.0
"""Each platform gives up a first try sooner than this by itself."""

_SECOND = 1_000_000  # the manager counts in microseconds


class Daemon(Protocol):
    """What is told about: `gateway.process.health.Condition`."""

    stopping: asyncio.Event
    restarting: asyncio.Event
    """Set together with `stopping` when this process comes back as another program."""
    ready: asyncio.Event

    @property
    def drain_seconds(self) -> float:
        """How long running turns may finish when it stops."""
        ...

    def glance(self) -> str:
        """How it stands, in one line."""
        ...

    async def all_tried(self) -> None:
        """Wait until each platform was connected, or could not be, for the first time."""
        ...

    async def ask_writer(self) -> None:
        """Wait for an answer of the thread that writes; raises `StoreError` when it cannot."""
        ...

    def writer_steps(self) -> int:
        """Count what that thread has taken in hand."""
        ...


async def tell_story(daemon: Daemon, manager: Systemd, opened: asyncio.Event) -> None:
    """Tell of start, standing and end; `opened` is set when the daemon can be asked things."""
    if not manager.listens:
        return
    await _starting(manager, opened)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_CHANCES_WITHIN):
            await daemon.all_tried()
    said = daemon.glance()
    if not daemon.stopping.is_set():
        manager.tell("READY=1", f"STATUS={said}")
    while not await _set_within(daemon.stopping, STATUS_SECONDS):
        said = _tell_change(daemon, manager, said)
    said = daemon.glance()
    manager.tell(*ending(daemon))
    while True:
        await asyncio.sleep(STATUS_SECONDS)
        said = _tell_change(daemon, manager, said)


def ending(daemon: Daemon) -> tuple[str, ...]:
    """What the manager is told of the end; that of a restart is none to it: the process stays."""
    # The unit may have been written for a shorter wait than is configured by now.
    most = stop_seconds(daemon.drain_seconds) * _SECOND
    more = (f"EXTEND_TIMEOUT_USEC={most}", f"STATUS={daemon.glance()}")
    if not daemon.restarting.is_set():
        return ("STOPPING=1", *more)
    now = int(asyncio.get_running_loop().time() * _SECOND)
    return ("RELOADING=1", f"MONOTONIC_USEC={now}", *more)


def _tell_change(daemon: Daemon, manager: Systemd, said: str) -> str:
    now = daemon.glance()
    if now != said:
        manager.tell(f"STATUS={now}")
    return now


async def _starting(manager: Systemd, opened: asyncio.Event) -> None:
    """Ask for more time while it starts; in the end the manager's own patience counts again."""
    manager.tell("STATUS=Starting.")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_START):
            while not await _set_within(opened, START_SIGN_SECONDS):
                manager.tell(f"EXTEND_TIMEOUT_USEC={START_EXTENDED_BY * _SECOND}")
    await opened.wait()


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def keep_alive(daemon: Daemon, manager: Systemd, patience: float | None = None) -> None:
    """Feed the watchdog, if there is one, as long as the daemon is alive.

    `patience` is for a writer that is silent: as long as the manager has with us. It must be longer
    than the database waits for somebody else's lock. How long a start may take is another question:
    the first sign of life is what the manager begins to count from.
    """
    if not manager.watchdog:
        return
    await daemon.ready.wait()
    clock = asyncio.get_running_loop().time
    patience = patience or 2 * manager.watchdog
    silent = False
    async with asyncio.TaskGroup() as questions:
        steps, since = daemon.writer_steps(), clock()
        asked = questions.create_task(_ask(daemon))
        while True:
            if asked.done():
                asked, since = questions.create_task(_ask(daemon)), clock()
            elif daemon.writer_steps() != steps:
                steps, since = daemon.writer_steps(), clock()
            if clock() - since < patience:
                manager.tell("WATCHDOG=1")
                silent = False
            elif not silent:
                silent = True
                log.error(
                    "the database's writer has not answered for %.0f s; "
                    "the service manager is left to start the daemon anew",
                    clock() - since,
                )
            await asyncio.sleep(manager.watchdog)


async def _ask(daemon: Daemon) -> None:
    with contextlib.suppress(StoreError):
        await daemon.ask_writer()
