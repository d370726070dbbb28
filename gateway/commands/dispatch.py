"""`Dispatcher`: runs stored commands and buttons, and sends their replies."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from gateway.access.policy import Allowed
from gateway.commands.contract import (
    CommandCall,
    CommandFeatures,
    CommandOutcome,
    ForwardEvent,
    NoticeReply,
    ReplyLater,
)
from gateway.commands.registry import COMMANDS
from gateway.inbound.reader import origin_of
from gateway.inbound.reception import command_context
from gateway.inbound.routing import CommandMessage, ReceivedCommand, UnknownCommand
from gateway.notices.compose import command_template
from gateway.notices.sender import NoticeSender
from platforms.core.actions import ButtonAction, read_action
from platforms.core.contract import Address, Capabilities, InboundAction
from sessions.changes import SetInbox
from sessions.conversation.actor import EventNotHandled
from sessions.conversation.events import (
    CommandContext,
    ConversationState,
    Event,
    ResumeSession,
    RetryTurn,
    RunningTurn,
    StartWaiting,
    StopTurn,
)
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.records import InboxEntry, InboxState, Session
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.notices import NoticeFields, NoticeId

log = logging.getLogger(__name__)

_ASK_TIMEOUT_SECONDS = 5.0


class Dispatcher:
    """Runs commands and buttons; implements `gateway.commands.contract.CommandServices`."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        pool: SessionPool,
        notices: NoticeSender,
        capabilities: Callable[[Address], Capabilities | None],
        stopping: asyncio.Event,
        features: CommandFeatures,
        crash_count: int = 0,
    ) -> None:
        self.access = features.access
        self.approvals = features.approvals
        self.side_requests = features.side_requests
        self.prompts = features.prompts
        self.mcp = features.mcp
        self.restart = features.restart
        self._read_degraded_parts = features.degraded_parts
        self._store = store
        self._clock = clock
        self._pool = pool
        self._notices = notices
        self._capabilities = capabilities
        self._stopping = stopping
        self._crash_count = crash_count
        self._stop_all_lock = asyncio.Lock()  # so that two `/stop all` do not count a turn twice

    # --- commands and buttons -------------------------------------------------------------------

    async def dispatch(self, entry: InboxEntry, command: ReceivedCommand, allowed: Allowed) -> None:
        """Run a stored command or button; its inbox row is closed with the change that it causes."""
        try:
            outcome = await self._handle(entry, command, allowed)
        except (TimeoutError, EventNotHandled, StoreError) as error:
            log.warning("%s: command %s failed: %s", entry.key, entry.id, str(error) or "timeout")
            outcome = NoticeReply(NoticeId.NOT_NOW)
        match outcome:
            case ForwardEvent(event=forwarded):
                self._pool.post(entry.key, forwarded)
            case NoticeReply(notice=notice, fields=fields, urgent=urgent):
                done = SetInbox(ids=(entry.id,), state=InboxState.DONE, at=self._clock.now())
                origin = origin_of(entry)
                if isinstance(command, CommandMessage) and _is_private(command):
                    await self._notices.answer_privately(
                        notice, command.message, fields, done, origin=origin
                    )
                    return
                await self._notices.send(
                    notice,
                    entry.address,
                    fields,
                    done,
                    origin=origin,
                    urgent=urgent,
                    deferred=not urgent,
                )
            case ReplyLater():
                pass

    async def _handle(
        self, entry: InboxEntry, command: ReceivedCommand, allowed: Allowed
    ) -> CommandOutcome:
        match command:
            case InboundAction():
                return await self._handle_button(entry, command, allowed)
            case CommandMessage():
                return await self._run_command(entry, command, allowed)

    async def _run_command(
        self, entry: InboxEntry, command: CommandMessage, allowed: Allowed
    ) -> CommandOutcome:
        event, parsed = command.message, command.parsed
        if isinstance(parsed, UnknownCommand):
            template = self._command_template(event.address)
            fields = {"word": template.replace("{word}", parsed.word)}
            if parsed.suggestion:
                fields["nearest"] = template.replace("{word}", parsed.suggestion)
            return NoticeReply(NoticeId.UNKNOWN_COMMAND, fields)
        call = CommandCall(
            key=entry.key,
            args=parsed.args,
            context=command_context(entry, allowed),
            role=allowed.role,
            principal=allowed.principal,
            name=event.sender.name,
            direct=event.direct,
            command_template=self._command_template(event.address),
            services=self,
        )
        return await COMMANDS.run(parsed.word, call)

    async def _handle_button(
        self, entry: InboxEntry, event: InboundAction, allowed: Allowed
    ) -> CommandOutcome:
        """Run the action of a button, which names a turn: an old button cannot affect a new turn."""
        who = command_context(entry, allowed)
        action, subject = read_action(event.action)
        match action:
            case ButtonAction.STOP:
                return self._stop_by_button(entry, who, subject)
            case ButtonAction.RETRY:
                return ForwardEvent(RetryTurn(who, None, turn=subject))
            case ButtonAction.APPROVE | ButtonAction.DENY:
                return await self.approvals.on_button(
                    subject, who, role=allowed.role, allow=action is ButtonAction.APPROVE
                )
            case ButtonAction.RESUME:
                return ForwardEvent(
                    ResumeSession(context=who, session=None, resume_turn=True, turn=subject)
                )
            case None:
                return NoticeReply(NoticeId.PLAIN_TEXT, {"text": "This button no longer works."})

    def _stop_by_button(self, entry: InboxEntry, who: CommandContext, turn: str) -> CommandOutcome:
        """Stop the turn of a button; only an admin may stop another person's turn in a room."""
        for key, running in self._pool.running_turns():
            if turn and running.id == turn and key != entry.key:
                if not who.admin:
                    return NoticeReply(NoticeId.NOT_YOURS)
                self._pool.post(key, StopTurn(who, turn))
                return ReplyLater()
        return ForwardEvent(StopTurn(who, turn))

    async def reply(self, notice: NoticeId, entry: InboxEntry, fields: NoticeFields) -> None:
        """Reply to a stored message with a notice, which goes after the answers of the chat."""
        await self._notices.send(
            notice, entry.address, fields, origin=origin_of(entry), deferred=True
        )

    def _command_template(self, address: Address) -> str:
        return command_template(self._capabilities(address))

    # --- services for handlers: see `CommandServices` -------------------------------------------

    async def read_state(self, key: str) -> ConversationState:
        """Return the present state of a conversation."""
        return await self.ask(key, StartWaiting())

    async def list_sessions(self, key: str) -> Sequence[Session]:
        """Return the sessions of a conversation, the newest first."""
        return await self._store.sessions.list(key=key)

    def running_turns(self) -> Sequence[tuple[str, RunningTurn]]:
        """Return all running turns with the keys of their conversations."""
        return self._pool.running_turns()

    async def stop_all(self, person: str) -> int:
        """Stop all running and starting turns and return their number; each chat gets a notice."""
        async with self._stop_all_lock, asyncio.TaskGroup() as group:
            stops = [
                group.create_task(self._stop_one(key, person)) for key in self._pool.busy_keys()
            ]
        return sum(stop.result() for stop in stops)

    async def _stop_one(self, key: str, person: str) -> bool:
        """Stop the turn of one conversation; return True if there was one."""
        try:
            # Ask the actor: a message may be accepted but not started, a turn already cancelled.
            turn = (await self.ask(key, StartWaiting())).turn
            if turn is None or turn.cancelling:
                return False
            by = CommandContext(address=turn.address, person=person, admin=True)
            earlier = (await self.ask(key, StopTurn(by, quiet=True))).resumable
        except (TimeoutError, EventNotHandled) as error:
            log.warning("%s: turn not stopped: %s", key, str(error) or "timeout")
            return False
        return earlier is not None and earlier.session == turn.session

    async def ask(self, key: str, event: Event) -> ConversationState:
        """Send an event to a conversation's actor and return the state after it.

        Raises `TimeoutError` after a few seconds, or `EventNotHandled`.
        """
        async with asyncio.timeout(_ASK_TIMEOUT_SECONDS):
            return await self._pool.ask(key, event)

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self._clock.now()

    def is_restarting(self) -> bool:
        """Return True while the gateway shuts down."""
        return self._stopping.is_set()

    def crash_count(self) -> int:
        """Return the number of crashes that led to safe mode; 0 outside of safe mode."""
        return self._crash_count

    def degraded_parts(self) -> Mapping[str, str]:
        """Return the problems of models and MCP servers, by name."""
        return self._read_degraded_parts()


def _is_private(command: CommandMessage) -> bool:
    """Return True for a command in a room whose answer is only for its sender."""
    if command.message.direct or isinstance(command.parsed, UnknownCommand):
        return False
    return command.parsed.word in COMMANDS.words and COMMANDS.is_private(command.parsed.word)
