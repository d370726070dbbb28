"""The database threads: shared commits, failures, cancellation, shutdown."""

import asyncio
import contextlib
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sessions.errors import StoreError, StoreUnavailable
from sessions.store import engine, prepare
from sessions.store.database import MAX_BATCH_JOBS, READER_THREADS, Database
from sessions.store.engine import parse_url
from sessions.store.schema import shelves
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock

FILE = "holdfast.db"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    where = parse_url(f"sqlite:///{tmp_path / FILE}")
    await asyncio.to_thread(prepare.prepare, where)
    database = Database(where)
    yield database
    database.close()


def put(connection: Connection, name: str, value: str = "") -> str:
    connection.execute(sa.insert(shelves).values(shelf="s", name=name, value=value))
    return name


def putting(number: int) -> Callable[[Connection], str]:
    return lambda connection: put(connection, f"{number:04d}")


def names(connection: Connection) -> list[str]:
    return list(connection.scalars(sa.select(shelves.c.name).order_by(shelves.c.name)))


class Gate:
    """Blocks a thread in the middle of a job until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, connection: Connection) -> None:
        self.reached.set()
        assert self._open.wait(5)

    def open(self) -> None:
        self._open.set()


@contextlib.asynccontextmanager
async def writer_held(database: Database) -> AsyncIterator[asyncio.TaskGroup]:
    """Hold the writer, so that writes in this block share one transaction at its end."""
    gate = Gate()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(database.write(gate))
        await asyncio.to_thread(gate.reached.wait, 5)
        yield tasks
        await asyncio.sleep(0)  # let the tasks start
        gate.open()


async def test_writes_waiting_together_share_one_commit(database: Database) -> None:
    counts = database.count_queries()
    async with writer_held(database) as tasks:
        for number in range(20):
            tasks.create_task(database.write(putting(number)))
    assert counts.commits == 2  # the job that held the writer, and all waiting ones together
    assert len(await database.read(names)) == 20


async def test_a_batch_has_a_maximum_size(database: Database) -> None:
    counts = database.count_queries()
    async with writer_held(database) as tasks:
        for number in range(MAX_BATCH_JOBS + 1):
            tasks.create_task(database.write(putting(number)))
    assert counts.commits == 3
    assert len(await database.read(names)) == MAX_BATCH_JOBS + 1


async def test_a_failed_write_does_not_fail_others_in_its_transaction(
    database: Database,
) -> None:
    def bad(connection: Connection) -> None:
        put(connection, "half")
        msg = "no"
        raise ValueError(msg)

    results: dict[str, str] = {}

    async def write(name: str) -> None:
        results[name] = await database.write(lambda c: put(c, name))

    async def fail() -> None:
        with pytest.raises(ValueError, match="no"):
            await database.write(bad)
        results["bad"] = "raised"

    async with writer_held(database) as tasks:
        tasks.create_task(write("a"))
        tasks.create_task(fail())
        tasks.create_task(write("b"))
    assert results == {"a": "a", "bad": "raised", "b": "b"}
    assert await database.read(names) == ["a", "b"]


async def test_a_write_failing_alone_is_not_repeated(database: Database) -> None:
    runs = 0

    def bad(connection: Connection) -> None:
        nonlocal runs
        runs += 1
        put(connection, "half")
        put(connection, "half")

    with pytest.raises(StoreError, match="refuses it"):
        await database.write(bad)
    assert runs == 1
    assert await database.read(names) == []


async def test_a_cancelled_write_in_the_queue_is_still_done(
    database: Database,
) -> None:
    async with writer_held(database) as tasks:
        left = tasks.create_task(database.write(lambda c: put(c, "left behind")))
        tasks.create_task(database.write(lambda c: put(c, "kept")))
        await asyncio.sleep(0)
        left.cancel()
    assert sorted(await database.read(names)) == ["kept", "left behind"]


async def test_a_cancelled_running_write_is_stored_completely(database: Database) -> None:
    gate = Gate()

    def slow(connection: Connection) -> None:
        put(connection, "first")
        gate(connection)
        put(connection, "second")

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(database.write(slow))
        await asyncio.to_thread(gate.reached.wait, 5)
        task.cancel()
        gate.open()
    await database.write(lambda c: put(c, "third"))
    assert await database.read(names) == ["first", "second", "third"]


async def test_a_read_sees_every_returned_write(database: Database) -> None:
    for number in range(30):
        await database.write(putting(number))
        assert len(await database.read(names)) == number + 1


async def test_a_read_sees_one_snapshot(database: Database) -> None:
    gate = Gate()

    def twice(connection: Connection) -> tuple[list[str], list[str]]:
        before = names(connection)
        gate(connection)
        return before, names(connection)

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(database.read(twice))
        await asyncio.to_thread(gate.reached.wait, 5)
        await database.write(lambda c: put(c, "new"))
        gate.open()
    assert reading.result() == ([], [])
    assert await database.read(names) == ["new"]


async def test_a_slow_read_does_not_block_other_reads(database: Database) -> None:
    gates = [Gate() for _ in range(READER_THREADS - 1)]
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for gate in gates:
            tasks.create_task(database.read(gate))
            await asyncio.to_thread(gate.reached.wait, 5)
        assert await database.read(names) == []
        for gate in gates:
            gate.open()


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await database.read(lambda c: put(c, "a"))
    assert await database.read(names) == []


async def test_closing_finishes_queued_work_and_refuses_more(tmp_path: Path) -> None:
    where = parse_url(f"sqlite:///{tmp_path / FILE}")
    prepare.prepare(where)
    database = Database(where)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(database.write(putting(number)))
        await asyncio.sleep(0)
        database.close()
    database.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        await database.write(lambda c: put(c, "late"))
    with pytest.raises(StoreUnavailable, match="was closed"):
        await database.read(names)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as after:
        assert after.execute("SELECT count(*) FROM shelves").fetchone() == (10,)


def test_threads_survive_a_closed_event_loop(tmp_path: Path) -> None:
    where = parse_url(f"sqlite:///{tmp_path / FILE}")
    prepare.prepare(where)
    gate = Gate()

    async def leave() -> Database:
        database = Database(where)
        waiting = asyncio.get_running_loop().create_task(database.write(gate))
        await asyncio.to_thread(gate.reached.wait, 5)
        waiting.cancel()
        return database

    with asyncio.Runner() as runner:
        database = runner.run(leave())
    gate.open()
    database.close()
    assert not any(worker._thread.is_alive() for worker in database._workers)


async def test_a_busy_loop_blocks_for_a_late_thread(
    database: Database,
) -> None:
    async with writer_held(database) as tasks:
        while not database._thread_yielder._fruitless_yields:  # noqa: ASYNC110 - the loop must stay busy
            await asyncio.sleep(0)
        left = tasks.create_task(database.write(putting(1)))
        await asyncio.sleep(0)
        left.cancel()
    await database.write(names)
    assert (database._thread_yielder._fruitless_yields, database._thread_yielder._pending_jobs) == (
        0,
        0,
    )


# --- failures --------------------------------------------------------------------------------


async def test_a_full_disk_is_reported_and_recovers(database: Database) -> None:
    await database.write(lambda c: c.exec_driver_sql("PRAGMA max_page_count=60"))
    with pytest.raises(StoreUnavailable, match=r"holdfast\.db cannot be used: the disk is full"):
        await database.write(lambda c: put(c, "large", "x" * 1_000_000))
    await database.write(lambda c: c.exec_driver_sql("PRAGMA max_page_count=1000000"))
    await database.write(lambda c: put(c, "large", "x" * 1_000_000))
    assert await database.read(names) == ["large"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOCK_TIMEOUT_SECONDS", 0.05)


@pytest.mark.usefixtures("impatient")
async def test_a_lock_of_another_process_is_reported_and_recovers(tmp_path: Path) -> None:
    where = parse_url(f"sqlite:///{tmp_path / FILE}")
    prepare.prepare(where)
    database = Database(where)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another process has locked it"):
            await database.write(lambda c: put(c, "a"))
        other.execute("COMMIT")
    await database.write(lambda c: put(c, "b"))
    assert await database.read(names) == ["b"]
    database.close()


async def test_a_failed_commit_fails_all_writes_in_it(database: Database) -> None:
    def orphan(connection: Connection) -> None:
        # This constraint is checked at the commit, not before.
        connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
        connection.exec_driver_sql(
            "INSERT INTO messages (session_id, turn_id, at, body) VALUES ('none', 't', 1, '')"
        )

    with pytest.raises(StoreError, match="refuses it"):
        await database.write(orphan)
    await database.write(lambda c: put(c, "a"))
    assert await database.read(names) == ["a"]
    assert await database.read(lambda c: c.scalar(sa.text("SELECT count(*) FROM messages"))) == 0


async def test_a_database_that_cannot_be_opened_fails_every_request(
    tmp_path: Path,
) -> None:
    database = Database(parse_url(f"sqlite:///{tmp_path / 'nowhere' / FILE}"))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="it cannot be opened"):
            await database.read(names)
        with pytest.raises(StoreUnavailable, match="it cannot be opened"):
            await database.write(lambda c: put(c, "a"))
    database.close()


async def test_connections_use_the_expected_pragmas(database: Database) -> None:
    def pragmas(connection: Connection) -> dict[str, int | str]:
        words = "journal_mode synchronous foreign_keys cache_size query_only mmap_size busy_timeout"
        return {
            word: connection.exec_driver_sql(f"PRAGMA {word}").scalar_one()
            for word in (*words.split(), "journal_size_limit")
        }

    full, wal = 2, "wal"
    writing, reading = await database.write(pragmas), await database.read(pragmas)
    assert writing == {
        "journal_mode": wal,
        "synchronous": full,
        "foreign_keys": 1,
        "cache_size": -2000,
        "query_only": 0,
        "mmap_size": 0,
        "busy_timeout": 5000,
        "journal_size_limit": 64 * 1024 * 1024,
    }
    assert (reading["query_only"], reading["cache_size"], reading["mmap_size"]) == (1, -1000, 0)


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    where = parse_url(f"sqlite:///{folder / FILE}")
    prepare.prepare(where)
    database = Database(where)
    await database.write(lambda c: put(c, "a"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [FILE, f"{FILE}-shm", f"{FILE}-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    database.close()


async def test_a_database_that_does_not_finish_delays_the_end_by_the_timeout_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await SessionStore.open(f"sqlite:///{tmp_path / FILE}", clock=SystemClock())
    gate = Gate()
    async with asyncio.TaskGroup() as tasks:
        stuck = tasks.create_task(store.database.read(gate))
        try:
            await asyncio.to_thread(gate.reached.wait, 5)
            await store.close(timeout_seconds=0.05)
            assert not stuck.done()
            assert "did not finish within 0.05 s" in caplog.text
        finally:
            gate.open()
    await store.close()
