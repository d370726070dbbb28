"""Sans-IO: days, by the machine's own time unless a zone is given; moments are milliseconds."""

import datetime as dt
import math

_MINUTE, _HOUR = 60, 3600


def midnight(now: int, zone: dt.tzinfo | None = None, *, days: int = 0) -> int:
    """Give the moment at which today began; with `days`, a day before or after."""
    # Told anew which zone it is: the offset at midnight may have been another one than now.
    day = _date(now, zone) + dt.timedelta(days=days)
    begun = dt.datetime.combine(day, dt.time(), zone).astimezone(dt.UTC)
    return int(begun.timestamp() * 1000)


def day_of(now: int, zone: dt.tzinfo | None = None, *, days: int = 0) -> str:
    """Name the day that it is, `2026-11-18`; with `days`, one before or after."""
    return (_date(now, zone) + dt.timedelta(days=days)).isoformat()


def seconds_until_midnight(now: int, zone: dt.tzinfo | None = None) -> int:
    """Count the seconds until the next day begins."""
    return math.ceil((midnight(now, zone, days=1) - now) / 1000)


def format_span(seconds: int) -> str:
    """Write a span for people: `3 h 20 min`."""
    if seconds < _MINUTE:
        return "less than a minute"
    hours, rest = divmod(seconds, _HOUR)
    minutes = rest // _MINUTE
    words = [f"{hours} h"] if hours else []
    return " ".join([*words, *([f"{minutes} min"] if minutes else [])])


def _date(now: int, zone: dt.tzinfo | None) -> dt.date:
    return dt.datetime.fromtimestamp(now / 1000, dt.UTC).astimezone(zone).date()
