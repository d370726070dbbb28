"""Sans-IO: under which names the tools of servers join ours.

A tool keeps its own name unless it clashes with another server's or with ours. All that clash
then get their server's name in front, whichever server came first, and where that is not enough
some letters that depend on nothing but server and tool.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable

LONGEST = 64  # what all model services take

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_MARK = 8  # letters

Source = tuple[str, str]
"""A server and its name for a tool."""


def joined_names(sources: Iterable[Source], taken: Collection[str] = ()) -> dict[Source, str]:
    """Give each tool a name of its own that model services take and that is not `taken`."""
    tries = dict.fromkeys(sources, 0)
    while True:
        names = {source: _name(source, number) for source, number in tries.items()}
        clashes = _clashes(names, taken)
        if not clashes:
            return names
        for several in clashes:
            # A name that nobody put anything in front of stays.
            most = max(tries[source] for source in several)
            for source in several:
                tries[source] += tries[source] == most


def _clashes(names: dict[Source, str], taken: Collection[str]) -> list[list[Source]]:
    by_name = defaultdict(list)
    for source, name in names.items():
        by_name[name].append(source)
    return [several for name, several in by_name.items() if len(several) > 1 or name in taken]


def _name(source: Source, number: int) -> str:
    server, tool = source
    if number == 0:
        return _valid(tool)
    if number == 1:
        return _valid(f"{server}_{tool}")
    return _marked(f"{server}_{tool}", f"{number}\n{server}\n{tool}")


def _valid(name: str) -> str:
    valid = _plain(name)
    return valid if len(valid) <= LONGEST else _marked(name, name)


def _marked(name: str, meaning: str) -> str:
    mark = hashlib.sha256(meaning.encode(errors="surrogatepass")).hexdigest()[:_MARK]
    return f"{_plain(name)[: LONGEST - _MARK - 1]}_{mark}"


def _plain(name: str) -> str:
    # Calls of tools whose names begin with _ are not shown to anybody: no stranger hides so.
    return _NOT_IN_NAMES.sub("_", name).lstrip("_") or "tool"
