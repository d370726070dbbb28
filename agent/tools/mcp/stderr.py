"""Sans-IO: the line of a program's error output that tells why the program failed."""

import re
from collections import deque

_MAX_LINES = 60
_MAX_AGE_SECONDS = 30.0  # older lines have nothing to do with the failure
_MAX_LENGTH = 300  # characters of the chosen line

_NOISE = re.compile(
    r"complete log of this run|npm (?:notice|warn)|^\s+at |^\s*File \"|^Traceback|^\s*\^+\s*$|^\s*$"
    r"|note that you can also install|^npm (?:error|ERR!)\s*(?:\d+\s*)?$",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"^(?:Uncaught )?[\w.]*(?:Error|Exception|Panic|Exit)\b.{0,40}?:")
_PACKAGE_MANAGER = re.compile(r"^npm (?:error|ERR!) (?!code |errno |path |syscall |dest )")
_WORDS = re.compile(
    r"\b(?:errors?|fatal|failed|failure|cannot|can't|could not|unable|not found|denied|no such|"
    r"refused|panic|missing|required|invalid|unknown|unauthorized|must)\b",
    re.IGNORECASE,
)


class StderrTail:
    """The last lines of a program's error output, with the time of each."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque(maxlen=_MAX_LINES)

    def add(self, line: str, now: float) -> None:
        """Add a line; `now` is in seconds of a monotonic clock."""
        self._lines.append((now, line))

    def clear(self) -> None:
        """Forget all lines, because another program starts."""
        self._lines.clear()

    def cause(self, now: float) -> str:
        """Return the line that tells the cause of a failure at this time; empty if there is none."""
        recent = [line for at, line in self._lines if now - at <= _MAX_AGE_SECONDS]
        return pick_cause(recent)


def pick_cause(lines: list[str]) -> str:
    """Return the line that tells most about a failure.

    That is the last exception, else the first sentence of a package manager, else the last line
    with a word such as "failed", else the last line.
    """
    useful = [line for line in lines if not _NOISE.search(line)]
    exceptions = [line for line in useful if _EXCEPTION.search(line)]
    of_packages = [line for line in useful if _PACKAGE_MANAGER.search(line)]
    worded = [line for line in useful if _WORDS.search(line)]
    chosen = exceptions[-1:] or of_packages[:1] or worded[-1:] or useful[-1:]
    return chosen[0].strip()[:_MAX_LENGTH] if chosen else ""
