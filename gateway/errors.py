"""Errors that end the program.

HoldfastError       one or more plain lines for the operator, never a traceback
├── ConfigError     exit 78: the configuration cannot work, so a restart does not help
└── CannotStart     exit 1: a problem of the machine: port taken, second daemon, disk
"""

from typing import ClassVar


class HoldfastError(Exception):
    """Holdfast cannot continue."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines or ((type(self).__doc__ or "").partition("\n")[0],)
        """Messages for the operator; each line is complete by itself."""

    def __str__(self) -> str:
        return "\n".join(self.lines)


class ConfigError(HoldfastError):
    """The configuration cannot work."""

    exit_code = 78


class CannotStart(HoldfastError):
    """A problem of this machine prevents the start."""
