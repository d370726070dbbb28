"""The type of a check."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding

CheckFunction = Callable[[DoctorContext], Awaitable[Sequence[Finding]]]
"""Examines one subject and returns findings; may raise any exception."""

_LOCAL_TIMEOUT_SECONDS, REMOTE_TIMEOUT_SECONDS = 10.0, 15.0


class Check(Struct, frozen=True):
    """One check; the report joins checks of the same group."""

    group: str
    run: CheckFunction
    timeout_seconds: float = _LOCAL_TIMEOUT_SECONDS
    needs_network: bool = False  # contacts other machines
    works_without_config: bool = False  # runs even if the configuration cannot be loaded
