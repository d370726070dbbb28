"""What can go wrong with an op, as tests order it."""

import asyncio
from collections.abc import Callable

import msgspec

from platforms.core.errors import PlatformError, Rejected, Unavailable, Unconfirmed


class Fault(msgspec.Struct, frozen=True):
    """What happens to an op instead of going well."""

    error: Callable[[], PlatformError] | None = None
    carried_out: bool = False  # before the error
    gate: asyncio.Event | None = None  # what it waits for


def rate_limited(retry_after: float) -> Fault:
    """A 429."""
    return Fault(lambda: Unavailable("Too many requests.", retry_after))


def unavailable() -> Fault:
    """The platform is down, and says so."""
    return Fault(Unavailable)


def rejected() -> Fault:
    """The platform understood and refused."""
    return Fault(Rejected)


def cut_before() -> Fault:
    """The connection broke before the op arrived."""
    return Fault(Unconfirmed)


def cut_after() -> Fault:
    """The connection broke after the op was carried out."""
    return Fault(Unconfirmed, carried_out=True)


def delayed(gate: asyncio.Event) -> Fault:
    """The op is carried out once the gate opens."""
    return Fault(gate=gate)


def hanging(*, carried_out: bool = False) -> Fault:
    """No answer ever comes."""
    return Fault(carried_out=carried_out, gate=asyncio.Event())
