"""Sans-IO: whether a start is careful, because those before it died soon after they began.

How far a start came is all that is kept, never when: a clock that is set changes nothing.
"""

from enum import Enum

import msgspec

SAFE_MODE_CRASHES = 3
"""Starts in a row that died quickly, after which the next one is careful."""

UptimeThresholds = tuple[float, float]
UPTIME_THRESHOLDS_SECONDS: UptimeThresholds = (60.0, 600.0)
"""Seconds after it was ready: from then on a crash is not a quick one; it has run well."""


class StartPhase(Enum):
    """How far a start came."""

    STARTING = "starting"
    READY = "ready"
    STEADY = "steady"
    WELL = "well"
    ENDED = "ended"  # in order
    REFUSED = "refused"  # it said why it could not start, such as a port that is taken


class StartRecord(msgspec.Struct, frozen=True):
    """What a start leaves for the next one."""

    phase: StartPhase
    crashes: int = 0  # quick ones in a row, before this start
    careful: bool = False


FIRST_START = StartRecord(StartPhase.STARTING)


def next_start(previous: StartRecord | None) -> StartRecord:
    """Begin a start, in view of what the one before has left; None: nothing that can be read."""
    if previous is None:
        return FIRST_START
    match previous.phase:
        case StartPhase.STARTING | StartPhase.READY:
            crashes = previous.crashes + 1
            return StartRecord(
                StartPhase.STARTING, crashes, previous.careful or crashes >= SAFE_MODE_CRASHES
            )
        case StartPhase.REFUSED:  # it says nothing about the ones before it
            return StartRecord(StartPhase.STARTING, previous.crashes, previous.careful)
        case StartPhase.STEADY:
            return StartRecord(StartPhase.STARTING, 0, previous.careful)
        case StartPhase.WELL | StartPhase.ENDED:
            return FIRST_START


def phase_reached(
    ready_seconds: float, thresholds: UptimeThresholds = UPTIME_THRESHOLDS_SECONDS
) -> StartPhase:
    """How far a start has come that has been ready for so many seconds."""
    steady, well = thresholds
    if ready_seconds < steady:
        return StartPhase.READY
    return StartPhase.STEADY if ready_seconds < well else StartPhase.WELL


def seconds_until_next_phase(
    ready_seconds: float, thresholds: UptimeThresholds = UPTIME_THRESHOLDS_SECONDS
) -> float | None:
    """Seconds until it has come further; None when that is as far as it goes."""
    ahead = [seconds - ready_seconds for seconds in thresholds if seconds > ready_seconds]
    return ahead[0] if ahead else None
