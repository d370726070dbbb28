"""Time as an argument: whoever needs the hour is given a `Clock`, so that tests can set it."""

import datetime as dt
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for waiting."""

    def now(self) -> int:
        """Milliseconds since 1970 in UTC; may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow; good for deadlines, meaningless after a restart."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """See `Clock`."""
        return time.monotonic()


def rfc3339(milliseconds: int) -> str:
    """Write a moment the way every interface of ours shows it: UTC with milliseconds."""
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"
