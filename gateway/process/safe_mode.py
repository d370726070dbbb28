"""Sans-IO: the decision to start in safe mode, after several starts in a row crashed early.

Only the phase that a start reached is recorded, never a time, so that clock changes have no effect.
"""

from enum import Enum

import msgspec

_SAFE_MODE_CRASHES = 3
"""Early crashes in a row after which the next start is in safe mode."""

UptimeThresholds = tuple[float, float]
UPTIME_THRESHOLDS_SECONDS: UptimeThresholds = (60.0, 600.0)
"""Seconds since ready: after the first a crash is not early; after the second safe mode ends."""


class StartPhase(Enum):
    """The phase that a start reached."""

    STARTING = "starting"
    READY = "ready"
    STEADY = "steady"
    WELL = "well"
    ENDED = "ended"  # clean exit
    REFUSED = "refused"  # failed with an error for the operator, such as a taken port


class StartRecord(msgspec.Struct, frozen=True):
    """The record that a start leaves for the next start."""

    phase: StartPhase
    crashes: int = 0  # early crashes in a row before this start
    careful: bool = False  # safe mode


_FIRST_START = StartRecord(StartPhase.STARTING)


def next_start(previous: StartRecord | None) -> StartRecord:
    """Return the record of a new start, given the previous one or None if it is unreadable."""
    if previous is None:
        return _FIRST_START
    match previous.phase:
        case StartPhase.STARTING | StartPhase.READY:
            crashes = previous.crashes + 1
            return StartRecord(
                StartPhase.STARTING, crashes, previous.careful or crashes >= _SAFE_MODE_CRASHES
            )
        case StartPhase.REFUSED:  # neither a crash nor a success
            return StartRecord(StartPhase.STARTING, previous.crashes, previous.careful)
        case StartPhase.STEADY:  # not an early crash, and too early to end safe mode
            crashes = previous.crashes if previous.careful else 0
            return StartRecord(StartPhase.STARTING, crashes, previous.careful)
        case StartPhase.WELL | StartPhase.ENDED:
            return _FIRST_START


def phase_reached(
    ready_seconds: float, thresholds: UptimeThresholds = UPTIME_THRESHOLDS_SECONDS
) -> StartPhase:
    """Return the phase of a start that has been ready for `ready_seconds`."""
    steady, well = thresholds
    if ready_seconds < steady:
        return StartPhase.READY
    return StartPhase.STEADY if ready_seconds < well else StartPhase.WELL


def seconds_until_next_phase(
    ready_seconds: float, thresholds: UptimeThresholds = UPTIME_THRESHOLDS_SECONDS
) -> float | None:
    """Return the seconds until the next phase; None in the last phase."""
    ahead = [seconds - ready_seconds for seconds in thresholds if seconds > ready_seconds]
    return ahead[0] if ahead else None
