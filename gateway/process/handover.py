"""Open files passed to the process image that replaces this one at a restart.

The lock of the state folder is passed on so that no other daemon can take it in between, and the
listening socket so that new connections wait in the kernel's backlog instead of being refused. An
environment variable carries the file descriptors, which stay open across `execve`.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from gateway.config.loader import HANDOVER_VARIABLE

LOCK, PORT = "lock", "port"


class Handover:
    """File descriptors by name: those received at the start, and those to pass on."""

    def __init__(self, text: str = "") -> None:
        self._received = _parse_descriptors(text)
        self._passed_on: dict[str, int] = {}
        for number in self._received.values():
            with contextlib.suppress(OSError):
                os.set_inheritable(number, False)  # noqa: FBT003 - its only flag

    def take(self, name: str) -> int | None:
        """Return the received descriptor of a name, once; the caller closes it."""
        number = self._received.pop(name, None)
        if number is None or not Path(f"/proc/self/fd/{number}").exists():
            return None
        return number

    def pass_on(self, name: str, descriptor: int) -> None:
        """Pass on a duplicate of a descriptor; the owner may close the original."""
        copy = os.dup(descriptor)
        os.set_inheritable(copy, True)  # noqa: FBT003 - its only flag
        self._passed_on[name] = copy

    def environment(self) -> Mapping[str, str]:
        """Return the environment variable for the next process image."""
        named = (f"{name}={number}" for name, number in self._passed_on.items())
        return {HANDOVER_VARIABLE: " ".join((str(os.getpid()), *named))}

    def discard(self) -> None:
        """Close the descriptors to pass on, because the restart was called off."""
        for number in self._passed_on.values():
            os.close(number)
        self._passed_on.clear()


def _parse_descriptors(text: str) -> dict[str, int]:
    pid, *named = text.split() or [""]
    if pid != str(os.getpid()):
        return {}
    pairs = (each.partition("=")[::2] for each in named)
    return {name: int(number) for name, number in pairs if number.isdecimal()}
