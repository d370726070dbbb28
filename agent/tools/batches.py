"""Sans-IO: which calls of an answer may run side by side."""

import posixpath
from collections.abc import Iterator, Sequence

import msgspec

MAX_PARALLEL = 8


class BatchItem(msgspec.Struct, frozen=True):
    """How a call gets on with its neighbours."""

    parallel: bool  # may run beside others that may, too
    path: str | None = None  # what it touches, see `whole_path`


def normalize_path(folder: str, path: str) -> str:
    """Give the one spelling of a path, so that two can be compared. Links are not followed."""
    return posixpath.normpath(posixpath.join(folder, path))


def split_batches(items: Sequence[BatchItem], max_size: int = MAX_PARALLEL) -> Iterator[range]:
    """Cut a row of calls into pieces that run one after the other, in the order of the calls."""
    begin = 0
    for at, place in enumerate(items):
        batch = items[begin:at]
        if batch and (
            len(batch) == max_size or not all(_can_run_together(place, each) for each in batch)
        ):
            yield range(begin, at)
            begin = at
    if items:
        yield range(begin, len(items))


def _can_run_together(one: BatchItem, other: BatchItem) -> bool:
    return one.parallel and other.parallel and not _paths_overlap(one.path, other.path)


def _paths_overlap(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return False
    return _is_inside(one, other) or _is_inside(other, one)


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
