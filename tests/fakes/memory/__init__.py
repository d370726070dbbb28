"""An in-memory platform: a part of the test kit, and the simplest implementation of the contract.

`MemoryAdapter` shows every chat as a person would see it, lets tests send messages and press
buttons, fails on demand, and records violations: anything a real platform would punish or a person
would notice. A test ends by asserting that `violations()` is empty.
"""

from tests.fakes.memory.adapter import DEFAULT_SENDER, DRAFT_LIFETIME_SECONDS, MemoryAdapter
from tests.fakes.memory.faults import (
    DeliveryFault,
    connection_lost_after,
    connection_lost_before,
    delayed,
    hanging,
    rate_limited,
    rejected,
    unavailable,
)
from tests.fakes.memory.screen import VisibleMessage

__all__ = [
    "DEFAULT_SENDER",
    "DRAFT_LIFETIME_SECONDS",
    "DeliveryFault",
    "MemoryAdapter",
    "VisibleMessage",
    "connection_lost_after",
    "connection_lost_before",
    "delayed",
    "hanging",
    "rate_limited",
    "rejected",
    "unavailable",
]
