"""Notifications to the service manager, and feeding of the watchdog."""

import asyncio
import contextlib
import logging
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.process.systemd_notify import SystemdNotifier, feed_watchdog, notify_lifecycle
from sessions.errors import StoreUnavailable
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.e2e.test_disk_full import fill, small_disk

KEEPALIVE = b"WATCHDOG=1"
PATIENCE = 120.0  # partly in simulated time


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)  # noqa: FBT003 - its only argument
        self.environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "60000"}

    async def hears(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await asyncio.get_running_loop().sock_recv(self.socket, 9999)

    async def hears_next(self, wanted: bytes) -> bytes:
        """Return the next notification with this prefix; earlier ones are skipped."""
        while not (word := await self.hears()).startswith(wanted):
            pass
        return word

    def heard(self) -> list[bytes]:
        """Return all unread notifications."""
        words: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                words.append(self.socket.recv(9999))
        return words


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.socket.close()


class Small:
    """A fake daemon to report on."""

    def __init__(self, store: SessionStore | None = None) -> None:
        self.stopping = asyncio.Event()
        self.restarting = asyncio.Event()
        self.ready = asyncio.Event()
        self.tried = asyncio.Event()
        self.store = store
        self.answers: list[StoreUnavailable | None] = []  # of the writer
        self.standing = "Answering."
        self.drain_seconds = 600.0

    def describe_status(self) -> str:
        return self.standing

    async def wait_first_attempts(self) -> None:
        await self.tried.wait()

    async def ping_writer(self) -> None:
        if self.store is None:
            msg = "The disk is full"
            raise StoreUnavailable(msg)
        try:
            await self.store.check_responsive()
        except StoreUnavailable as error:
            self.answers.append(error)
            raise
        self.answers.append(None)

    def writer_steps(self) -> int:
        return self.store.writer_transactions if self.store else 0


@contextlib.asynccontextmanager
async def fed(
    daemon: Small, manager: Manager, patience: float | None = None
) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(feed_watchdog(daemon, SystemdNotifier(manager.environ), patience))
        daemon.ready.set()
        yield
        task.cancel()


@contextlib.asynccontextmanager
async def told(daemon: Small, manager: Manager) -> AsyncIterator[asyncio.Event]:
    opened = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(notify_lifecycle(daemon, SystemdNotifier(manager.environ), opened))
        yield opened
        task.cancel()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await SessionStore.open(f"sqlite:///{tmp_path / 'h.db'}", clock=SystemClock())
    yield opened
    await opened.close()


async def until_logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while words not in caplog.text:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)


# --- watchdog ----------------------------------------------------------------------------------


