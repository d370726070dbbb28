"""Memory that is returned to the system: malloc settings, and a task that returns freed memory.

By default glibc gives each thread an arena of its own and, after the first large block is freed,
places large blocks between small ones. Both leave holes that are never returned to the system. The
settings must be made before threads exist. Holes that remain nevertheless are returned by
`reclaim_memory`, and so are broken connections: these are reference cycles, which an idle process
would keep, because the garbage collector starts only after many new objects.
"""

import asyncio
import ctypes
import gc
import os
from pathlib import Path
from typing import Protocol

import msgspec

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_* constants of malloc.h
_LARGE_BLOCK_BYTES = 128 * 1024
"""glibc's default; setting the value explicitly stops glibc from raising it over time."""

_INTERVAL_SECONDS = 10.0
_MIN_FREE_BYTES = 8_000_000  # less is not worth a trim
_GROWTH = 1.1  # since the last collection, after which the next one is worthwhile
_MIN_INTERVALS = 2  # between collections
_SURPLUS = 1.2  # over the smallest size seen, at which an idle process is collected regularly
_SURPLUS_INTERVALS = 3
_STATM = Path("/proc/self/statm")
_MALLINFO2_FIELDS = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


def limit_fragmentation() -> None:
    """Use one arena for all threads, and map large blocks so that freeing them returns memory."""
    try:
        change = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    change(_ARENA_MAX, 1)
    change(_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
    change(_TRIM_THRESHOLD, _LARGE_BLOCK_BYTES)


class MemoryUsage(msgspec.Struct, frozen=True):
    """Memory of the process at a moment, in bytes."""

    resident: int
    free_in_heap: int  # freed blocks that malloc keeps


class MemoryWatch:
    """Sans-IO: decides from the memory usage at each interval what to do about unused memory."""

    def __init__(self, usage: MemoryUsage) -> None:
        self._smallest = usage.resident  # at the start, or after a collection
        self._collected = usage.resident  # after the last collection
        self._intervals = 0  # since the last collection
        self._trimmed_free = usage.free_in_heap  # at the last trim
        self._last_free = usage.free_in_heap

    def must_collect(self, usage: MemoryUsage, *, is_busy: bool) -> bool:
        """Return True if a garbage collection may free memory; never while turns run."""
        self._intervals += 1
        if is_busy or self._intervals < _MIN_INTERVALS:
            return False
        if usage.resident >= self._collected * _GROWTH:
            return True
        is_large = usage.resident >= self._smallest * _SURPLUS
        return is_large and self._intervals >= _SURPLUS_INTERVALS

    def must_trim(self, usage: MemoryUsage) -> bool:
        """Return True if much memory has been free for an interval."""
        free, self._last_free = min(usage.free_in_heap, self._last_free), usage.free_in_heap
        self._trimmed_free = min(self._trimmed_free, usage.free_in_heap)
        return free - self._trimmed_free >= _MIN_FREE_BYTES

    def on_collected(self, usage: MemoryUsage) -> None:
        """Record the usage after a collection and a trim."""
        self._collected, self._intervals = usage.resident, 0
        self._smallest = min(self._smallest, usage.resident)

    def on_trimmed(self, usage: MemoryUsage) -> None:
        """Record the usage after a trim."""
        self._trimmed_free = usage.free_in_heap


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO2_FIELDS]  # type: ignore[mutable-override] # as ctypes wants it


class _Malloc:
    """glibc's memory allocator; raises `AttributeError` or `OSError` where there is none."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        # Since glibc 2.33.
        self._read_info = ctypes.CFUNCTYPE(_MallocInfo)(("mallinfo2", library))
        self._trim = library.malloc_trim
        _STATM.stat()
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def usage(self) -> MemoryUsage:
        """Return the present usage; takes about 0.1 ms."""
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
        return MemoryUsage(pages * self._page_bytes, self._read_info().fordblks)

    def trim(self) -> None:
        """Return free memory to the system; takes milliseconds, without the interpreter's lock."""
        self._trim(0)


class MemoryHolder(Protocol):
    """The daemon: `gateway.process.health.GatewayHealth`."""

    ready: asyncio.Event

    def running_turns(self) -> int:
        """Return the number of running turns."""
        ...

    async def release_memory(self) -> None:
        """Free memory that is kept for speed only."""
        ...


async def reclaim_memory(daemon: MemoryHolder) -> None:
    """Return unused memory to the system, until cancelled; without glibc 2.33 return at once."""
    try:
        malloc = _Malloc()
    except (OSError, AttributeError):
        return
    await daemon.ready.wait()
    watch = MemoryWatch(malloc.usage())
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        usage = malloc.usage()
        collect = watch.must_collect(usage, is_busy=daemon.running_turns() > 0)
        if collect:
            gc.collect()
            await daemon.release_memory()
        if watch.must_trim(usage) or collect:
            await asyncio.to_thread(malloc.trim)
            watch.on_trimmed(malloc.usage())
        if collect:
            watch.on_collected(malloc.usage())
