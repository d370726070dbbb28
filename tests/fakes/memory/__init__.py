"""A platform inside this process: part of the test kit, and the contract's plainest reading.

`MemoryAdapter` keeps every chat as a person would see it, lets tests say and press things, fails as
it is told to, and notes what a real platform would punish or a person would notice. A test ends by
asserting that `violations()` is empty.
"""

from tests.fakes.memory.adapter import DRAFT_LIFE, SOMEBODY, MemoryAdapter
from tests.fakes.memory.faults import (
    Fault,
    cut_after,
    cut_before,
    delayed,
    hanging,
    rate_limited,
    rejected,
    unavailable,
)
from tests.fakes.memory.screen import Visible

__all__ = [
    "DRAFT_LIFE",
    "SOMEBODY",
    "Fault",
    "MemoryAdapter",
    "Visible",
    "cut_after",
    "cut_before",
    "delayed",
    "hanging",
    "rate_limited",
    "rejected",
    "unavailable",
]
