"""The record of this start in the state folder, read by the next start to count crashes.

The record is a file outside the database, because the database may be the cause of the crashes. The
file is replaced atomically. A failed write does not prevent the start.
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec.structs import replace

from gateway.errors import HoldfastError
from gateway.process.safe_mode import (
    UPTIME_THRESHOLDS_SECONDS,
    StartPhase,
    StartRecord,
    UptimeThresholds,
    next_start,
    phase_reached,
    seconds_until_next_phase,
)
from sessions.values.exceptions import first_error

log = logging.getLogger(__name__)

FILE_NAME = "starts.json"


class StartLog:
    """Record of one start of the daemon; a context manager, entered when the start begins.

    The caller holds the lock of the state folder from the construction on.
    """

    def __init__(
        self, home: Path, thresholds: UptimeThresholds = UPTIME_THRESHOLDS_SECONDS
    ) -> None:
        self._file = home / FILE_NAME
        self._thresholds = thresholds
        self._record = next_start(self._read())
        self._ready_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def crash_count(self) -> int:
        """Crashes in a row that cause safe mode; 0 outside of safe mode."""
        return self._record.crashes if self._record.careful else 0

    def __enter__(self) -> Self:
        """Write the record of this start."""
        self._write()
        if self._record.crashes and not self._record.careful:
            log.warning("the previous start crashed early")
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        """Record a clean exit or a refused start; after any other error the phase stays."""
        if self._timer:
            self._timer.cancel()
        if error is None:
            self._set_phase(StartPhase.ENDED)
            return
        refused = isinstance(first_error(error, prefer=HoldfastError), HoldfastError)
        if refused and self._record.phase is StartPhase.STARTING:
            self._set_phase(StartPhase.REFUSED)

    def mark_ready(self) -> None:
        """Mark the start as ready and begin measuring uptime."""
        self._ready_at = asyncio.get_running_loop().time()
        self._update_phase()

    def _update_phase(self) -> None:
        loop = asyncio.get_running_loop()
        ready_for = loop.time() - self._ready_at
        self._set_phase(phase_reached(ready_for, self._thresholds))
        wait = seconds_until_next_phase(ready_for, self._thresholds)
        self._timer = None if wait is None else loop.call_later(wait, self._update_phase)

    def _set_phase(self, phase: StartPhase) -> None:
        self._record = replace(self._record, phase=phase)
        self._write()

    def _read(self) -> StartRecord | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=StartRecord)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read: %s", self._file, error)
            return None

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(msgspec.json.encode(self._record))
            new.replace(self._file)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._file, error.strerror)
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
