"""Carries out commands and buttons, and tells people things outside of a turn."""

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
    """See `gateway.commands.contract.CommandServices` for what command handlers use of it."""

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
        self._stop_all_lock = asyncio.Lock()  # to stop all: nothing is counted twice

    # --- carrying out ---------------------------------------------------------------------------

    async def dispatch(self, entry: InboxEntry, event: Inbound, allowed: Allowed) -> None:
        """Do what a stored command or button says; its row is done with the change it makes."""
        try:
            outcome = await self._handle(entry, event, allowed)
        except (TimeoutError, EventNotHandled, StoreError) as error:
            log.warning(
                "%s could not be carried out: %s", entry.id, str(error) or "it took too long"
            )
            outcome = NoticeReply(NoticeId.NOT_NOW)
        match outcome:
            case ForwardEvent(event=act):
                self._pool.post(entry.key, act)
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
            form = self._command_template(event.address)
            fields = {"word": form.replace("{word}", parsed.word)}
            if parsed.suggestion:
                fields["nearest"] = form.replace("{word}", parsed.suggestion)
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
        """What stands behind a button is bound to one turn: an old button does nothing new."""
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
                return NoticeReply(
                    NoticeId.PLAIN_TEXT, {"text": "This button does nothing any more."}
                )

    def _stop_by_button(self, entry: InboxEntry, who: CommandContext, turn: str) -> CommandOutcome:
        """In a room people see each other's answers, which are not theirs to stop."""
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
        """Show a notice, together with other changes in one transaction."""
        item = self._announcer.notice_item(notice, address, fields, origin=origin, urgent=urgent)
        await self._delivery.put(*changes, PutItem(item))

    async def reply(self, notice: NoticeId, entry: InboxEntry, fields: NoticeFields) -> None:
        """Answer something that was received with a notice."""
        await self.send_notice(notice, entry.address, fields, origin=origin_of(entry))

    async def greet_stranger(
        self, message: InboundMessage, stranger: Stranger, origin: str
    ) -> None:
        """Answer somebody who is not let in, and tell the admins where they can be reached."""
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
            log.info("%s: %s", greeting.admin_notice, greeting.admin_fields.get("principal"))

    def _command_template(self, address: Address) -> str:
        return command_template(self._capabilities(address))

    # --- what handlers use ----------------------------------------------------------------------

    async def read_state(self, key: str) -> ConversationState:
        """How a conversation stands."""
        return await self.ask(key, StartWaiting())

    async def list_sessions(self, key: str) -> Sequence[Session]:
        """The sessions of a conversation, the newest first."""
        return await self._store.sessions.list(key=key)

    def running_turns(self) -> Sequence[tuple[str, RunningTurn]]:
        """All turns under way."""
        return self._pool.running_turns()

    async def stop_all(self, who: CommandContext) -> int:
        """Stop everything that runs or is about to; each chat is told by its own notice."""
        async with self._stop_all_lock, asyncio.TaskGroup() as group:
            stops = [group.create_task(self._stop_one(key, who)) for key in self._pool.busy_keys()]
        return sum(stop.result() for stop in stops)

    async def _stop_one(self, key: str, who: CommandContext) -> bool:
        """Stop one conversation; says whether there was something to stop."""
        try:
            # Its owner knows: a message may be accepted and not begun, a turn be told to end already.
            turn = (await self.ask(key, StartWaiting())).turn
            if turn is None or turn.cancelling:
                return False
            by = CommandContext(address=turn.address, person=who.person, admin=True)
            earlier = (await self.ask(key, StopTurn(by, quiet=True))).resumable
        except (TimeoutError, EventNotHandled) as error:
            log.warning("%s could not be stopped: %s", key, str(error) or "it took too long")
            return False
        return earlier is not None and earlier.session == turn.session

    async def ask(self, key: str, event: Event) -> ConversationState:
        """Hand an event to the owner of a conversation and wait until it is carried out."""
        async with asyncio.timeout(_ASK_TIMEOUT_SECONDS):
            return await self._pool.ask(key, event)

    def now(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.now()

    def is_restarting(self) -> bool:
        """Whether the gateway is on its way down."""
        return self._stopping.is_set()

    def crash_count(self) -> int:
        """How many made it start in safe mode; 0: it is not in safe mode."""
        return self._crash_count

    async def claim(self, principal: str, name: str, code: str) -> bool:
        """Make somebody the first admin, if the code is good."""
        return await self._people.claim(principal, name, code)

    async def pair_list(self) -> str:
        """Open requests and people let in, as lines."""
        lines = [
            f"{each['principal']} {each['name']}: {each['state']}"
            for each in self._people.list_people()
        ]
        return "\n".join(lines) or "Nobody asks to be let in, and nobody was let in by a code."

    async def pair_approve(self, code: str) -> tuple[str, str] | None:
        """Let in whom the code belongs to, and tell them."""
        found = await self._people.approve(code)
        if found:
            platform, _, chat = found[0].partition(":")
            address = Address(platform=platform, chat=chat)
            if self._capabilities(address):
                await self.send_notice(NoticeId.PAIRED, write_address(address), {})
        return found

    async def pair_revoke(self, principal: str) -> bool:
        """Let somebody in no more."""
        return await self._people.revoke(principal)
