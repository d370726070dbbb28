"""Keeps in the state folder how far this start came, for the one that follows a crash.

The file is no part of the database, which may be what is broken. It is replaced whole, so that a
process that is killed leaves the old one or the new one. That it could not be written keeps nobody
from starting.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec.structs import replace

from gateway.errors import HoldfastError
from gateway.process.exit import first_of
from gateway.process.safe_mode import AFTER, Marks, Phase, Spans, next_start, reached, until_next

log = logging.getLogger(__name__)

NAME = "starts.json"


class Starts:
    """One start of the daemon, from the lock to its end; used as a context."""

    def __init__(self, home: Path, careful: Callable[[int], None], after: Spans = AFTER) -> None:
        self._file = home / NAME
        self._after = after
        self._careful = careful  # told after how many crashes this start is to be careful
        self._marks = next_start(None)
        self._ready_at = 0.0
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        """Begin; the caller holds the lock of the state folder."""
        self._marks = next_start(self._read())
        self._write()
        if self._marks.careful:
            self._careful(self._marks.crashes)
        elif self._marks.crashes:
            log.warning("the start before this one crashed soon after it began")
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        """End: in order, refused with words for the operator, or by an error of our own."""
        if self._next:
            self._next.cancel()
        if error is None:
            self._mark(Phase.ENDED)
            return
        leaf = first_of(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(leaf, HoldfastError) and self._marks.phase is Phase.STARTING:
            self._mark(Phase.REFUSED)

    def ready(self) -> None:
        """It does its work now; from here the time counts."""
        self._ready_at = asyncio.get_running_loop().time()
        self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        ready_for = loop.time() - self._ready_at
        self._mark(reached(ready_for, self._after))
        wait = until_next(ready_for, self._after)
        self._next = None if wait is None else loop.call_later(wait, self._look)

    def _mark(self, phase: Phase) -> None:
        self._marks = replace(self._marks, phase=phase)
        self._write()

    def _read(self) -> Marks | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Marks)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read: %s", self._file, error)
            return None

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(msgspec.json.encode(self._marks))
            new.replace(self._file)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._file, error.strerror)
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
