"""Decisions about unused memory, from the memory usage at each interval."""

from gateway.process.memory import MemoryUsage, MemoryWatch

MB = 1_000_000


def collections(*resident: int, is_busy: bool = False) -> list[bool]:
    """Return at which of these sizes, one per interval, the process collects; it frees nothing."""
    watch, found = MemoryWatch(MemoryUsage(100 * MB, 0)), []
    for megabytes in resident:
        usage = MemoryUsage(megabytes * MB, 0)
        found.append(watch.must_collect(usage, is_busy=is_busy))
        if found[-1]:
            watch.on_collected(usage)
    return found


def trims(*free: int) -> list[bool]:
    """Return at which of these amounts of free memory, one per interval, the process trims."""
    watch, found = MemoryWatch(MemoryUsage(100 * MB, 0)), []
    for megabytes in free:
        usage = MemoryUsage(100 * MB, megabytes * MB)
        found.append(watch.must_trim(usage))
        if found[-1]:
            watch.on_trimmed(usage)
    return found


def test_a_process_of_constant_size_never_collects() -> None:
    assert collections(*[100] * 20) == [False] * 20
    assert collections(*[109] * 20) == [False] * 20


def test_growth_is_collected_and_a_larger_process_then_regularly() -> None:
    assert collections(*[200] * 8) == [False, True, *[False, False, True] * 2]


def test_a_process_never_collects_while_turns_run() -> None:
    assert collections(*[100, 200, 400, 800] * 3, is_busy=True) == [False] * 12


def test_memory_that_is_used_again_at_once_is_not_trimmed() -> None:
    assert trims(0, 100, 0, 100, 0) == [False] * 5


def test_free_memory_is_trimmed_once() -> None:
    assert trims(0, 100, 100, 100, 100) == [False, False, True, False, False]
    assert trims(0, 7, 7, 7) == [False] * 4


def test_memory_that_is_freed_again_is_trimmed_again() -> None:
    assert trims(0, 100, 100, 10, 100, 100) == [False, False, True, False, False, True]
