"""Spans of time, as written in a configuration."""

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_EXPECTED = 'must be a span of time such as "24h", "1h 30m" or a number of seconds'


class Duration(float):
    """Seconds, written `90`, `"90s"`, `"24h"` or `"1h 30m"`."""

    __slots__ = ()

    @classmethod
    def parse(cls, written: object) -> "Duration":
        """Parse a span.

        Raise `ValueError` with a one-sentence message if the value is not a span.
        """
        seconds = _parse_seconds(written)
        if not 0 <= seconds < float("inf"):
            raise ValueError(_EXPECTED)
        return cls(seconds)

    def __str__(self) -> str:
        rest, words = float(self), []
        for unit, size in sorted(_UNITS.items(), key=lambda item: -item[1]):
            count, rest = divmod(rest, size) if unit != "s" else (rest, 0)
            if count:
                words.append(f"{count:g}{unit}")
        return " ".join(words) or "0s"


def _parse_seconds(written: object) -> float:
    if isinstance(written, (int, float)) and not isinstance(written, bool):
        return float(written)
    bare = written.strip().lower() if isinstance(written, str) else ""
    parts = _PART.findall(bare)
    if not parts or _PART.sub("", bare).strip():
        raise ValueError(_EXPECTED)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
