"""The interface between the connection to a server and a session, and names of stored logins."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

import msgspec

from agent.settings import McpSettings
from agent.tools.output import EncodedFile, ReportProgress
from agent.tools.questions import AskPerson

CallArguments = dict[str, Any]

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Length limit of one message of a server, on pipes and over HTTP."""

MCP_LOGIN_FOLDER = "mcp-tokens"
"""Folder with stored logins, in the state folder; its name tells backups that it holds secrets."""

CONNECTION_ENDED = "the connection ended"
"""Reason of a disconnection about which nothing else is known."""


class CallNotSent(Exception):
    """The call did certainly not reach the server."""


class CallHooks(msgspec.Struct, frozen=True):
    """Access of a running call to people: progress, and questions."""

    report_progress: ReportProgress
    ask_person: AskPerson | None = None  # None where no one can be asked


class LoginRequired(Exception):
    """The server asks for a login, and only a person can log in."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"{reason}; log in with: {command}")


class LoginFailed(Exception):
    """The login did not succeed; the text says why."""


class RedirectAnswer(msgspec.Struct, frozen=True):
    """Parameters that the authorization server added to the redirect address."""

    code: str
    state: str | None = None
    issuer: str | None = None


class LoginPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation with the person who logs in."""

    redirect_url: str
    show: Callable[[str], Awaitable[None]]  # shows the address of the login page
    wait: Callable[[], Awaitable[RedirectAnswer]]


def login_name(server: str, person: str = "") -> str:
    """Return the name under which a login is stored: of a server, or of one person there."""
    return f"{server}/{quote(person, safe='')}" if person else server


def people_with_login(folder: Path, server: str) -> list[str]:
    """Return the people who have logged in at a server; reads the disk."""
    return sorted(unquote(file.stem) for file in (folder / server).glob("*.json"))


OnLoginSecrets = Callable[[str, tuple[str, ...]], None]
"""Receives the secrets of a stored login with its name; they replace earlier ones of that name."""


def ignore_secrets(_name: str, _secrets: tuple[str, ...]) -> None:
    """Ignore the secrets of a login."""


class SessionEnded(CallNotSent):
    """The server does not know the session any more; a new session is needed."""


class CallOutcomeUnclear(Exception):
    """The call may or may not have had its effect."""


class ServerOutput(msgspec.Struct, frozen=True):
    """The result of a call or the content of a resource: texts and files, in order."""

    parts: tuple[str | EncodedFile, ...]


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as listed by its server."""

    name: str
    description: str
    schema: dict[str, Any]  # of the arguments
    read_only: bool  # as declared by the server
    open_world: bool = False  # as declared by the server: it reads from the network
    check: Callable[[CallArguments], str | None]  # describes errors in arguments
    change: str = ""  # change that an admin has to accept, in words


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


class ListedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as listed by its server: a text that people ask for, with arguments."""

    name: str
    description: str
    arguments: tuple[PromptArgument, ...] = ()


class ServerListener(Protocol):
    """Receives the events of a session."""

    def on_tools_changed(self) -> None:
        """Handle a possible change of the server's tools or prompts."""
        ...

    def on_disconnected(self, reason: str = CONNECTION_ENDED) -> None:
        """Handle the loss of the server; the first call tells the reason."""
        ...

    def on_unreadable_output(self, lines: int, example: str) -> None:
        """Handle lines on the server's standard output that are not messages."""
        ...

    def on_stderr_line(self, line: str) -> None:
        """Handle a line on the server's standard error."""
        ...

    def on_log_message(self, level: str, text: str) -> None:
        """Handle a log message of the server; the level is one of the protocol, such as `error`."""
        ...


class McpSession(Protocol):
    """A session with a server."""

    @property
    def instructions(self) -> str:
        """The server's notes for the model about its tools; empty if there are none."""
        ...

    @property
    def has_resources(self) -> bool:
        """True if the server offers resources."""
        ...

    async def list_tools(self) -> tuple[ListedTool, ...]:
        """Request the list of all tools.

        Raises:
            SessionEnded: A new session is needed.
        """
        ...

    async def list_prompts(self) -> tuple[ListedPrompt, ...]:
        """Request the list of all prompts; empty if the server has none."""
        ...

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return the text of a prompt; raises like `call`."""
        ...

    async def list_resources(self) -> str:
        """Return the resources of the server as lines for the model."""
        ...

    async def read_resource(self, uri: str, report_progress: ReportProgress) -> ServerOutput:
        """Read a resource; raises like `call`."""
        ...

    async def call(
        self, tool: str, arguments: CallArguments, key: str, hooks: CallHooks
    ) -> ServerOutput:
        """Make a call exactly once and return the result.

        Raises:
            ToolError: The server reported a failure.
            CallNotSent: The call did not reach the server; with `SessionEnded` a new session helps.
            CallOutcomeUnclear: The call may have reached the server, but there is no answer.
        """
        ...


Connect = Callable[[McpSettings, ServerListener], AbstractAsyncContextManager[McpSession]]
"""Opens a session with a server; may raise any exception of the underlying package."""
