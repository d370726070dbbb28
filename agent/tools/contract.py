"""What a tool is: a typed async function with a declared risk.

A tool sees its arguments and a narrow `ToolContext`; it knows no session, platform or model.
"""

import enum
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent.providers.contract import ToolSchema
from sessions.values.clock import Clock


class Risk(enum.StrEnum):
    """What a call can do to the world; everything but `READ` has side effects."""

    READ = "read"
    WRITE = "write"
    EXEC = "exec"
    NET = "net"


class ToolContext(Protocol):
    """What a running tool may use."""

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def workspace(self) -> Path:
        """The folder that the tool may work in."""
        ...

    @property
    def idempotency_key(self) -> str:
        """Session, turn and call: the same for a repeat of the very same call."""
        ...


class Tool(msgspec.Struct, frozen=True):
    """One tool: what the model is shown, how a call is decoded, and what carries it out."""

    name: str
    risk: Risk
    schema: ToolSchema
    arguments: type[msgspec.Struct]
    call: Callable[[Any, ToolContext], Awaitable[str]]
    emoji: str = "🔧"
    timeout: float | None = None  # seconds; None: the configured default
    parallel: bool = False  # may run beside other parallel calls
    label: str = ""  # the argument whose value names the call to a person

    @property
    def read_only(self) -> bool:
        """Running it changes nothing."""
        return self.risk is Risk.READ
