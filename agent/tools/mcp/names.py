"""Sans-IO: unique names for the tools of servers.

A tool has the name of its server as a prefix, whether or not another tool has the same name. So its
name does not change when a server is added. If two names are still equal, both get a suffix that
depends only on server and tool.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

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


def earlier_names(names: Mapping[ToolSource, str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return the names without a prefix that older versions gave, each with its present name.

    Histories, and turns that an upgrade interrupted, contain calls with such names. A name that was
    not unique had a prefix, so only the unique ones are returned.
    """
    found = defaultdict(list)
    for (_, tool), name in names.items():
        found[_valid_name(tool)].append(name)
    present = {*names.values(), *taken}
    return {old: new[0] for old, new in found.items() if len(new) == 1 and old not in present}


def _clashes(names: dict[ToolSource, str], taken: Collection[str]) -> list[list[ToolSource]]:
    by_name = defaultdict(list)
    for source, name in names.items():
        by_name[name].append(source)
    return [group for name, group in by_name.items() if len(group) > 1 or name in taken]


def _candidate_name(source: ToolSource, number: int) -> str:
    server, tool = source
    if number == 0:
        return _valid_name(f"{server}_{tool}")
    # Older versions began with 2, and the names must stay the same.
    return _hashed_name(f"{server}_{tool}", f"{number + 1}\n{server}\n{tool}")


def _valid_name(name: str) -> str:
    valid = _sanitize(name)
    return valid if len(valid) <= MAX_NAME_LENGTH else _hashed_name(name, name)


def _hashed_name(name: str, source: str) -> str:
    suffix = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{_sanitize(name)[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{suffix}"


def _sanitize(name: str) -> str:
    # Calls of tools with a leading underscore are hidden from people, so no server may use one.
    return _NOT_IN_NAMES.sub("_", name).lstrip("_") or "tool"
