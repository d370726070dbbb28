"""The clock as an argument, so that tests can set the time."""

import datetime as dt
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for waiting."""

    def now(self) -> int:
        """Return milliseconds since 1970 in UTC; may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease; for deadlines, meaningless after a restart."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> int:
        """Return the machine's wall time."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return the machine's monotonic time."""
        return time.monotonic()


def rfc3339(milliseconds: int) -> str:
    """Format a time as RFC 3339 in UTC with milliseconds, as used in every interface."""
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"
