"""Sans-IO: unique names for the tools of servers.

A tool keeps its name unless it clashes with the tool of another server or a built-in tool. Then all
clashing tools get the name of their server as a prefix, regardless of the order of the servers. If
they still clash, they get a suffix that depends only on server and tool.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable

MAX_NAME_LENGTH = 64  # accepted by all model services

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8

ToolSource = tuple[str, str]
"""A server, and a tool's name at that server."""


def assign_names(
    sources: Iterable[ToolSource], taken: Collection[str] = ()
) -> dict[ToolSource, str]:
    """Give each tool a unique name that model services accept and that is not in `taken`."""
    tries = dict.fromkeys(sources, 0)
    while True:
        names = {source: _candidate_name(source, number) for source, number in tries.items()}
        clashes = _clashes(names, taken)
        if not clashes:
            return names
        for group in clashes:
            # Only the most modified names change again; an original name stays.
            highest = max(tries[source] for source in group)
            for source in group:
                tries[source] += tries[source] == highest


def _clashes(names: dict[ToolSource, str], taken: Collection[str]) -> list[list[ToolSource]]:
    by_name = defaultdict(list)
    for source, name in names.items():
        by_name[name].append(source)
    return [group for name, group in by_name.items() if len(group) > 1 or name in taken]


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


def _hashed_name(name: str, source: str) -> str:
    suffix = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{_sanitize(name)[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{suffix}"


def _sanitize(name: str) -> str:
    # Calls of tools with a leading underscore are hidden from people, so no server may use one.
    return _NOT_IN_NAMES.sub("_", name).lstrip("_") or "tool"
