"""malloc settings that limit memory fragmentation over a long uptime.

By default glibc gives each thread an arena of its own and, after the first large block is freed,
places large blocks between small ones. Both leave holes that are never returned to the system. The
settings must be made before threads exist.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_* constants of malloc.h
_LARGE_BLOCK_BYTES = 128 * 1024
"""glibc's default; setting the value explicitly stops glibc from raising it over time."""


def limit_fragmentation() -> None:
    """Use one arena for all threads, and map large blocks so that freeing them returns memory."""
    try:
        change = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    change(_ARENA_MAX, 1)
    change(_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
    change(_TRIM_THRESHOLD, _LARGE_BLOCK_BYTES)
