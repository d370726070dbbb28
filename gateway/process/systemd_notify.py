"""Notifications to the service manager: ready, status, reload, stop and the watchdog.

The watchdog is fed while the event loop turns and the thread that writes the database answers. An
error such as "the disk is full" is an answer: a restart would not free the disk, so the daemon stays
alive. Only a writer that neither answers nor makes progress counts as hung.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping
from typing import Protocol

from gateway.settings import max_stop_seconds
from sessions.errors import StoreError

log = logging.getLogger(__name__)


_MICROSECONDS_PER_SECOND = 1_000_000  # the manager counts in microseconds


class SystemdNotifier:
    """The service manager's socket; without one, everything said is said to nobody."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is not a file: in the kernel it begins with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        microseconds = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds = int(microseconds) / 2_000_000 if microseconds.isdecimal() else 0.0
        """Seconds between two signs of life, twice as often as asked for; 0: none are wanted."""

    @property
    def is_enabled(self) -> bool:
        """Whether anybody is told."""
        return bool(self._address)

    def notify(self, *lines: str) -> None:
        """Send lines such as READY=1; a manager that does not listen is no reason to stop."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)  # noqa: FBT003 - its only argument
            try:
                manager.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                return


STATUS_INTERVAL_SECONDS = 5.0
"""Pause between two looks at what the status line says; it is sent when it has changed."""


START_EXTENSION_INTERVAL_SECONDS = 10.0


START_EXTENSION_SECONDS = 30


MAX_START_SECONDS = 3600.0
"""How long a start may take, as when a large database is brought up to date."""


FIRST_CONNECT_SECONDS = 30.0
"""Each platform gives up a first try sooner than this by itself."""


class ManagedDaemon(Protocol):
    """What is told about: `gateway.process.health.GatewayHealth`."""

    stopping: asyncio.Event
    restarting: asyncio.Event
    """Set together with `stopping` when this process comes back as another program."""
    ready: asyncio.Event

    @property
    def drain_seconds(self) -> float:
        """How long running turns may finish when it stops."""
        ...

    def describe_status(self) -> str:
        """How it stands, in one line."""
        ...

    async def wait_first_attempts(self) -> None:
        """Wait until each platform was connected, or could not be, for the first time."""
        ...

    async def ping_writer(self) -> None:
        """Wait for an answer of the thread that writes; raises `StoreError` when it cannot."""
        ...

    def writer_steps(self) -> int:
        """Count what that thread has taken in hand."""
        ...


async def notify_lifecycle(
    daemon: ManagedDaemon, manager: SystemdNotifier, opened: asyncio.Event
) -> None:
    """Tell of start, standing and end; `opened` is set when the daemon can be asked things."""
    if not manager.is_enabled:
        return
    await _extend_start(manager, opened)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_CONNECT_SECONDS):
            await daemon.wait_first_attempts()
    said = daemon.describe_status()
    if not daemon.stopping.is_set():
        manager.notify("READY=1", f"STATUS={said}")
    while not await _is_set_within(daemon.stopping, STATUS_INTERVAL_SECONDS):
        said = _notify_change(daemon, manager, said)
    said = daemon.describe_status()
    manager.notify(*stop_notification(daemon))
    while True:
        await asyncio.sleep(STATUS_INTERVAL_SECONDS)
        said = _notify_change(daemon, manager, said)


def stop_notification(daemon: ManagedDaemon) -> tuple[str, ...]:
    """What the manager is told of the end; that of a restart is none to it: the process stays."""
    # The unit may have been written for a shorter wait than is configured by now.
    most = max_stop_seconds(daemon.drain_seconds) * _MICROSECONDS_PER_SECOND
    more = (f"EXTEND_TIMEOUT_USEC={most}", f"STATUS={daemon.describe_status()}")
    if not daemon.restarting.is_set():
        return ("STOPPING=1", *more)
    now = int(asyncio.get_running_loop().time() * _MICROSECONDS_PER_SECOND)
    return ("RELOADING=1", f"MONOTONIC_USEC={now}", *more)


def _notify_change(daemon: ManagedDaemon, manager: SystemdNotifier, previous: str) -> str:
    now = daemon.describe_status()
    if now != previous:
        manager.notify(f"STATUS={now}")
    return now


async def _extend_start(manager: SystemdNotifier, opened: asyncio.Event) -> None:
    """Ask for more time while it starts; in the end the manager's own patience counts again."""
    manager.notify("STATUS=Starting.")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(MAX_START_SECONDS):
            while not await _is_set_within(opened, START_EXTENSION_INTERVAL_SECONDS):
                manager.notify(
                    f"EXTEND_TIMEOUT_USEC={START_EXTENSION_SECONDS * _MICROSECONDS_PER_SECOND}"
                )
    await opened.wait()


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def feed_watchdog(
    daemon: ManagedDaemon, manager: SystemdNotifier, writer_timeout: float | None = None
) -> None:
    """Feed the watchdog, if there is one, as long as the daemon is alive.

    `patience` is for a writer that is silent: as long as the manager has with us. It must be longer
    than the database waits for somebody else's lock. How long a start may take is another question:
    the first sign of life is what the manager begins to count from.
    """
    if not manager.watchdog_seconds:
        return
    await daemon.ready.wait()
    clock = asyncio.get_running_loop().time
    writer_timeout = writer_timeout or 2 * manager.watchdog_seconds
    silent = False
    async with asyncio.TaskGroup() as questions:
        steps, since = daemon.writer_steps(), clock()
        asked = questions.create_task(_ping_writer(daemon))
        while True:
            if asked.done():
                asked, since = questions.create_task(_ping_writer(daemon)), clock()
            elif daemon.writer_steps() != steps:
                steps, since = daemon.writer_steps(), clock()
            if clock() - since < writer_timeout:
                manager.notify("WATCHDOG=1")
                silent = False
            elif not silent:
                silent = True
                log.error(
                    "the database's writer has not answered for %.0f s; "
                    "the service manager is left to start the daemon anew",
                    clock() - since,
                )
            await asyncio.sleep(manager.watchdog_seconds)


async def _ping_writer(daemon: ManagedDaemon) -> None:
    with contextlib.suppress(StoreError):
        await daemon.ping_writer()
