"""A busy loop leaves its threads a chance."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from sessions.store import thread_yield
from sessions.store.thread_yield import MAX_FRUITLESS_YIELDS, ThreadYielder


class Watch(threading.Event):
    """A loop whose time passes when it is told to, and that is seen standing still."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], None]] = []
        self.stood_still = 0
        self.courtesy = ThreadYielder(lambda _, call: self.calls.append(call), self)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == thread_yield.YIELD_SECONDS
        self.stood_still += 1
        return super().wait(0)

    def late(self) -> None:
        [call] = self.calls
        self.calls.clear()
        call()


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_the_loop_blocks_for_late_threads(watch: Watch) -> None:
    watch.courtesy.on_job_submitted()
    watch.late()
    assert watch.stood_still == 1
    watch.late()
    assert watch.stood_still == 2


def test_the_loop_does_not_block_when_threads_answer(watch: Watch) -> None:
    watch.courtesy.on_job_submitted()
    watch.courtesy.on_job_submitted()
    watch.courtesy.on_jobs_done()
    watch.late()
    assert watch.stood_still == 0
    watch.late()
    assert watch.stood_still == 1


def test_nothing_is_scheduled_without_pending_jobs(watch: Watch) -> None:
    watch.courtesy.on_job_submitted()
    watch.courtesy.on_jobs_done()
    watch.courtesy.on_results_seen(1)
    watch.late()
    assert (watch.stood_still, watch.calls) == (0, [])


def test_the_loop_stops_blocking_for_a_slow_disk(watch: Watch) -> None:
    watch.courtesy.on_job_submitted()
    watch.courtesy.on_job_submitted()
    for _ in range(MAX_FRUITLESS_YIELDS + 5):
        watch.late()
    assert watch.stood_still == MAX_FRUITLESS_YIELDS
    watch.courtesy.on_results_seen(1)
    watch.late()
    assert watch.stood_still == MAX_FRUITLESS_YIELDS + 1


class Noticed(threading.Event):
    """Tells a thread that the loop stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.entered.set()
        return super().wait(timeout)


async def test_a_block_ends_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_yield, "YIELD_SECONDS", 60.0)
    standing = Noticed()
    polite = ThreadYielder(asyncio.get_running_loop().call_later, standing)

    def answer() -> None:
        assert standing.entered.wait(5)
        polite.on_jobs_done()

    thread = threading.Thread(target=answer)
    thread.start()
    polite.on_job_submitted()
    async with asyncio.timeout(5):
        await asyncio.to_thread(thread.join)
    polite.on_results_seen(1)
    assert standing.entered.is_set()
