"""What a process leaves open for the one that takes its place.

That is the lock of the state folder, so that nothing gets in between, and the port: who knocks at
it meanwhile waits in the kernel's queue instead of being refused. The numbers of the files are
told in a variable of the environment; a process image that replaces another keeps its files.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "HOLDFAST_HANDOVER"
"""`PID lock=5 port=7`; another process than that one must not believe it."""

LOCK, PORT = "lock", "port"


class Handover:
    """Files by name: those left to us, and those that we leave."""

    def __init__(self, text: str = "") -> None:
        self._left = _numbers(text)
        self._kept: dict[str, int] = {}
        for number in self._left.values():
            with contextlib.suppress(OSError):
                os.set_inheritable(number, False)  # noqa: FBT003 - its only flag

    def take(self, name: str) -> int | None:
        """The file that was left under a name, once; whoever takes it closes it."""
        number = self._left.pop(name, None)
        if number is None or not Path(f"/proc/self/fd/{number}").exists():
            return None
        return number

    def keep(self, name: str, number: int) -> None:
        """Leave a file: it stays open though its owner closes it."""
        copy = os.dup(number)
        os.set_inheritable(copy, True)  # noqa: FBT003 - its only flag
        self._kept[name] = copy

    def environ(self) -> Mapping[str, str]:
        """What is to stand in the environment of the one that takes our place."""
        named = (f"{name}={number}" for name, number in self._kept.items())
        return {VARIABLE: " ".join((str(os.getpid()), *named))}

    def drop(self) -> None:
        """Nobody takes our place after all."""
        for number in self._kept.values():
            os.close(number)
        self._kept.clear()


def _numbers(text: str) -> dict[str, int]:
    pid, *named = text.split() or [""]
    if pid != str(os.getpid()):
        return {}
    pairs = (each.partition("=")[::2] for each in named)
    return {name: int(number) for name, number in pairs if number.isdecimal()}
