"""Commands as data, their calls and outcomes, and the services that handlers use.

A handler reads and decides; it neither sends nor writes. It returns a notice for the person, or an
event for the conversation's actor, which does the work.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.access.policy import Role
from sessions.conversation.events import (
    CommandContext,
    ConversationState,
    Event,
    RunningTurn,
)
from sessions.records import Session
from sessions.values.notices import NoticeFields, NoticeId


class NoticeReply(msgspec.Struct, frozen=True):
    """Reply with a notice."""

    notice: NoticeId
    fields: NoticeFields = {}
    urgent: bool = False  # sent before other messages of the chat


class ForwardEvent(msgspec.Struct, frozen=True):
    """Send an event to the conversation's actor, which closes the stored command."""

    event: Event


class ReplyLater(msgspec.Struct, frozen=True):
    """The receiver of a slow command replies later, and closes the stored command with the reply."""


CommandOutcome = NoticeReply | ForwardEvent | ReplyLater


class ApprovalCommands(Protocol):
    """Answers to approval requests; see `gateway.approvals.broker`."""

    async def answer(self, call: "CommandCall", *, allow: bool) -> CommandOutcome:
        """Allow or deny a tool call: the one with the given code, or the only open one here."""
        ...

    async def on_button(
        self, approval_id: str, who: CommandContext, *, role: Role, allow: bool
    ) -> CommandOutcome:
        """Allow or deny the tool call whose button was pressed."""
        ...


class SideRequestCommands(Protocol):
    """Commands about models and costs; see `gateway.side_requests.service`."""

    async def model(self, call: "CommandCall") -> CommandOutcome:
        """Show the current model and the available ones, or switch."""
        ...

    async def reasoning(self, call: "CommandCall") -> CommandOutcome:
        """Show or set the reasoning effort."""
        ...

    async def usage(self, call: "CommandCall") -> CommandOutcome:
        """Show the usage of the last turn, this conversation, and this person today."""
        ...

    async def compact(self, call: "CommandCall") -> CommandOutcome:
        """Replace the older part of the conversation by a summary."""
        ...

    async def btw(self, call: "CommandCall") -> CommandOutcome:
        """Answer a side question, which the history of the conversation leaves out."""
        ...


class PromptCommands(Protocol):
    """Prompts of MCP servers as commands, which come and go; see `gateway.mcp.prompts`."""

    def commands(self) -> Sequence["Command"]:
        """Return each prompt once."""
        ...

    def words(self) -> frozenset[str]:
        """Return the words of all prompts, including aliases."""
        ...

    def find(self, word: str) -> "Command | None":
        """Return the prompt with this word."""
        ...


class McpCommands(Protocol):
    """Handler of `/mcp`; see `gateway.mcp.logins`."""

    async def mcp(self, call: "CommandCall") -> CommandOutcome:
        """List the servers, begin or finish a login, or accept changed instructions."""
        ...


class RestartCommands(Protocol):
    """Restarts the gateway; see `gateway.process.restart`."""

    async def request_restart(self, call: "CommandCall") -> CommandOutcome:
        """Restart the gateway, and reply to the person when the restart is finished."""
        ...


class AccessCommands(Protocol):
    """Access of people; see `gateway.commands.access_requests`."""

    async def claim(self, principal: str, name: str, code: str) -> bool:
        """Make a person the first admin; False if the code is not valid."""
        ...

    async def pair_list(self) -> str:
        """Return open requests and people with access, one per line."""
        ...

    async def pair_approve(self, code: str) -> tuple[str, str] | None:
        """Give access to the person with this code or stable id; return id and name, or None."""
        ...

    async def pair_revoke(self, principal: str) -> bool:
        """Remove a person's access; False if it was not given by pairing."""
        ...


class CommandFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """Services behind the commands that are not about the conversation itself."""

    access: AccessCommands
    approvals: ApprovalCommands
    side_requests: SideRequestCommands
    prompts: PromptCommands
    mcp: McpCommands
    restart: RestartCommands
    degraded_parts: Callable[[], Mapping[str, str]]  # problems of models and MCP servers, by name


class CommandServices(Protocol):
    """Services that command handlers use."""

    @property
    def access(self) -> AccessCommands:
        """Handlers of `/start CODE` and `/pair`."""
        ...

    @property
    def prompts(self) -> PromptCommands:
        """Prompts of MCP servers."""
        ...

    @property
    def mcp(self) -> McpCommands:
        """Handler of `/mcp`."""
        ...

    @property
    def restart(self) -> RestartCommands:
        """Handler of `/restart`."""
        ...

    @property
    def approvals(self) -> ApprovalCommands:
        """Handlers of `/approve` and `/deny`."""
        ...

    @property
    def side_requests(self) -> SideRequestCommands:
        """Handlers of commands about models and costs."""
        ...

    async def read_state(self, key: str) -> ConversationState:
        """Return the present state of a conversation."""
        ...

    async def list_sessions(self, key: str) -> Sequence[Session]:
        """Return the sessions of a conversation, the newest first."""
        ...

    def running_turns(self) -> Sequence[tuple[str, RunningTurn]]:
        """Return all running turns with the keys of their conversations."""
        ...

    async def stop_all(self, person: str) -> int:
        """Stop all running turns on behalf of a person and return their number."""
        ...

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        ...

    def is_restarting(self) -> bool:
        """Return True while the gateway shuts down."""
        ...

    def crash_count(self) -> int:
        """Return the number of crashes that led to safe mode; 0 outside of safe mode."""
        ...

    def degraded_parts(self) -> Mapping[str, str]:
        """Return the problems of models and MCP servers, by name."""
        ...


class CommandCall(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a command."""

    key: str
    args: str
    context: CommandContext  # `address` receives the reply, `inbox` is the stored command
    role: Role
    principal: str
    name: str
    direct: bool
    command_template: str  # the platform's form of a command, such as `/{word}`
    services: CommandServices


CommandHandler = Callable[[CommandCall], Awaitable[CommandOutcome]]


class Command(msgspec.Struct, frozen=True):
    """A command as data; role check, help text and platform menus are derived from it."""

    word: str
    summary: str
    handler: CommandHandler
    aliases: tuple[str, ...] = ()
    args: str = ""
    role: Role = Role.MEMBER
    private: bool = False  # the answer is only for the person who asked, where the platform can
    admin_args: str = ""  # the form for admins, if it differs from `args`

    def args_for(self, role: Role) -> str:
        """Return the arguments that a role may use."""
        return self.admin_args if self.admin_args and role is Role.ADMIN else self.args
