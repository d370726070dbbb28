"""What a check is, and what comes of it."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from gateway.operate.doctor.context import Case
from sessions.values.finding import Finding

Look = Callable[[Case], Awaitable[Sequence[Finding]]]
"""Looks at one thing; may raise what it likes."""

LOCAL_SECONDS, REMOTE_SECONDS = 10.0, 15.0


class Check(Struct, frozen=True):
    """One thing that is looked at; several checks of one group stand together."""

    group: str
    look: Look
    seconds: float = LOCAL_SECONDS
    remote: bool = False  # it leaves this machine
    unread: bool = False  # it also works where the configuration does not
