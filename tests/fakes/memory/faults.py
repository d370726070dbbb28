"""Faults that tests can order for an op."""

import asyncio
from collections.abc import Callable

import msgspec

from platforms.core.errors import PlatformError, Rejected, Unavailable, Unconfirmed


class DeliveryFault(msgspec.Struct, frozen=True):
    """The outcome of an op instead of success."""

    error: Callable[[], PlatformError] | None = None
    carried_out: bool = False  # before the error is raised
    gate: asyncio.Event | None = None  # delays the op until set


def rate_limited(retry_after: float) -> DeliveryFault:
    """Fail with status 429."""
    return DeliveryFault(lambda: Unavailable("Too many requests.", retry_after))


def unavailable() -> DeliveryFault:
    """Fail because the platform reports that it is down."""
    return DeliveryFault(Unavailable)


def rejected() -> DeliveryFault:
    """Fail because the platform refuses."""
    return DeliveryFault(Rejected)


def connection_lost_before() -> DeliveryFault:
    """Break the connection before the op arrives."""
    return DeliveryFault(Unconfirmed)


def connection_lost_after() -> DeliveryFault:
    """Break the connection after the op was carried out."""
    return DeliveryFault(Unconfirmed, carried_out=True)


def delayed(gate: asyncio.Event) -> DeliveryFault:
    """Carry out the op once the gate opens."""
    return DeliveryFault(gate=gate)


def hanging(*, carried_out: bool = False) -> DeliveryFault:
    """Never answer."""
    return DeliveryFault(carried_out=carried_out, gate=asyncio.Event())
