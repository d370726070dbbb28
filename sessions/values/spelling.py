"""Sans-IO: suggestions for misspelt words."""

import difflib
from collections.abc import Iterable, Sequence

_MIN_SIMILARITY = 0.6  # of a word that can be a misspelling of another one


def similar_words(
    word: str, known: Iterable[str], *, most: int, min_similarity: float = _MIN_SIMILARITY
) -> Sequence[str]:
    """Return the known words most similar to a word, at most `most`, the best match first.

    The similarity of two words is between 0 (nothing in common) and 1 (equal).
    """
    return difflib.get_close_matches(word, known, n=most, cutoff=min_similarity)


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Find the known word closest to a misspelt one, or None when nothing is close."""
    lowered = {name.lower(): name for name in known}
    found = similar_words(word.lower(), lowered, most=1)
    longer = [name for name in lowered if len(word) > 2 and name.startswith(word.lower())]  # noqa: PLR2004 - shorter words match too much
    return lowered[(found or longer)[0]] if found or longer else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the hint to append to an error about a word: ` (did you mean …?)`, or nothing."""
    found = closest_match(word, known)
    return f" (did you mean {found}?)" if found else ""
