"""Sans-IO: names of tools in calls: repair of the notation, and suggestions for unknown names."""

import string
from collections.abc import Collection, Sequence

from sessions.values.spelling import similar_words

_MAX_SUGGESTIONS = 20
_MAX_NAME_LENGTH = 100  # longer than the name of any tool

_FOLDED = str.maketrans(string.ascii_uppercase + "-", string.ascii_lowercase + "_")


def repair_name(name: str, names: Collection[str], reserved: Collection[str] = ()) -> str | None:
    """Return the only name that differs from this one in letter case, `-` and `_` alone, or None.

    Letters are never repaired: `lock_door` is no misspelling of `unlock_door`. `reserved` holds the
    names of known tools that cannot be called now. Another tool never replaces one of these.
    """
    folded = name.translate(_FOLDED)
    known = {*names, *reserved}
    candidates = [other for other in known if other.translate(_FOLDED) == folded]
    if len(candidates) != 1 or candidates[0] not in names:
        return None
    return candidates[0]


def nearest_names(name: str, names: Collection[str]) -> Sequence[str]:
    """Return a few names, the most similar first."""
    return similar_words(name[:_MAX_NAME_LENGTH], names, most=_MAX_SUGGESTIONS, min_similarity=0)
