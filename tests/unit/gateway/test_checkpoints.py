"""The text of running turns is stored within a second, all turns together."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.turns.checkpoints import TextCheckpoints
from sessions.changes import SetRequest
from sessions.errors import StoreCorrupt
from sessions.store.store import SessionStore
from tests.contract.store_kit import KEY, LEAF, damage, opened, started
from tests.fakes.quick_time import clock_here

pytestmark = pytest.mark.quick

COUNT = 5


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    made = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=clock_here())
    for number in range(COUNT):
        key = f"{KEY}:{number}"
        await made.apply(
            opened(f"s{number}", key=key), started(f"t{number}", f"s{number}", key=key)
        )
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def running(store: SessionStore) -> AsyncIterator[TextCheckpoints]:
    checkpoints = TextCheckpoints(store)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(checkpoints.run())
        yield checkpoints
        task.cancel()


async def texts(store: SessionStore) -> list[str]:
    return [turn.partial for turn in await store.turns.running()]


async def test_text_is_stored_within_a_second_and_all_turns_share_one_write(
    store: SessionStore,
) -> None:
    async with running(store) as checkpoints:
        counts = store.count_queries()
        for number in range(1, COUNT):
            checkpoints.mark(f"t{number}", lambda number=number: f"text {number}")  # type: ignore[misc]
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.8)  # a second after the first text
        assert counts.commits == 1
        assert await texts(store) == ["", "text 1", "text 2", "text 3", "text 4"]
        counts = store.count_queries()
        await asyncio.sleep(60)
        assert counts.commits == 0, "a turn whose text has not grown was written again"


async def test_the_newest_text_is_stored_at_once_if_that_is_urgent(store: SessionStore) -> None:
    async with running(store) as checkpoints:
        text = "a"
        checkpoints.mark("t0", lambda: text)
        text = "a long text"
        checkpoints.mark("t0", lambda: text, urgent=True)
        await asyncio.sleep(0.1)
        assert (await texts(store))[0] == "a long text"


async def test_a_discarded_turn_is_not_written(store: SessionStore) -> None:
    async with running(store) as checkpoints:
        counts = store.count_queries()
        checkpoints.mark("t0", lambda: "text")
        checkpoints.discard("t0")
        await asyncio.sleep(2)
        assert counts.commits == 0


async def test_a_damaged_row_does_not_prevent_the_checkpoints_of_other_turns(
    store: SessionStore, tmp_path: Path
) -> None:
    for number in range(COUNT):  # at most two turns fit into a page
        words = "mark" if number == 1 else "none"
        request = SetRequest(f"t{number}", f"s{number}", "hello", words + "x" * 1_500)
        await store.apply(request)
    await store.close()
    damage(tmp_path / "holdfast.db", b"mark", kind=LEAF)
    again = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=clock_here())
    try:
        async with running(again) as checkpoints:
            for number in range(COUNT):
                checkpoints.mark(f"t{number}", lambda number=number: f"text {number}")  # type: ignore[misc]
            await asyncio.sleep(1)
        with pytest.raises(StoreCorrupt):
            await again.turns.get("t1")
        turn = await again.turns.get(f"t{COUNT - 1}")
        assert turn
        assert turn.partial == f"text {COUNT - 1}"
    finally:
        await again.close()


async def test_a_failed_checkpoint_is_repeated_although_the_text_has_not_grown(
    store: SessionStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(store) as checkpoints:
        with contextlib.closing(sqlite3.connect(tmp_path / "holdfast.db")) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE UPDATE ON turns"
                " BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
            )
            checkpoints.mark("t0", lambda: "text")
            await asyncio.sleep(5)
            assert caplog.text.count("the texts of 1 running turns are not stored yet") == 1
            other.execute("DROP TRIGGER full")
        await asyncio.sleep(1)
        assert (await texts(store))[0] == "text"
