"""`ProcessContext`: the process that a gateway runs in."""

from collections.abc import Callable

import msgspec

from gateway.process.successor import Successor
from gateway.settings import Settings


class ProcessContext(msgspec.Struct, frozen=True, kw_only=True):
    """Restart and configuration of the process, and the number of crashes before this start."""

    successor: Successor | None = None
    """Replaces the process at a restart; None if the process cannot restart itself."""
    read_settings: Callable[[], Settings] | None = None
    """Reads the configuration again; None if the process cannot reload."""
    crash_count: int = 0
    """Crashes in a row that caused safe mode; 0 outside of safe mode."""
