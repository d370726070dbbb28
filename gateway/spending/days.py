"""Sans-IO: days in the machine's time zone or a given one; times are milliseconds."""

import datetime as dt
import math


def midnight(now: int, zone: dt.tzinfo | None = None, *, days: int = 0) -> int:
    """Return the start of today; with `days`, of a day before or after."""
    # Apply the zone again, because the UTC offset at midnight may differ from the current one.
    day = _date(now, zone) + dt.timedelta(days=days)
    start = dt.datetime.combine(day, dt.time(), zone).astimezone(dt.UTC)
    return int(start.timestamp() * 1000)


def day_of(now: int, zone: dt.tzinfo | None = None, *, days: int = 0) -> str:
    """Return the current day as `2026-11-18`; with `days`, a day before or after."""
    return (_date(now, zone) + dt.timedelta(days=days)).isoformat()


def seconds_until_midnight(now: int, zone: dt.tzinfo | None = None) -> int:
    """Return the seconds until the next day."""
    return math.ceil((midnight(now, zone, days=1) - now) / 1000)


def _date(now: int, zone: dt.tzinfo | None) -> dt.date:
    return dt.datetime.fromtimestamp(now / 1000, dt.UTC).astimezone(zone).date()
