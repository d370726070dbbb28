"""Notifications to systemd: ready, status, reload, stop and watchdog.

The watchdog is fed while the event loop runs and the store's writer thread answers. An error such
as "the disk is full" counts as an answer: a restart would not free the disk, so the daemon stays
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

_MICROSECONDS_PER_SECOND = 1_000_000
_STATUS_INTERVAL_SECONDS = 5.0
"""Interval of the check for a changed status line."""

_START_EXTENSION_INTERVAL_SECONDS = 10.0
_START_EXTENSION_SECONDS = 30
_MAX_START_SECONDS = 3600.0
"""Limit on extensions of the start timeout, for example during a migration of a large database."""

FIRST_CONNECT_SECONDS = 30.0
"""Limit on the wait for first connections; each platform's own timeout is shorter."""


class SystemdNotifier:
    """Sender to the service manager's socket; without a socket, notifications are dropped."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # "@" marks an abstract socket, whose name in the kernel begins with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        microseconds = environ.get("WATCHDOG_USEC", "")
        timeout = int(microseconds) / _MICROSECONDS_PER_SECOND if microseconds.isdecimal() else 0.0
        self.watchdog_seconds = timeout / 2
        """Seconds between two keepalives, half of the watchdog's timeout; 0 without a watchdog."""

    @property
    def is_enabled(self) -> bool:
        """True if there is a service manager to notify."""
        return bool(self._address)

    def notify(self, *lines: str) -> None:
        """Send lines such as READY=1; a failed send is ignored."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)  # noqa: FBT003 - its only argument
            try:
                manager.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                return


class ManagedDaemon(Protocol):
    """The daemon that is reported on: `gateway.process.health.GatewayHealth`."""

    stopping: asyncio.Event
    restarting: asyncio.Event
    """Set together with `stopping` for a restart."""
    ready: asyncio.Event

    @property
    def drain_seconds(self) -> float:
        """Seconds that running turns get to finish at a stop."""
        ...

    def describe_status(self) -> str:
        """Return the state in one line."""
        ...

    async def wait_first_attempts(self) -> None:
        """Wait until the first connection attempt of each platform has succeeded or failed."""
        ...

    async def ping_writer(self) -> None:
        """Wait for an answer of the store's writer thread; raises its `StoreError`."""
        ...

    def writer_steps(self) -> int:
        """Return the number of transactions that the writer thread has begun."""
        ...


async def notify_lifecycle(
    daemon: ManagedDaemon, manager: SystemdNotifier, opened: asyncio.Event
) -> None:
    """Report start, status and stop; `opened` is set once the control socket is open."""
    if not manager.is_enabled:
        return
    await _extend_start(manager, opened)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_CONNECT_SECONDS):
            await daemon.wait_first_attempts()
    status = daemon.describe_status()
    if not daemon.stopping.is_set():
        manager.notify("READY=1", f"STATUS={status}")
    while not await _is_set_within(daemon.stopping, _STATUS_INTERVAL_SECONDS):
        status = _notify_change(daemon, manager, status)
    status = daemon.describe_status()
    manager.notify(*stop_notification(daemon))
    while True:
        await asyncio.sleep(_STATUS_INTERVAL_SECONDS)
        status = _notify_change(daemon, manager, status)


def stop_notification(daemon: ManagedDaemon) -> tuple[str, ...]:
    """Return the notification of a stop; a restart is a reload to systemd, as the pid stays."""
    # The unit file may contain a shorter timeout than the current configuration needs.
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
    """Extend systemd's start timeout while the daemon starts, for `MAX_START_SECONDS` at most."""
    manager.notify("STATUS=Starting.")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MAX_START_SECONDS):
            while not await _is_set_within(opened, _START_EXTENSION_INTERVAL_SECONDS):
                manager.notify(
                    f"EXTEND_TIMEOUT_USEC={_START_EXTENSION_SECONDS * _MICROSECONDS_PER_SECOND}"
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
    """Feed the watchdog, if there is one, while the event loop and the writer thread are alive.

    `writer_timeout` is the limit for a silent writer, by default the timeout of the watchdog. The
    limit must be longer than the database waits for the lock of another process. The start is not
    covered: systemd measures from the first keepalive.
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
                    "the store's writer thread has not answered for %.0f s; "
                    "the watchdog is no longer fed, so systemd will restart the daemon",
                    clock() - since,
                )
            await asyncio.sleep(manager.watchdog_seconds)


async def _ping_writer(daemon: ManagedDaemon) -> None:
    with contextlib.suppress(StoreError):
        await daemon.ping_writer()
