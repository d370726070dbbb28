"""What a check is, and what comes of it."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding

CheckFunction = Callable[[DoctorContext], Awaitable[Sequence[Finding]]]
"""Looks at one thing; may raise what it likes."""

LOCAL_TIMEOUT_SECONDS, REMOTE_TIMEOUT_SECONDS = 10.0, 15.0


class Check(Struct, frozen=True):
    """One thing that is looked at; several checks of one group stand together."""

    group: str
    run: CheckFunction
    timeout_seconds: float = LOCAL_TIMEOUT_SECONDS
    needs_network: bool = False  # it leaves this machine
    works_without_config: bool = False  # it also works where the configuration does not
