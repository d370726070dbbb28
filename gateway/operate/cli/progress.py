"""The line on a terminal about a long operation."""

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from gateway.operate.progress import Progress

_QUIET_SECONDS = 2.0  # shorter operations show nothing
_REFRESH_SECONDS = 0.25


@contextlib.contextmanager
def show_progress(
    screen: TextIO | None = None, *, quiet_seconds: float = _QUIET_SECONDS
) -> Iterator[Progress]:
    """Show a line about the operation in this block, from `quiet_seconds` on, and erase it.

    Only a terminal shows the line; by default it is the one of standard error.
    """
    screen = screen or sys.stderr
    progress = Progress(time.monotonic)
    if not screen.isatty():
        yield progress
        return
    ended = threading.Event()
    display = threading.Thread(target=_display, args=(progress, screen, ended, quiet_seconds))
    display.start()
    try:
        yield progress
    finally:
        ended.set()
        display.join()


def _display(
    progress: Progress, screen: TextIO, ended: threading.Event, quiet_seconds: float
) -> None:
    """Draw the line until the operation ends; runs in a thread, because operations block."""
    pause, width = quiet_seconds, 0
    while not ended.wait(pause):
        pause, columns = _REFRESH_SECONDS, shutil.get_terminal_size().columns - 1
        line = progress.line()[:columns]
        screen.write(f"\r{line.ljust(width)}")
        screen.flush()
        width = len(line)
    if width:
        screen.write(f"\r{' ' * width}\r")
        screen.flush()
