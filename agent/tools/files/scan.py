"""Search for a pattern in files, using only the standard library.

Matching a regular expression can take practically forever and blocks all threads of the process
meanwhile. So this module is also a program, which can be killed at any time. The program reads a
request from standard input and writes one hit per line.
"""

import contextlib
import fnmatch
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

MAX_FILE_BYTES = 10_000_000  # larger files are skipped
_MAX_LINE_LENGTH = 20_000  # characters per line that are searched
_MAX_EXCERPT_LENGTH = 400  # characters per line in the result
_SKIPPED_FOLDERS = frozenset({".git", ".holdfast", ".venv", "__pycache__", "node_modules"})
_TEMPORARY_PREFIX = ".holdfast-"  # temporary files of `agent.tools.confine`
_HEAD_BYTES = 8_192
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_MEMORY_BYTES = 1_000_000_000

FindInLine = Callable[[str], tuple[int, int] | None]
"""Returns the span of the match in a line, or None."""


class ScanStats:
    """Counts of searched and skipped files."""

    def __init__(self, files: int = 0, skipped: int = 0) -> None:
        self.files = files
        self.skipped = skipped  # too large or not readable


class Hit(NamedTuple):
    """A line with a match."""

    path: str
    line: int
    text: str


class ScanRequest(NamedTuple):
    """The request to the separate program."""

    descriptor: int
    name: str
    glob: str
    pattern: str


def match_text(text: str) -> FindInLine:
    """Return a function that finds this exact text."""

    def find(line: str) -> tuple[int, int] | None:
        at = line.find(text)
        return None if at < 0 else (at, at + len(text))

    return find


def match_regex(pattern: str) -> tuple[FindInLine, bool]:
    """Return a function that finds a regular expression, and True.

    For an invalid expression, return a function that finds the expression as plain text, and False.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return match_text(pattern), False

    def find(line: str) -> tuple[int, int] | None:
        match = compiled.search(line)
        return match.span() if match else None

    return find, True


def scan(
    start: int,
    name: str,
    glob: str,
    find: FindInLine,
    stats: ScanStats,
    is_stopped: Callable[[], bool],
) -> Iterator[Hit]:
    """Search the file or folder with the descriptor `start`, without following links.

    `name` is the prefix of the paths in the hits. The caller keeps the descriptor.
    """
    if stat.S_ISREG(os.fstat(start).st_mode):
        yield from _scan_file(os.dup(start), name, find, stats, is_stopped)
        return
    for folder, inside, files, descriptor in os.fwalk(".", dir_fd=start, follow_symlinks=False):
        inside[:] = sorted(child for child in inside if child not in _SKIPPED_FOLDERS)
        for file in sorted(files):
            path = os.path.normpath(f"{folder}/{file}")
            matched = fnmatch.fnmatchcase(path if "/" in glob else file, glob)
            if is_stopped():
                return
            if matched and not file.startswith(_TEMPORARY_PREFIX):
                try:
                    opened = os.open(file, _FILE_FLAGS, dir_fd=descriptor)
                except OSError:  # a link, a socket, removed, or not readable
                    continue
                shown = path if name == "." else f"{name}/{path}"
                yield from _scan_file(opened, shown, find, stats, is_stopped)


def _scan_file(
    descriptor: int, path: str, find: FindInLine, stats: ScanStats, is_stopped: Callable[[], bool]
) -> Iterator[Hit]:
    content = _read_text(descriptor, stats)
    if content is None:
        return
    stats.files += 1
    shown = os.fsencode(path).decode(errors="replace")
    for number, line in enumerate(content.decode(errors="replace").split("\n"), 1):
        if is_stopped():
            return
        span = find(line[:_MAX_LINE_LENGTH])
        if span is not None:
            yield Hit(shown, number, _excerpt(line, *span))


def _read_text(descriptor: int, stats: ScanStats) -> bytes | None:
    """Read a text file; return None for anything else."""
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return None
        if state.st_size > MAX_FILE_BYTES:
            stats.skipped += 1
            return None
        try:
            content = file.read(MAX_FILE_BYTES)
        except OSError:
            stats.skipped += 1
            return None
    return None if b"\0" in content[:_HEAD_BYTES] else content


def _excerpt(line: str, start: int, end: int) -> str:
    """Shorten a line around the match."""
    line = line.rstrip("\r")
    if len(line) <= _MAX_EXCERPT_LENGTH:
        return line
    room = max(0, _MAX_EXCERPT_LENGTH - (end - start)) // 2
    first = max(0, min(start - room, len(line) - _MAX_EXCERPT_LENGTH))
    last = first + _MAX_EXCERPT_LENGTH
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"


def run(request: IO[str], output: IO[str]) -> None:
    """Execute a request: write whether the pattern is valid, then the hits, then the counts."""
    order = ScanRequest(*json.load(request))
    stats = ScanStats()
    find, valid = match_regex(order.pattern)
    print(json.dumps(valid), file=output, flush=True)
    hits = scan(order.descriptor, order.name, order.glob, find, stats, lambda: False)
    for hit in hits:
        print(json.dumps(hit), file=output, flush=True)
    print(json.dumps([stats.files, stats.skipped]), file=output, flush=True)


if __name__ == "__main__":
    # The limits end this program even if the parent process has died.
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    with contextlib.suppress(BrokenPipeError):
        run(sys.stdin, sys.stdout)
