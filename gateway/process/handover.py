"""What a process leaves open for the one that takes its place.

That is the lock of the state folder, so that nothing gets in between, and the port: who knocks at
it meanwhile waits in the kernel's queue instead of being refused. The numbers of the files are
told in a variable of the environment; a process image that replaces another keeps its files.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from gateway.config.loader import HANDOVER_VARIABLE

LOCK, PORT = "lock", "port"


class Handover:
    """Files by name: those left to us, and those that we leave."""

    def __init__(self, text: str = "") -> None:
        self._received = _parse_descriptors(text)
        self._passed_on: dict[str, int] = {}
        for number in self._received.values():
            with contextlib.suppress(OSError):
                os.set_inheritable(number, False)  # noqa: FBT003 - its only flag

    def take(self, name: str) -> int | None:
        """The file that was left under a name, once; whoever takes it closes it."""
        number = self._received.pop(name, None)
        if number is None or not Path(f"/proc/self/fd/{number}").exists():
            return None
        return number

    def pass_on(self, name: str, descriptor: int) -> None:
        """Leave a file: it stays open though its owner closes it."""
        copy = os.dup(descriptor)
        os.set_inheritable(copy, True)  # noqa: FBT003 - its only flag
        self._passed_on[name] = copy

    def environment(self) -> Mapping[str, str]:
        """What is to stand in the environment of the one that takes our place."""
        named = (f"{name}={number}" for name, number in self._passed_on.items())
        return {HANDOVER_VARIABLE: " ".join((str(os.getpid()), *named))}

    def discard(self) -> None:
        """Nobody takes our place after all."""
        for number in self._passed_on.values():
            os.close(number)
        self._passed_on.clear()


def _parse_descriptors(text: str) -> dict[str, int]:
    pid, *named = text.split() or [""]
    if pid != str(os.getpid()):
        return {}
    pairs = (each.partition("=")[::2] for each in named)
    return {name: int(number) for name, number in pairs if number.isdecimal()}
