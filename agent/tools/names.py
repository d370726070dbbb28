"""Sans-IO: correction of misspelled tool names."""

import difflib
from collections.abc import Collection

_MAX_DISTANCE = 2  # letters
_MAX_SUGGESTIONS = 20
_MAX_NAME_LENGTH = 100  # longer than the name of any tool


def match_misspelled_name(name: str, names: Collection[str]) -> str | None:
    """Return the only name of which this one can be a misspelling; None if that is uncertain.

    More than half of the letters must be right, so that short names are not corrected wrongly.
    """
    if len(name) > _MAX_NAME_LENGTH:
        return None
    candidates = [known for known in names if edit_distance(name, known) <= _MAX_DISTANCE]
    if len(candidates) != 1:
        return None
    (match,) = candidates
    return match if 2 * edit_distance(name, match) < min(len(name), len(match)) else None


def nearest_names(name: str, names: Collection[str]) -> list[str]:
    """Return a few names, the most similar first."""
    return difflib.get_close_matches(name[:_MAX_NAME_LENGTH], names, n=_MAX_SUGGESTIONS, cutoff=0)


def edit_distance(one: str, other: str) -> int:
    """Return the Damerau-Levenshtein distance (optimal string alignment).

    For words whose lengths differ by more than a typo, the result is only that difference.
    """
    if abs(len(one) - len(other)) > _MAX_DISTANCE:
        return abs(len(one) - len(other))
    row_before: list[int] = []
    previous = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, target in enumerate(other, 1):
            costs = [previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (letter != target)]
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == target:
                costs.append(row_before[j - 2] + 1)
            row.append(min(costs))
        row_before, previous = previous, row
    return previous[-1]
