"""Sans-IO: suggestions for misspelt words."""

import difflib
from collections.abc import Iterable


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Find the known word closest to a misspelt one, or None when nothing is close."""
    lowered = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    longer = [name for name in lowered if len(word) > 2 and name.startswith(word.lower())]  # noqa: PLR2004 - shorter words match too much
    return lowered[(found or longer)[0]] if found or longer else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the hint to append to an error about a word: ` (did you mean …?)`, or nothing."""
    found = closest_match(word, known)
    return f" (did you mean {found}?)" if found else ""
