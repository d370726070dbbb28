"""Keeps what the process has of the machine's memory from growing by pieces that nobody can use.

The C library gives each thread a heap of its own, and large blocks a place between small ones once
such a block was freed. In a process that runs for years that leaves holes which are never given
back. It must be told before there are threads.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # the names are glibc's, in malloc.h
_LARGE_BLOCK_BYTES = 128 * 1024
"""What the C library begins with; told so, it does not raise it when such a block is freed."""


def limit_fragmentation() -> None:
    """One heap for all threads, and every large block apart, so that it is given back when freed."""
    try:
        change = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # another C library, which has its own ways
    change(_ARENA_MAX, 1)
    change(_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
    change(_TRIM_THRESHOLD, _LARGE_BLOCK_BYTES)
