"""What a tool is: a typed async function with a declared risk.

A tool sees its arguments and a narrow `ToolContext`; it knows no session, platform or model.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent.model.contract import ToolSchema
from agent.tools.drafts import DraftStore
from agent.tools.risk import Risk
from sessions.values.clock import Clock

__all__ = ["Risk", "SendFile", "Tool", "ToolContext"]

SendFile = Callable[[str, str, str], Awaitable[str]]
"""Sends a file of the workspace into the chat: its path, a caption, the call's idempotency key.

Gives what became of it, in words for the model; raises `ToolError` when it cannot be sent.
"""


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

    @property
    def drafts(self) -> DraftStore:
        """Files whose writing was cut off, to be finished."""
        ...

    @property
    def send_file(self) -> SendFile | None:
        """Sends files into the chat; None where there is no chat."""
        ...


class Tool(msgspec.Struct, frozen=True):
    """One tool: what the model is shown, how a call is decoded, and what carries it out."""

    name: str
    risk: Risk
    schema: ToolSchema
    arguments: Any  # the type that the arguments are decoded into
    call: Callable[[Any, ToolContext], Awaitable[str]]
    emoji: str = "🔧"
    timeout: float | None = None  # seconds; None: the configured default
    parallel: bool = False  # may run beside other parallel calls
    label: str = ""  # the argument whose value names the call to a person
    sends: bool = True  # of `NET`: it does something out there, it does not only look
    touches: str = ""  # the argument that is a path: two calls on one path never run side by side
    grows: str = ""  # the argument that may become long: shortened when calls keep being cut off
    check: Callable[[Any], str | None] | None = None  # what is wrong with decoded arguments
    family: str = ""  # as in `tools.enabled`; empty: always there

    @property
    def must_ask(self) -> bool:
        """Somebody has to allow each call."""
        return self.risk is Risk.EXEC or (self.risk is Risk.NET and self.sends)

    @property
    def read_only(self) -> bool:
        """Running it changes nothing."""
        return self.risk is Risk.READ
