"""`Dispatcher`: runs stored commands and buttons, and sends notices outside of turns."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from gateway.access.people import People
from gateway.access.policy import Allowed, Stranger, admin_addresses
from gateway.commands.contract import (
    ApprovalCommands,
    CommandCall,
    CommandOutcome,
    ForwardEvent,
    NoticeReply,
    ReplyLater,
    RestartCommands,
    SideRequestCommands,
)
from gateway.commands.registry import COMMANDS
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import write_address
from gateway.inbound.reader import origin_of
from gateway.inbound.reception import command_context
from gateway.inbound.routing import ParsedCommand, UnknownCommand, parse_command
from gateway.notices.catalogue import NoticeFields
from gateway.notices.compose import NoticeComposer, command_template
from platforms.core.contract import Address, Capabilities, Inbound, InboundAction, InboundMessage
from sessions.changes import Change, PutItem, SetInbox
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
from sessions.values.notices import NoticeId

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
        people: People,
        announcer: NoticeComposer,
        delivery: Delivery,
        capabilities: Callable[[Address], Capabilities | None],
        stopping: asyncio.Event,
        approvals: ApprovalCommands,
        side_requests: SideRequestCommands,
        restart: RestartCommands,
        crash_count: int = 0,
    ) -> None:
        self.restart = restart
        self.approvals = approvals
        self.side_requests = side_requests
        self._store = store
        self._clock = clock
        self._pool = pool
        self._people = people
        self._announcer = announcer
        self._delivery = delivery
        self._capabilities = capabilities
        self._stopping = stopping
        self._crash_count = crash_count
        self._stop_all_lock = asyncio.Lock()  # so that two `/stop all` do not count a turn twice

    # --- commands and buttons -------------------------------------------------------------------

    async def dispatch(self, entry: InboxEntry, event: Inbound, allowed: Allowed) -> None:
        """Run a stored command or button; its inbox row is closed with the change that it causes."""
        try:
            outcome = await self._handle(entry, event, allowed)
        except (TimeoutError, EventNotHandled, StoreError) as error:
            log.warning("%s: command %s failed: %s", entry.key, entry.id, str(error) or "timeout")
            outcome = NoticeReply(NoticeId.NOT_NOW)
        match outcome:
            case ForwardEvent(event=forwarded):
                self._pool.post(entry.key, forwarded)
            case NoticeReply(notice=notice, fields=fields, urgent=urgent):
                done = SetInbox(ids=(entry.id,), state=InboxState.DONE, at=self._clock.now())
                origin = origin_of(entry)
                await self.send_notice(
                    notice, entry.address, fields, done, origin=origin, urgent=urgent
                )
            case ReplyLater():
                pass

    async def _handle(self, entry: InboxEntry, event: Inbound, allowed: Allowed) -> CommandOutcome:
        if isinstance(event, InboundAction):
            return await self._handle_button(entry, event, allowed)
        assert isinstance(event, InboundMessage)  # noqa: S101 - edits and deletes are no commands
        return await self._run_command(entry, event, allowed)

    async def _run_command(
        self, entry: InboxEntry, event: InboundMessage, allowed: Allowed
    ) -> CommandOutcome:
        parsed = parse_command(event.text, COMMANDS.words)
        if isinstance(parsed, UnknownCommand):
            template = self._command_template(event.address)
            fields = {"word": template.replace("{word}", parsed.word)}
            if parsed.suggestion:
                fields["nearest"] = template.replace("{word}", parsed.suggestion)
            return NoticeReply(NoticeId.UNKNOWN_COMMAND, fields)
        assert isinstance(parsed, ParsedCommand)  # noqa: S101 - stored as a command because it is one
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
        action, _, turn = event.action.partition(":")
        match action:
            case "stop":
                return self._stop_by_button(entry, who, turn)
            case "retry":
                return ForwardEvent(RetryTurn(who, None, turn=turn))
            case "approve" | "deny":
                return await self.approvals.on_button(
                    turn, who, role=allowed.role, allow=action == "approve"
                )
            case "resume.go":
                return ForwardEvent(
                    ResumeSession(context=who, session=None, resume_turn=True, turn=turn)
                )
            case _:
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

    async def send_notice(
        self,
        notice: NoticeId,
        address: str,
        fields: NoticeFields,
        *changes: Change,
        origin: str = "",
        urgent: bool = False,
    ) -> None:
        """Commit a notice together with other changes, and deliver it."""
        item = self._announcer.notice_item(notice, address, fields, origin=origin, urgent=urgent)
        await self._delivery.put(*changes, PutItem(item))

    async def reply(self, notice: NoticeId, entry: InboxEntry, fields: NoticeFields) -> None:
        """Reply to a stored message with a notice."""
        await self.send_notice(notice, entry.address, fields, origin=origin_of(entry))

    async def greet_stranger(
        self, message: InboundMessage, stranger: Stranger, origin: str
    ) -> None:
        """Reply to a person without access, and notify all reachable admins of the request."""
        greeting = await self._people.handle_stranger(
            message, stranger.principal, direct=stranger.direct
        )
        if greeting.notice:
            address = write_address(message.address)
            await self.send_notice(greeting.notice, address, greeting.fields, origin=origin)
        if greeting.admin_notice:
            for place in admin_addresses(self._people.admins()):
                if self._capabilities(place):
                    await self.send_notice(
                        greeting.admin_notice, write_address(place), greeting.admin_fields
                    )
            log.info(
                "%s: %s notified admins of %s",
                message.address.platform,
                greeting.admin_notice,
                greeting.admin_fields.get("principal"),
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

    async def stop_all(self, who: CommandContext) -> int:
        """Stop all running and starting turns and return their number; each chat gets a notice."""
        async with self._stop_all_lock, asyncio.TaskGroup() as group:
            stops = [group.create_task(self._stop_one(key, who)) for key in self._pool.busy_keys()]
        return sum(stop.result() for stop in stops)

    async def _stop_one(self, key: str, who: CommandContext) -> bool:
        """Stop the turn of one conversation; return True if there was one."""
        try:
            # Ask the actor: a message may be accepted but not started, a turn already cancelled.
            turn = (await self.ask(key, StartWaiting())).turn
            if turn is None or turn.cancelling:
                return False
            by = CommandContext(address=turn.address, person=who.person, admin=True)
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

    async def claim(self, principal: str, name: str, code: str) -> bool:
        """Make a person the first admin; False if the code is not valid."""
        return await self._people.claim(principal, name, code)

    async def pair_list(self) -> str:
        """Return open access requests and paired people, one per line."""
        lines = [
            f"{person['principal']} {person['name']}: {person['state']}"
            for person in self._people.list_people()
        ]
        return "\n".join(lines) or "There are no open requests and no paired people."

    async def pair_approve(self, code: str) -> tuple[str, str] | None:
        """Give access to the person with this code and notify them; None if no code matches."""
        approved = await self._people.approve(code)
        if approved:
            platform, _, chat = approved[0].partition(":")
            address = Address(platform=platform, chat=chat)
            if self._capabilities(address):
                await self.send_notice(NoticeId.PAIRED, write_address(address), {})
        return approved

    async def pair_revoke(self, principal: str) -> bool:
        """Remove a person's access; False if it was not given by pairing."""
        return await self._people.revoke(principal)
