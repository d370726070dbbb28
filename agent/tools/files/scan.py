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

LARGEST = 10_000_000  # bytes of a file that is looked through
LONGEST_LINE = 20_000  # characters of a line that are looked through
MOST_SHOWN = 400  # characters of a line that are given
SKIPPED = frozenset({".git", ".holdfast", ".venv", "__pycache__", "node_modules"})
_HIDDEN = ".holdfast-"  # files that are being written
_HEAD = 8_192
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_MEMORY = 1_000_000_000

Finds = Callable[[str], tuple[int, int] | None]
"""Where in a line it stands."""


class Tally:
    """What was looked at."""

    def __init__(self, files: int = 0, skipped: int = 0) -> None:
        self.files = files
        self.skipped = skipped  # files that are too large, or could not be read


class Hit(NamedTuple):
    """A line in which it stands."""

    path: str
    line: int
    text: str


class Order(NamedTuple):
    """What a program of its own is to do."""

    descriptor: int
    name: str
    glob: str
    pattern: str


def plain(text: str) -> Finds:
    """Look for exactly this text."""

    def finds(line: str) -> tuple[int, int] | None:
        at = line.find(text)
        return None if at < 0 else (at, at + len(text))

    return finds


def expression(pattern: str) -> tuple[Finds, bool]:
    """Look for a regular expression; false when it is none, and is looked for as it stands."""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return plain(pattern), False

    def finds(line: str) -> tuple[int, int] | None:
        match = compiled.search(line)
        return match.span() if match else None

    return finds, True


def scan(
    start: int, name: str, glob: str, finds: Finds, tally: Tally, stopped: Callable[[], bool]
) -> Iterator[Hit]:
    """Look through the file or folder `start`, a descriptor; links are never followed.

    `name` is what stands before the names found. The descriptor stays open.
    """
    if stat.S_ISREG(os.fstat(start).st_mode):
        yield from _in_file(os.dup(start), name, finds, tally, stopped)
        return
    for folder, inside, files, descriptor in os.fwalk(".", dir_fd=start, follow_symlinks=False):
        inside[:] = sorted(each for each in inside if each not in SKIPPED)
        for file in sorted(files):
            path = os.path.normpath(f"{folder}/{file}")
            matched = fnmatch.fnmatchcase(path if "/" in glob else file, glob)
            if stopped():
                return
            if matched and not file.startswith(_HIDDEN):
                try:
                    opened = os.open(file, _FILE, dir_fd=descriptor)
                except OSError:  # a link, a socket, gone, or not for us
                    continue
                shown = path if name == "." else f"{name}/{path}"
                yield from _in_file(opened, shown, finds, tally, stopped)


def _in_file(
    descriptor: int, path: str, finds: Finds, tally: Tally, stopped: Callable[[], bool]
) -> Iterator[Hit]:
    content = _content(descriptor, tally)
    if content is None:
        return
    tally.files += 1
    shown = os.fsencode(path).decode(errors="replace")
    for number, line in enumerate(content.decode(errors="replace").split("\n"), 1):
        if stopped():
            return
        span = finds(line[:LONGEST_LINE])
        if span is not None:
            yield Hit(shown, number, _excerpt(line, *span))


def _content(descriptor: int, tally: Tally) -> bytes | None:
    """Read a text file; None for anything else."""
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return None
        if state.st_size > LARGEST:
            tally.skipped += 1
            return None
        try:
            content = file.read(LARGEST)
        except OSError:
            tally.skipped += 1
            return None
    return None if b"\0" in content[:_HEAD] else content


def _excerpt(line: str, start: int, end: int) -> str:
    """Cut a line so that what was found can be seen."""
    line = line.rstrip("\r")
    if len(line) <= MOST_SHOWN:
        return line
    room = max(0, MOST_SHOWN - (end - start)) // 2
    first = max(0, min(start - room, len(line) - MOST_SHOWN))
    last = first + MOST_SHOWN
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"


def run(order: IO[str], found: IO[str]) -> None:
    """Carry out an order; the last line tells what was looked at."""
    wanted = Order(*json.load(order))
    tally = Tally()
    finds, valid = expression(wanted.pattern)
    print(json.dumps(valid), file=found, flush=True)
    hits = scan(wanted.descriptor, wanted.name, wanted.glob, finds, tally, lambda: False)
    for hit in hits:
        print(json.dumps(hit), file=found, flush=True)
    print(json.dumps([tally.files, tally.skipped]), file=found, flush=True)


if __name__ == "__main__":
    # Whoever started this may be gone, and then nobody kills it.
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with contextlib.suppress(BrokenPipeError):
        run(sys.stdin, sys.stdout)
