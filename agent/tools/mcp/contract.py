"""Sans-IO: what is known of a server's tools, and what a connection to a server can do."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from agent.settings import McpSettings

CallArguments = dict[str, Any]


class CallNotSent(Exception):
    """The call certainly did not reach the server."""


class CallOutcomeUnclear(Exception):
    """Nobody knows whether the call had its effect."""


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server lists it."""

    name: str
    description: str
    schema: dict[str, Any]  # of its arguments
    read_only: bool  # as the server says
    check: Callable[[CallArguments], str | None]  # what is wrong with arguments, see `schema`


class ServerListener(Protocol):
    """Is told by a connection what happens on it."""

    def on_tools_changed(self) -> None:
        """The server's tools may have changed, or it may be gone."""
        ...

    def on_disconnected(self) -> None:
        """The server is gone."""
        ...

    def on_stderr_line(self, line: str) -> None:
        """The server wrote this on its standard error."""
        ...


class McpSession(Protocol):
    """A connection to a server."""

    async def list_tools(self) -> tuple[ListedTool, ...]:
        """Ask for all tools."""
        ...

    async def call(self, tool: str, arguments: CallArguments, key: str) -> str:
        """Carry out a call once, and give its result.

        Raises:
            ToolError: The server answered that it failed.
            NotSent: It did not reach the server.
            Unclear: It may have, but there is no answer.
        """
        ...


Connect = Callable[[McpSettings, ServerListener], AbstractAsyncContextManager[McpSession]]
"""Connects to a server; whatever the package raises comes out as it is."""
