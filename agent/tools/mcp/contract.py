"""Sans-IO: what is known of a server's tools, and what a connection to a server can do."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from agent.settings import McpSettings

Arguments = dict[str, Any]


class NotSent(Exception):
    """The call certainly did not reach the server."""


class Unclear(Exception):
    """Nobody knows whether the call had its effect."""


class Listed(msgspec.Struct, frozen=True):
    """A tool as its server lists it."""

    name: str
    description: str
    schema: dict[str, Any]  # of its arguments
    read_only: bool  # as the server says
    check: Callable[[Arguments], str | None]  # what is wrong with arguments, see `schema`


class Hears(Protocol):
    """Is told by a connection what happens on it."""

    def look_again(self) -> None:
        """The server's tools may have changed, or it may be gone."""
        ...

    def ended(self) -> None:
        """The server is gone."""
        ...

    def said(self, line: str) -> None:
        """The server wrote this on its standard error."""
        ...


class Session(Protocol):
    """A connection to a server."""

    async def tools(self) -> tuple[Listed, ...]:
        """Ask for all tools."""
        ...

    async def call(self, tool: str, arguments: Arguments, key: str) -> str:
        """Carry out a call once, and give its result.

        Raises:
            ToolError: The server answered that it failed.
            NotSent: It did not reach the server.
            Unclear: It may have, but there is no answer.
        """
        ...


Connect = Callable[[McpSettings, Hears], AbstractAsyncContextManager[Session]]
"""Connects to a server; whatever the package raises comes out as it is."""
