"""Entry points of installed distributions."""

import functools
import sys
from importlib.metadata import EntryPoints, SelectableGroups, entry_points


def entry_points_of(group: str) -> EntryPoints:
    """Return the entry points of a group, as installed when the search path was read first."""
    return _read_all(tuple(sys.path)).select(group=group)


@functools.lru_cache(maxsize=1)
def _read_all(_path: tuple[str, ...]) -> SelectableGroups:
    """Cache the search through all installed distributions, because a start needs it six times."""
    return entry_points()
