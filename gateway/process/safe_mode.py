"""Sans-IO: whether a start is careful, because those before it died soon after they began.

How far a start came is all that is kept, never when: a clock that is set changes nothing.
"""

from enum import Enum

import msgspec

QUICK_CRASHES = 3
"""Starts in a row that died quickly, after which the next one is careful."""

Spans = tuple[float, float]
AFTER: Spans = (60.0, 600.0)
"""Seconds after it was ready: from then on a crash is not a quick one; it has run well."""


class Phase(Enum):
    """How far a start came."""

    STARTING = "starting"
    READY = "ready"
    STEADY = "steady"
    WELL = "well"
    ENDED = "ended"  # in order
    REFUSED = "refused"  # it said why it could not start, such as a port that is taken


class Marks(msgspec.Struct, frozen=True):
    """What a start leaves for the next one."""

    phase: Phase
    crashes: int = 0  # quick ones in a row, before this start
    careful: bool = False


FIRST = Marks(Phase.STARTING)


def next_start(left: Marks | None) -> Marks:
    """Begin a start, in view of what the one before has left; None: nothing that can be read."""
    if left is None:
        return FIRST
    match left.phase:
        case Phase.STARTING | Phase.READY:
            crashes = left.crashes + 1
            return Marks(Phase.STARTING, crashes, left.careful or crashes >= QUICK_CRASHES)
        case Phase.REFUSED:  # it says nothing about the ones before it
            return Marks(Phase.STARTING, left.crashes, left.careful)
        case Phase.STEADY:
            return Marks(Phase.STARTING, 0, left.careful)
        case Phase.WELL | Phase.ENDED:
            return FIRST


def reached(ready_for: float, after: Spans = AFTER) -> Phase:
    """How far a start has come that has been ready for so many seconds."""
    steady, well = after
    if ready_for < steady:
        return Phase.READY
    return Phase.STEADY if ready_for < well else Phase.WELL


def until_next(ready_for: float, after: Spans = AFTER) -> float | None:
    """Seconds until it has come further; None when that is as far as it goes."""
    ahead = [seconds - ready_for for seconds in after if seconds > ready_for]
    return ahead[0] if ahead else None


def safe_mode(crashes: int) -> str:
    """Say in one line that a start is careful, and what ends that."""
    return (
        f"Safe mode after {crashes} crashes in a row: no tools, nothing interrupted goes on by "
        "itself; a restart by hand ends it."
    )
