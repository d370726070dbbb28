"""What a command is: its words, who may use it, and what carries it out.

A handler decides and reads; it neither sends nor writes. It answers with words to be told, or with
an event for the owner of the conversation, who does the rest.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from gateway.access.policy import Role
from gateway.notices.catalogue import NoticeFields
from sessions.conversation.events import (
    CommandContext,
    ConversationState,
    Event,
    RunningTurn,
)
from sessions.records import Session
from sessions.values.notices import NoticeId


class NoticeReply(msgspec.Struct, frozen=True):
    """Answer with a notice."""

    notice: NoticeId
    fields: NoticeFields = {}
    urgent: bool = False  # goes first in its chat


class ForwardEvent(msgspec.Struct, frozen=True):
    """Let the owner of the conversation do something."""

    event: Event


class ReplyLater(msgspec.Struct, frozen=True):
    """It takes a while: whoever took it will answer, and close the stored command with that."""


CommandOutcome = NoticeReply | ForwardEvent | ReplyLater


class ApprovalCommands(Protocol):
    """Answers to what tools ask; see `gateway.approvals.broker`."""

    async def answer(self, call: "CommandCall", *, allow: bool) -> CommandOutcome:
        """Allow or deny a tool call: the one whose code is given, or the only open one here."""
        ...

    async def on_button(
        self, question_id: str, who: CommandContext, *, role: Role, allow: bool
    ) -> CommandOutcome:
        """Allow or deny the tool call whose button was pressed."""
        ...


class SideRequestCommands(Protocol):
    """What is asked beside the conversation; see `gateway.side_requests.service`."""

    async def model(self, call: "CommandCall") -> CommandOutcome:
        """Show which model answers here and which others there are, or switch."""
        ...

    async def reasoning(self, call: "CommandCall") -> CommandOutcome:
        """Show or set how long the model may think here."""
        ...

    async def usage(self, call: "CommandCall") -> CommandOutcome:
        """What the last turn, this conversation and today cost."""
        ...

    async def compact(self, call: "CommandCall") -> CommandOutcome:
        """Put a summary in place of what was said so far."""
        ...

    async def btw(self, call: "CommandCall") -> CommandOutcome:
        """Answer a question that the conversation does not learn of."""
        ...


class RestartCommands(Protocol):
    """Restarts the gateway; see `gateway.process.restart`."""

    async def request_restart(self, call: "CommandCall") -> CommandOutcome:
        """Restart, and tell who asked when it is over."""
        ...


class CommandServices(Protocol):
    """What handlers may use of the gateway."""

    @property
    def restart(self) -> RestartCommands:
        """Restarts the gateway."""
        ...

    @property
    def approvals(self) -> ApprovalCommands:
        """Answers to what tools ask."""
        ...

    @property
    def side_requests(self) -> SideRequestCommands:
        """What is asked beside the conversation."""
        ...

    async def read_state(self, key: str) -> ConversationState:
        """How a conversation stands."""
        ...

    async def list_sessions(self, key: str) -> Sequence[Session]:
        """The sessions of a conversation, the newest first."""
        ...

    def running_turns(self) -> Sequence[tuple[str, RunningTurn]]:
        """All turns under way."""
        ...

    async def stop_all(self, context: CommandContext) -> int:
        """Stop everything that runs; says how much it was."""
        ...

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...

    def is_restarting(self) -> bool:
        """Whether the gateway is on its way down."""
        ...

    def crash_count(self) -> int:
        """How many made it start in safe mode; 0: it is not in safe mode."""
        ...

    async def claim(self, principal: str, name: str, code: str) -> bool:
        """Make somebody the first admin, if the code is good."""
        ...

    async def pair_list(self) -> str:
        """Open requests and people let in, as lines."""
        ...

    async def pair_approve(self, code: str) -> tuple[str, str] | None:
        """Let in whom the code belongs to: stable id and name; None when nobody has it."""
        ...

    async def pair_revoke(self, principal: str) -> bool:
        """Let somebody in no more."""
        ...


class CommandCall(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a command."""

    key: str
    args: str
    context: CommandContext  # its `address` is where an answer goes, its `inbox` the stored command
    role: Role
    principal: str
    name: str
    direct: bool
    command_template: str  # how a command is written there, such as `/{word}`
    services: CommandServices


CommandHandler = Callable[[CommandCall], Awaitable[CommandOutcome]]


class Command(msgspec.Struct, frozen=True):
    """A command as data: gate, help and the platforms' menus come from it."""

    word: str
    summary: str
    handler: CommandHandler
    aliases: tuple[str, ...] = ()
    args: str = ""
    role: Role = Role.MEMBER
