"""Sans-IO: under which names the tools of servers join ours.

A tool keeps its own name unless it clashes with another server's or with ours. All that clash
then get their server's name in front, whichever server came first, and where that is not enough
some letters that depend on nothing but server and tool.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable

MAX_NAME_LENGTH = 64  # what all model services take

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8  # letters

ToolSource = tuple[str, str]
"""A server and its name for a tool."""


def assign_names(
    sources: Iterable[ToolSource], taken: Collection[str] = ()
) -> dict[ToolSource, str]:
    """Give each tool a name of its own that model services take and that is not `taken`."""
    tries = dict.fromkeys(sources, 0)
    while True:
        names = {source: _candidate_name(source, number) for source, number in tries.items()}
        clashes = _clashes(names, taken)
        if not clashes:
            return names
        for several in clashes:
            # A name that nobody put anything in front of stays.
            most = max(tries[source] for source in several)
            for source in several:
                tries[source] += tries[source] == most


def _clashes(names: dict[ToolSource, str], taken: Collection[str]) -> list[list[ToolSource]]:
    by_name = defaultdict(list)
    for source, name in names.items():
        by_name[name].append(source)
    return [several for name, several in by_name.items() if len(several) > 1 or name in taken]


def _candidate_name(source: ToolSource, number: int) -> str:
    server, tool = source
    if number == 0:
        return _valid_name(tool)
    if number == 1:
        return _valid_name(f"{server}_{tool}")
    return _hashed_name(f"{server}_{tool}", f"{number}\n{server}\n{tool}")


def _valid_name(name: str) -> str:
    valid = _sanitize(name)
    return valid if len(valid) <= MAX_NAME_LENGTH else _hashed_name(name, name)


def _hashed_name(name: str, meaning: str) -> str:
    mark = hashlib.sha256(meaning.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{_sanitize(name)[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{mark}"


def _sanitize(name: str) -> str:
    # Calls of tools whose names begin with _ are not shown to anybody: no stranger hides so.
    return _NOT_IN_NAMES.sub("_", name).lstrip("_") or "tool"
