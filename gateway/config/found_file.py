"""Sans-IO: configuration files that are found in the current folder instead of being named.

Such a file may come with a folder of another person. It decides which programs start, where secrets
from the environment are sent, and who may command the agent. Settings that only tune the gateway
need no confirmation; every other one does, also those that later versions add.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.config.layers import format_path
from gateway.settings import KeyPath
from sessions.values.visible_text import visible_line

_ROOT = 0
_MAX_NAMED = 6  # settings in a sentence

_TUNING = re.compile(
    r"(?:gateway|sessions|limits|media)\..+"
    r"|model(?:\.fallback)?\."
    r"(?:provider|name|max_output_tokens|temperature|reasoning_effort|context_window|timeouts\..+)"
    r"|agent\.(?:max_steps|tool_timeout|show_reasoning|max_answer_characters)"
    r"|platforms\.[^.]+\.require_mention"
    r"|voice\.[a-z]+_model"
)


class FoundFile(Struct, frozen=True, kw_only=True):
    """A configuration file in the current folder."""

    path: Path  # absolute, without symbolic links
    owners: frozenset[int]  # user ids of the file, and of the link to the file
    programs: tuple[str, ...] = ()  # commands of `[[mcp]]`
    settings: tuple[str, ...] = ()  # names of the other settings that need a confirmation
    digest: str = ""  # of everything that needs a confirmation; empty: nothing does


def describe_found_file(
    path: Path, owners: frozenset[int], document: Mapping[str, Any]
) -> FoundFile:
    """Return what a person has to know about a file with this content."""
    guarded = {format_path(path): value for path, value in _guarded_values(document, ())}
    servers = document.get("mcp")
    tables = (
        [each for each in servers if isinstance(each, dict)] if isinstance(servers, list) else []
    )
    started = [each for each in tables if each.get("command")]
    encoded = msgspec.json.encode(guarded, order="sorted", enc_hook=str)
    return FoundFile(
        path=path,
        owners=owners,
        programs=tuple(map(_command_line, started)),
        settings=tuple(
            visible_line(name) for name in guarded if not (started and name.startswith("mcp["))
        ),
        digest=hashlib.sha256(encoded).hexdigest() if guarded else "",
    )


def confirmation_reason(found: FoundFile, uid: int, used: Mapping[str, str]) -> str | None:
    """Return why a person must confirm the file before its use; None if nothing is needed.

    `used` holds the digests of the files that were confirmed before, by path. Files of root are
    trusted like those of the user, because root can change everything.
    """
    if not found.owners <= {uid, _ROOT}:
        return f"{found.path} belongs to another user"
    known = used.get(str(found.path))
    if found.digest in {"", known}:
        return None
    parts = []
    if found.programs:
        parts.append(f"it starts: {', '.join(found.programs)}")
    if found.settings:
        more = len(found.settings) - _MAX_NAMED
        names = ", ".join(found.settings[:_MAX_NAMED])
        parts.append(f"it sets: {names}{f' and {more} more' if more > 0 else ''}")
    state = "was not used before" if known is None else "has changed since it was last used"
    return f"{found.path} {state}, and {', and '.join(parts)}"


def _guarded_values(node: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(node, dict) and (node or not path):
        for key, below in node.items():
            yield from _guarded_values(below, (*path, str(key)))
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        for index, below in enumerate(node):
            yield from _guarded_values(below, (*path, index))
    elif not _TUNING.fullmatch(".".join(part for part in path if isinstance(part, str))):
        yield path, node


def _command_line(server: Mapping[str, Any]) -> str:
    arguments = server.get("args")
    words = [server["command"], *(arguments if isinstance(arguments, list) else ())]
    return visible_line(" ".join(map(str, words)))
