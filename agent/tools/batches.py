"""Sans-IO: grouping of calls into batches that run in parallel."""

import posixpath
from collections.abc import Iterator, Sequence

import msgspec

MAX_PARALLEL = 8


class BatchItem(msgspec.Struct, frozen=True):
    """Properties of a call that decide whether it can run next to others."""

    parallel: bool  # may run in parallel with other parallel calls
    path: str | None = None  # file or folder that the call touches, see `normalize_path`


def normalize_path(folder: str, path: str) -> str:
    """Return a path in a form that can be compared; symbolic links are not resolved."""
    return posixpath.normpath(posixpath.join(folder, path))


def split_batches(items: Sequence[BatchItem], max_size: int = MAX_PARALLEL) -> Iterator[range]:
    """Split calls into consecutive batches; the calls of one batch may run in parallel."""
    begin = 0
    for at, item in enumerate(items):
        batch = items[begin:at]
        if len(batch) == max_size or not all(_can_run_together(item, other) for other in batch):
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
