"""What can go wrong with an op, as tests order it."""

import asyncio
from collections.abc import Callable

import msgspec

from platforms.core.errors import PlatformError, Rejected, Unavailable, Unconfirmed


class DeliveryFault(msgspec.Struct, frozen=True):
    """What happens to an op instead of going well."""

    error: Callable[[], PlatformError] | None = None
    carried_out: bool = False  # before the error
    gate: asyncio.Event | None = None  # what it waits for


def rate_limited(retry_after: float) -> DeliveryFault:
    """A 429."""
    return DeliveryFault(lambda: Unavailable("Too many requests.", retry_after))


def unavailable() -> DeliveryFault:
    """The platform is down, and says so."""
    return DeliveryFault(Unavailable)


def rejected() -> DeliveryFault:
    """The platform understood and refused."""
    return DeliveryFault(Rejected)


def connection_lost_before() -> DeliveryFault:
    """The connection broke before the op arrived."""
    return DeliveryFault(Unconfirmed)


def connection_lost_after() -> DeliveryFault:
    """The connection broke after the op was carried out."""
    return DeliveryFault(Unconfirmed, carried_out=True)


def delayed(gate: asyncio.Event) -> DeliveryFault:
    """The op is carried out once the gate opens."""
    return DeliveryFault(gate=gate)


def hanging(*, carried_out: bool = False) -> DeliveryFault:
    """No answer ever comes."""
    return DeliveryFault(carried_out=carried_out, gate=asyncio.Event())
