"""Sans-IO: which calls of an answer may run side by side."""

import posixpath
from collections.abc import Iterator, Sequence

import msgspec

MOST_AT_ONCE = 8


class Place(msgspec.Struct, frozen=True):
    """How a call gets on with its neighbours."""

    beside: bool  # may run beside others that may, too
    path: str | None = None  # what it touches, see `whole_path`


def whole_path(folder: str, path: str) -> str:
    """Give the one spelling of a path, so that two can be compared. Links are not followed."""
    return posixpath.normpath(posixpath.join(folder, path))


def batches(places: Sequence[Place], most: int = MOST_AT_ONCE) -> Iterator[range]:
    """Cut a row of calls into pieces that run one after the other, in the order of the calls."""
    begin = 0
    for at, place in enumerate(places):
        batch = places[begin:at]
        if batch and (len(batch) == most or not all(_get_on(place, each) for each in batch)):
            yield range(begin, at)
            begin = at
    if places:
        yield range(begin, len(places))


def _get_on(one: Place, other: Place) -> bool:
    return one.beside and other.beside and not _overlap(one.path, other.path)


def _overlap(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return False
    return _inside(one, other) or _inside(other, one)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
