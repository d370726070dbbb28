"""Errors that end the program.

HoldfastError       one or more plain lines for the operator, never a traceback
├── ConfigError     exit 78: the configuration cannot work, so a restart does not help
└── CannotStart     exit 1: a problem of the machine: port taken, second daemon, disk
"""

from collections.abc import Mapping
from typing import ClassVar

from sessions.values.exceptions import docstring_summary


class HoldfastError(Exception):
    """Holdfast cannot continue."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *lines: str, data: Mapping[str, object] | None = None) -> None:
        super().__init__(*lines)
        self.lines = lines or (docstring_summary(self),)
        """Messages for the operator; each line is complete by itself."""
        self.data = data or {}
        """Further facts for programs, which `--json` prints beside the message."""

    def __str__(self) -> str:
        return "\n".join(self.lines)


class ConfigError(HoldfastError):
    """The configuration cannot work."""

    exit_code = 78


class CannotStart(HoldfastError):
    """A problem of this machine prevents the start."""
