"""A busy event loop yields to starved threads."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from sessions.store import thread_yield
from sessions.store.thread_yield import MAX_FRUITLESS_YIELDS, ThreadYielder


class FakeLoop(threading.Event):
    """A manually advanced loop that counts how often it blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], None]] = []
        self.blocks = 0
        self.yielder = ThreadYielder(lambda _, call: self.calls.append(call), self)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == thread_yield.YIELD_SECONDS
        self.blocks += 1
        return super().wait(0)

    def run_check(self) -> None:
        [call] = self.calls
        self.calls.clear()
        call()


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


def test_the_loop_blocks_for_late_threads(loop: FakeLoop) -> None:
    loop.yielder.on_job_submitted()
    loop.run_check()
    assert loop.blocks == 1
    loop.run_check()
    assert loop.blocks == 2


def test_the_loop_does_not_block_when_threads_answer(loop: FakeLoop) -> None:
    loop.yielder.on_job_submitted()
    loop.yielder.on_job_submitted()
    loop.yielder.on_jobs_done()
    loop.run_check()
    assert loop.blocks == 0
    loop.run_check()
    assert loop.blocks == 1


def test_nothing_is_scheduled_without_pending_jobs(loop: FakeLoop) -> None:
    loop.yielder.on_job_submitted()
    loop.yielder.on_jobs_done()
    loop.yielder.on_results_seen(1)
    loop.run_check()
    assert (loop.blocks, loop.calls) == (0, [])


def test_the_loop_stops_blocking_for_a_slow_disk(loop: FakeLoop) -> None:
    loop.yielder.on_job_submitted()
    loop.yielder.on_job_submitted()
    for _ in range(MAX_FRUITLESS_YIELDS + 5):
        loop.run_check()
    assert loop.blocks == MAX_FRUITLESS_YIELDS
    loop.yielder.on_results_seen(1)
    loop.run_check()
    assert loop.blocks == MAX_FRUITLESS_YIELDS + 1


class BlockSignal(threading.Event):
    """Signals a thread that the loop has blocked."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.entered.set()
        return super().wait(timeout)


async def test_a_block_ends_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_yield, "YIELD_SECONDS", 60.0)
    signal = BlockSignal()
    yielder = ThreadYielder(asyncio.get_running_loop().call_later, signal)

    def answer() -> None:
        assert signal.entered.wait(5)
        yielder.on_jobs_done()

    thread = threading.Thread(target=answer)
    thread.start()
    yielder.on_job_submitted()
    async with asyncio.timeout(5):
        await asyncio.to_thread(thread.join)
    yielder.on_results_seen(1)
    assert signal.entered.is_set()
