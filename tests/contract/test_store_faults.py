"""The store when the database, the disk or the process fails."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sessions.errors import StoreUnavailable
from sessions.store import soundness
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import ADDRESS, damage, entry
from tests.fakes import postgres

# --- the process -----------------------------------------------------------------------------

SENDER = """
import asyncio, sys
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import entry, item, opened, started
from sessions.changes import PutItem

async def chat(store, chat):
    key, session = f"web:{chat}", f"s_{chat:02d}"
    await store.apply(opened(session, key=key))
    for number in range(1_000_000):
        name = f"{chat:02d}_{number:06d}"
        await store.accept(entry(f"i_{name}", key=key))
        print("accepted", f"i_{name}", flush=True)
        await store.apply(started(f"t_{name}", session, f"i_{name}", key=key))
        await store.apply(PutItem(item(f"o_{name}", turn=f"t_{name}")))
        print("answered", f"o_{name}", flush=True)

async def main():
    store = await SessionStore.open(sys.argv[1], clock=SystemClock())
    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(chat(store, number))

asyncio.run(main())
"""


def killed_after(url: str, lines: int) -> list[tuple[str, str]]:
    """Kill a writing process after this many lines of output; return what it had acknowledged."""
    command = [sys.executable, "-c", SENDER, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = [process.stdout.readline() for _ in range(lines)]
        os.kill(process.pid, signal.SIGKILL)
        said += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    whole = [line.split() for line in said if line.endswith("\n")]
    return [(word, name) for word, name in whole]


@pytest.mark.parametrize("lines", [1, 7, 100, 333])
async def test_acknowledged_writes_survive_a_kill(store_url: str, lines: int) -> None:
    said = await asyncio.to_thread(killed_after, store_url, lines)
    store = await SessionStore.open(store_url, clock=SystemClock())
    try:
        assert await store.database.read(soundness.find_damage) == ()
        for word, name in said:
            if word == "accepted":
                assert await store.inbox.find("telegram::1001", f"event of {name}")
        shown = {item.id for item in await store.outbox.undelivered()}
        assert shown >= {name for word, name in said if word == "answered"}
        # A turn is stored with its message and its entry, or not at all.
        for session in await store.sessions.list():
            turns = await store.turns.of_session(session.id)
            assert session.messages == len(turns) == len(await store.sessions.history(session.id))
            for turn in turns:
                assert len(await store.inbox.of_turn(turn.id)) == 1
        before = (await store.timeline(ADDRESS, 0, 1))[-1].seq
        assert await store.accept(entry("after"))
        [newest] = await store.timeline(ADDRESS, before, 10)
        assert newest.id == "after"
    finally:
        await store.close()


# --- SQLite ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0, 2048], ids=["aligned to pages", "in the middle of pages"])
async def test_a_damaged_file_is_detected(tmp_path: Path, shift: int) -> None:
    file = tmp_path / "holdfast.db"
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(store.accept(entry(f"i{number}", payload=b"x" * 500)))
    await store.close()
    size = file.stat().st_size
    with file.open("r+b") as raw:
        raw.seek(size * 3 // 4 // 4096 * 4096 + shift)  # in the area of rows
        raw.write(b"\xff" * 8192)
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock(), read_only=True)
    try:
        # SQLite lists the damage or gives up, depending on its place.
        assert re.search("malformed|damaged", "".join(await store.find_problems()))
    finally:
        await store.close()


async def test_a_damaged_row_does_not_hide_other_rows(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    for number in range(3):
        # In the middle of an overflow chain, so that the link to the next page is lost.
        payload = f"{'x' * 5_000} mark {number} {'x' * 13_000}".encode()
        await store.accept(entry(f"i{number}", payload=payload))
    await store.close()
    damage(file, b"mark 1")
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    try:
        rows = await store.timeline(ADDRESS, 0, 10)
        assert [row.id for row in rows] == ["i0", "i2"]
        assert await store.timeline(ADDRESS, rows[0].seq, 10) == rows[1:]
        assert "restore a backup" in store.damage
    finally:
        await store.close()


# --- PostgreSQL ------------------------------------------------------------------------------


@pytest.fixture
async def remote(postgres_server: postgres.Server) -> AsyncIterator[SessionStore]:
    store = await SessionStore.open(postgres_server.database(), clock=SystemClock())
    yield store
    await store.close()


async def test_writers_and_readers_reconnect_after_a_server_restart(
    postgres_server: postgres.Server, remote: SessionStore
) -> None:
    assert await remote.accept(entry("i1"))
    await remote.sessions.list()
    await asyncio.to_thread(postgres_server.stop)
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="postgresql://"):
                await remote.accept(entry("i2"))
            with pytest.raises(StoreUnavailable, match="postgresql://"):
                await remote.sessions.list()
    finally:
        await asyncio.to_thread(postgres_server.start)
    assert await remote.accept(entry("i2"))
    assert len((await remote.conversation("telegram:1001")).waiting) == 2


async def test_a_connection_lost_while_idle_causes_no_error(
    remote: SessionStore,
) -> None:
    await remote.accept(entry("i1"))
    await remote.sessions.list()
    await _end_all_connections(remote)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for number in range(2, 6):
            tasks.create_task(remote.accept(entry(f"i{number}")))
            tasks.create_task(remote.sessions.list())
    assert len((await remote.conversation("telegram:1001")).waiting) == 5


async def _end_all_connections(store: SessionStore) -> None:
    def end(connection: sa.Connection) -> None:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    engine = sa.create_engine(
        store.database._engines[0].url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool
    )
    with engine.connect() as connection:
        end(connection)
