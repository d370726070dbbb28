"""Looks through files for a pattern; needs nothing but the standard library.

A regular expression can take longer than anybody lives, and while it is matched no other thread of
its process gets a turn. So this file can also be run as a program: it reads what to look for from
its input, writes what it finds line by line, and can be killed at any moment.
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

MAX_FILE_BYTES = 10_000_000  # bytes of a file that is looked through
MAX_LINE_LENGTH = 20_000  # characters of a line that are looked through
MAX_EXCERPT_LENGTH = 400  # characters of a line that are given
SKIPPED_FOLDERS = frozenset({".git", ".holdfast", ".venv", "__pycache__", "node_modules"})
_TEMPORARY_PREFIX = ".holdfast-"  # files that are being written
_HEAD_BYTES = 8_192
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_MEMORY_BYTES = 1_000_000_000

FindInLine = Callable[[str], tuple[int, int] | None]
"""Where in a line it stands."""


class ScanStats:
    """What was looked at."""

    def __init__(self, files: int = 0, skipped: int = 0) -> None:
        self.files = files
        self.skipped = skipped  # files that are too large, or could not be read


class Hit(NamedTuple):
    """A line in which it stands."""

    path: str
    line: int
    text: str


class ScanRequest(NamedTuple):
    """What a program of its own is to do."""

    descriptor: int
    name: str
    glob: str
    pattern: str


def match_text(text: str) -> FindInLine:
    """Look for exactly this text."""

    def finds(line: str) -> tuple[int, int] | None:
        at = line.find(text)
        return None if at < 0 else (at, at + len(text))

    return finds


def match_regex(pattern: str) -> tuple[FindInLine, bool]:
    """Look for a regular expression; false when it is none, and is looked for as it stands."""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return match_text(pattern), False

    def finds(line: str) -> tuple[int, int] | None:
        match = compiled.search(line)
        return match.span() if match else None

    return finds, True


def scan(
    start: int,
    name: str,
    glob: str,
    find: FindInLine,
    stats: ScanStats,
    is_stopped: Callable[[], bool],
) -> Iterator[Hit]:
    """Look through the file or folder `start`, a descriptor; links are never followed.

    `name` is what stands before the names found. The descriptor stays open.
    """
    if stat.S_ISREG(os.fstat(start).st_mode):
        yield from _scan_file(os.dup(start), name, find, stats, is_stopped)
        return
    for folder, inside, files, descriptor in os.fwalk(".", dir_fd=start, follow_symlinks=False):
        inside[:] = sorted(each for each in inside if each not in SKIPPED_FOLDERS)
        for file in sorted(files):
            path = os.path.normpath(f"{folder}/{file}")
            matched = fnmatch.fnmatchcase(path if "/" in glob else file, glob)
            if is_stopped():
                return
            if matched and not file.startswith(_TEMPORARY_PREFIX):
                try:
                    opened = os.open(file, _FILE_FLAGS, dir_fd=descriptor)
                except OSError:  # a link, a socket, gone, or not for us
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
        span = find(line[:MAX_LINE_LENGTH])
        if span is not None:
            yield Hit(shown, number, _excerpt(line, *span))


def _read_text(descriptor: int, stats: ScanStats) -> bytes | None:
    """Read a text file; None for anything else."""
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
    """Cut a line so that what was found can be seen."""
    line = line.rstrip("\r")
    if len(line) <= MAX_EXCERPT_LENGTH:
        return line
    room = max(0, MAX_EXCERPT_LENGTH - (end - start)) // 2
    first = max(0, min(start - room, len(line) - MAX_EXCERPT_LENGTH))
    last = first + MAX_EXCERPT_LENGTH
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"


def run(request: IO[str], output: IO[str]) -> None:
    """Carry out an order; the last line tells what was looked at."""
    wanted = ScanRequest(*json.load(request))
    tally = ScanStats()
    finds, valid = match_regex(wanted.pattern)
    print(json.dumps(valid), file=output, flush=True)
    hits = scan(wanted.descriptor, wanted.name, wanted.glob, finds, tally, lambda: False)
    for hit in hits:
        print(json.dumps(hit), file=output, flush=True)
    print(json.dumps([tally.files, tally.skipped]), file=output, flush=True)


if __name__ == "__main__":
    # Whoever started this may be gone, and then nobody kills it.
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    with contextlib.suppress(BrokenPipeError):
        run(sys.stdin, sys.stdout)
