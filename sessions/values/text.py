"""Sans-IO: shortened texts, parts of long texts, times and spans of time."""

from collections.abc import Iterator

from sessions.values.clock import rfc3339

_ELLIPSIS = "…"
_MINUTE, _HOUR = 60, 3600


def shorten(text: str, max_length: int) -> str:
    """Return a text of at most `max_length` characters; the end of a longer one becomes "…"."""
    return text if len(text) <= max_length else text[: max_length - 1] + _ELLIPSIS


def excerpt(text: str, max_length: int) -> str:
    """Return the beginning of a text on one line of at most `max_length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + _ELLIPSIS


def blocks_of_lines(text: str, size: int = 16_000) -> Iterator[str]:
    """Cut a text after line breaks into blocks of about `size` characters.

    `re` holds the interpreter's lock until a search ends: one search of two megabytes stops all
    threads for 40 ms.
    """
    start = 0
    while start < len(text):
        line_break = text.find("\n", start + size - 1)
        end = line_break + 1 if line_break >= 0 else len(text)
        yield text[start:end]
        start = end


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: `1 turn`, `2 turns`, `2 running turns`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_time(milliseconds: int, *, seconds: bool = True) -> str:
    """Format a timestamp in UTC: `2026-11-19 23:54:32`, or without the seconds."""
    return rfc3339(milliseconds)[: 19 if seconds else 16].replace("T", " ")


def format_span(seconds: float, *, days: bool = True) -> str:
    """Format a span in the largest unit of which it has two: `45 s`, `3 min`, `2 h`, `3 days`."""
    count = round(seconds)
    for unit, next_unit in (("s", 60), ("min", 60), ("h", 24)):
        if count < 2 * next_unit or (unit == "h" and not days):
            return f"{count} {unit}"
        count = round(count / next_unit)
    return f"{count} days"


def format_seconds(seconds: float) -> str:
    """Format a growing span to the second: `8 s`, `3 min 5 s`."""
    minutes, rest = divmod(int(seconds), _MINUTE)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_minutes(seconds: int) -> str:
    """Format a span to the minute: `less than a minute`, `20 min`, `3 h 20 min`."""
    if seconds < _MINUTE:
        return "less than a minute"
    hours, rest = divmod(seconds, _HOUR)
    minutes = rest // _MINUTE
    words = [f"{hours} h"] if hours else []
    return " ".join([*words, *([f"{minutes} min"] if minutes else [])])
