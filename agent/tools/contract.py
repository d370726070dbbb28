"""The `Tool` record and the interface between tools and the program.

A tool is a typed async function with a declared risk. The function gets the arguments of a call and
a narrow `ToolContext`; sessions, platforms and models are unknown to tools.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent.model.contract import ToolSchema
from agent.tools.drafts import DraftStore
from agent.tools.output import ReportProgress, ToolOutput
from agent.tools.questions import AskPerson
from agent.tools.risk import Risk
from sessions.values.clock import Clock
from sessions.values.masks import MaskSecrets

__all__ = ["ReportProgress", "Risk", "SendFile", "Tool", "ToolContext", "ToolOutput"]

SendFile = Callable[[str, str, str], Awaitable[str]]
"""Sends a workspace file to the chat. Arguments: path, caption, idempotency key of the call.

Returns the outcome as text for the model; raises `ToolError` when the file cannot be sent.
"""


class ToolContext(Protocol):
    """Services for a running tool."""

    @property
    def clock(self) -> Clock:
        """The current time."""
        ...

    @property
    def workspace(self) -> Path:
        """The only folder in which the tool may work."""
        ...

    @property
    def idempotency_key(self) -> str:
        """A key of session, turn and call; a repeat of the same call has the same key."""
        ...

    @property
    def drafts(self) -> DraftStore:
        """Unfinished files whose writing was cut off."""
        ...

    @property
    def mask(self) -> MaskSecrets:
        """A function that replaces the secrets in a text by placeholders."""
        ...

    @property
    def report_progress(self) -> ReportProgress:
        """A function that tells people how far the call is."""
        ...

    @property
    def ask_person(self) -> AskPerson | None:
        """A function that asks a person in the chat; None where no one can be asked."""
        ...

    @property
    def send_file(self) -> SendFile | None:
        """A function that sends files to the chat; None where there is no chat."""
        ...


class Tool(msgspec.Struct, frozen=True):
    """One tool: schema for the model, type of the arguments, function and properties."""

    name: str
    risk: Risk
    schema: ToolSchema
    arguments: Any  # type of the decoded arguments
    call: Callable[[Any, ToolContext], Awaitable[str | ToolOutput]]
    emoji: str = "🔧"
    timeout: float | None = None  # seconds; None: the configured default
    parallel: bool = False  # may run in parallel with other parallel calls
    label: str = ""  # argument that describes the call to people
    sends: bool = True  # for `NET`: has effects on other systems, instead of only reading
    touches: str = ""  # argument with a path; calls on the same path never run in parallel
    grows: str = ""  # argument that can be long; gets a limit when calls keep being cut off
    check: Callable[[Any], str | None] | None = None  # returns the error in decoded arguments
    asks: bool | None = None  # each call needs approval; None: by its risk
    change: str = ""  # change since the tool was trusted, for the question about a call
    takes_placeholders: bool = False  # its arguments may contain placeholders of secrets
    family: str = ""  # as in `tools.enabled`; empty: always enabled

    @property
    def must_ask(self) -> bool:
        """True if each call needs approval."""
        if self.asks is not None and not self.change:
            return self.asks
        return self.risk is Risk.EXEC or (self.risk is Risk.NET and self.sends)

    @property
    def read_only(self) -> bool:
        """True if a call has no side effects and reaches no other system."""
        return self.risk is Risk.READ

    @property
    def only_reads(self) -> bool:
        """True if a call has no side effects, so that an interrupted call has none either."""
        return self.read_only or (self.risk is Risk.NET and not self.sends)
