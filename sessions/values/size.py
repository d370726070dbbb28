"""Byte counts, as written in a configuration and shown in a sentence."""

import re

_UNITS = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_DISPLAY_UNITS = {"GB": 1000**3, "MB": 1000**2, "KB": 1000}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?i?b)?")
_EXPECTED = 'must be an amount such as "20MB", "512 KB" or a number of bytes'


class Size(int):
    """Bytes, written `20000000`, `"20MB"`, `"1.5 GB"` or `"16MiB"`."""

    __slots__ = ()

    @classmethod
    def parse(cls, written: object) -> "Size":
        """Parse a byte count; raise `ValueError` with a one-sentence message for anything else."""
        if isinstance(written, int) and not isinstance(written, bool) and written >= 0:
            return cls(written)
        found = _PATTERN.fullmatch(written.strip().lower()) if isinstance(written, str) else None
        if found is None or found[2] == "ib":
            raise ValueError(_EXPECTED)
        return cls(round(float(found[1]) * _UNITS[found[2] or "b"]))

    def __str__(self) -> str:
        for unit, size in _DISPLAY_UNITS.items():
            if self and self % size == 0:
                return f"{self // size}{unit}"
        return int.__repr__(self)


def format_size(size: int) -> str:
    """Format a byte count for people: `640 bytes`, `120 KB`, `3.5 MB`."""
    if size == 1:
        return "1 byte"
    # A number that would be rounded up to a thousand is shown in the next unit.
    for unit, worth in _DISPLAY_UNITS.items():
        if size >= worth or round(size / (worth // 1000)) == 1000:  # noqa: PLR2004
            return f"{size / worth:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} bytes"