async def test_hanging_writer_stops_the_watchdog_keepalives_until_it_answers(
    manager: Manager, store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    hold, held = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        held.set()
        hold.wait(PATIENCE)

    async with fed(Small(store), manager), asyncio.TaskGroup() as tasks:
        await manager.hears_next(KEEPALIVE)
        tasks.create_task(store.database.write(hang))
        with caplog.at_level(logging.ERROR):
            await until_logged(caplog, "writer thread has not answered")
        assert held.is_set()
        manager.heard()
        await asyncio.sleep(0.3)  # enough for ten keepalives
        assert manager.heard() == []
        hold.set()
        await manager.hears_next(KEEPALIVE)
    assert caplog.text.count("has not answered") == 1


async def test_locked_database_counts_as_an_answer(
    manager: Manager, store: SessionStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = Small(store)
    await store.database.write(lambda c: c.exec_driver_sql("PRAGMA busy_timeout=10").close())
    with contextlib.closing(sqlite3.connect(tmp_path / "h.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        async with fed(daemon, manager, patience=60):
            for _ in range(10):
                await manager.hears_next(KEEPALIVE)
    assert "another process has locked it" in str(daemon.answers[0])
    assert "has not answered" not in caplog.text


async def test_slow_writer_with_progress_is_alive(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    """Like a database server that is gone: each queued write is tried and fails."""

    class Slow(Small):
        steps = 0

        async def ping_writer(self) -> None:
            await asyncio.Event().wait()

        def writer_steps(self) -> int:
            self.steps += 1
            return self.steps // 2

    async with fed(Slow(), manager):
        for _ in range(12):  # six times the limit of one step
            await manager.hears_next(KEEPALIVE)
    assert "has not answered" not in caplog.text


async def use_up(store: SessionStore) -> None:
    while True:  # an existing block may be reused
        await store.put_value("shelf", "name", "x" * 10_000)


async def test_full_disk_counts_as_an_answer(manager: Manager, tmp_path: Path) -> None:
    with small_disk(tmp_path / "full") as folder:
        opened = await SessionStore.open(f"sqlite:///{folder / 'h.db'}", clock=SystemClock())
        fill(folder)
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            await use_up(opened)
        async with fed(Small(opened), manager):
            for _ in range(5):
                await manager.hears_next(KEEPALIVE)
        await opened.close()


async def test_unavailable_store_counts_as_an_answer(manager: Manager) -> None:
    async with fed(Small(), manager):
        for _ in range(5):
            await manager.hears_next(KEEPALIVE)


async def test_watchdog_is_not_fed_before_the_daemon_is_ready(
    manager: Manager,
) -> None:
    daemon = Small()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(feed_watchdog(daemon, SystemdNotifier(manager.environ)))
        await asyncio.sleep(0.15)  # enough for five keepalives
        assert manager.heard() == []
        daemon.ready.set()
        await manager.hears_next(KEEPALIVE)
        task.cancel()


async def test_no_keepalives_without_a_watchdog(manager: Manager) -> None:
    del manager.environ["WATCHDOG_USEC"]
    async with asyncio.timeout(PATIENCE):
        await feed_watchdog(Small(), SystemdNotifier(manager.environ))
        await notify_lifecycle(Small(), SystemdNotifier({}), asyncio.Event())
    assert manager.heard() == []


# --- life cycle --------------------------------------------------------------------------------


@pytest.mark.quick
async def test_ready_is_sent_after_the_first_attempt_of_every_platform(manager: Manager) -> None:
    daemon = Small()
    async with told(daemon, manager) as opened:
        assert await manager.hears() == b"STATUS=Starting."
        assert await manager.hears() == b"EXTEND_TIMEOUT_USEC=30000000"  # the start takes long
        opened.set()
        while manager.heard():  # noqa: ASYNC110 - drains the socket
            await asyncio.sleep(1)
        await asyncio.sleep(5)
        assert manager.heard() == []
        daemon.tried.set()
        assert await manager.hears() == b"READY=1\nSTATUS=Answering."


@pytest.mark.quick
async def test_hanging_first_attempt_does_not_delay_ready_forever(
    manager: Manager,
) -> None:
    async with told(Small(), manager) as opened:
        opened.set()
        await manager.hears_next(b"READY=1")


@pytest.mark.quick
async def test_status_is_sent_only_when_it_changes(manager: Manager) -> None:
    daemon = Small()
    daemon.tried.set()
    async with told(daemon, manager) as opened:
        opened.set()
        await manager.hears_next(b"READY=1")
        for count in range(50):
            daemon.standing = f"Answering; {count} turns running."
            await asyncio.sleep(0.1)
        await asyncio.sleep(20)
        told_of = manager.heard()
        assert told_of[-1] == b"STATUS=Answering; 49 turns running."
        assert len(told_of) <= 2
        daemon.standing = "Stopping; 1 turn still running."
        daemon.stopping.set()
        assert await manager.hears() == (
            b"STOPPING=1\nEXTEND_TIMEOUT_USEC=630000000\nSTATUS=Stopping; 1 turn still running."
        )
        daemon.standing = "Stopping."
        assert await manager.hears() == b"STATUS=Stopping."


@pytest.mark.quick
async def test_daemon_stopped_during_the_start_never_sends_ready(manager: Manager) -> None:
    daemon = Small()
    async with told(daemon, manager) as opened:
        daemon.stopping.set()
        daemon.tried.set()
        opened.set()
        assert await manager.hears() == b"STATUS=Starting."
        assert (await manager.hears()).startswith(b"STOPPING=1\n")
