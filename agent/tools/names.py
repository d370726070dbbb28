"""Sans-IO: which tool a model meant by a name that does not exist."""

import difflib
from collections.abc import Collection

_MAX_DISTANCE = 2  # letters
_MAX_SUGGESTIONS = 20
_MAX_NAME_LENGTH = 100  # no tool's name is longer


def match_misspelled_name(name: str, names: Collection[str]) -> str | None:
    """Give the one name that this can be a slip of; None when that is not certain.

    In short names two letters are too much to be a slip: more than half must be right.
    """
    if len(name) > _MAX_NAME_LENGTH:
        return None
    near = [known for known in names if edit_distance(name, known) <= _MAX_DISTANCE]
    if len(near) != 1:
        return None
    (only,) = near
    return only if 2 * edit_distance(name, only) < min(len(name), len(only)) else None


def nearest_names(name: str, names: Collection[str]) -> list[str]:
    """Give a few names, the most similar first."""
    return difflib.get_close_matches(name[:_MAX_NAME_LENGTH], names, n=_MAX_SUGGESTIONS, cutoff=0)


def edit_distance(one: str, other: str) -> int:
    """Count the letters to add, drop, replace or swap with their neighbour, as far as it matters.

    Words whose lengths differ by more than a slip are not compared any further.
    """
    if abs(len(one) - len(other)) > _MAX_DISTANCE:
        return abs(len(one) - len(other))
    earlier: list[int] = []
    before = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        row = [at]
        for to, wanted in enumerate(other, 1):
            costs = [before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != wanted)]
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == wanted:
                costs.append(earlier[to - 2] + 1)
            row.append(min(costs))
        earlier, before = before, row
    return before[-1]
