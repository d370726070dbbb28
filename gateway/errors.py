"""Errors that end the program, sorted by who can help.

HoldfastError       one or more plain lines for the operator, never a traceback
├── ConfigError     exit 78: the configuration cannot work; starting again would not help
└── CannotStart     exit 1: the machine is at fault: port taken, second daemon, disk
"""

from typing import ClassVar


class HoldfastError(Exception):
    """Holdfast cannot go on."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines or ((type(self).__doc__ or "").partition("\n")[0],)
        """What is wrong and what to do; each line stands for itself."""

    def __str__(self) -> str:
        return "\n".join(self.lines)


class ConfigError(HoldfastError):
    """The configuration cannot work."""

    exit_code = 78


class CannotStart(HoldfastError):
    """Something on this machine keeps the daemon from starting."""
