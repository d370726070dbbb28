"""Carries out commands and buttons, and tells people things outside of a turn."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from gateway.access.people import People
from gateway.access.policy import Allowed, Stranger
from gateway.approvals.broker import Approvals
from gateway.approvals.rules import places_of
from gateway.commands.contract import Act, Call, Outcome, Taken, Tell
from gateway.commands.registry import COMMANDS
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import write_address
from gateway.inbound.reader import origin_of
from gateway.inbound.reception import by
from gateway.inbound.routing import Command, Unknown, parse_command
from gateway.notices.catalogue import Fields
from gateway.notices.compose import Announcer, command_form
from gateway.process.restart import Restart
from gateway.side_requests.service import Asides
from platforms.core.contract import Address, Capabilities, Inbound, InboundAction, InboundMessage
from sessions.changes import Change, PutItem, SetInbox
from sessions.conversation.actor import Unhandled
from sessions.conversation.events import Begin, Event, Resume, Retry, RunningTurn, State, Stop
from sessions.conversation.events import Command as By
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.records import InboxEntry, InboxState, Session
from sessions.store.store import SessionStore
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_ASK_SECONDS = 5.0


class Desk:
    """See `gateway.commands.contract.Desk` for what command handlers use of it."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        pool: SessionPool,
        people: People,
        announcer: Announcer,
        delivery: Delivery,
        capabilities: Callable[[Address], Capabilities | None],
        stopping: asyncio.Event,
        questions: Approvals,
        asides: Asides,
        restart: Restart,
        crashes: int = 0,
    ) -> None:
        self.restart = restart
        self.questions = questions
        self.asides = asides
        self._store = store
        self._clock = clock
        self._pool = pool
        self._people = people
        self._announcer = announcer
        self._delivery = delivery
        self._capabilities = capabilities
        self._stopping = stopping
        self._crashes = crashes
        self._one_at_a_time = asyncio.Lock()  # to stop all: nothing is counted twice

    # --- carrying out ---------------------------------------------------------------------------

    async def carry_out(self, entry: InboxEntry, event: Inbound, allowed: Allowed) -> None:
        """Do what a stored command or button says; its row is done with the change it makes."""
        try:
            outcome = await self._outcome(entry, event, allowed)
        except (TimeoutError, Unhandled, StoreError) as error:
            log.warning(
                "%s could not be carried out: %s", entry.id, str(error) or "it took too long"
            )
            outcome = Tell("not_now")
        match outcome:
            case Act(event=act):
                self._pool.post(entry.key, act)
            case Tell(notice=notice, fields=fields, urgent=urgent):
                done = SetInbox((entry.id,), InboxState.DONE, self._clock.now())
                origin = origin_of(entry)
                await self.tell(notice, entry.address, fields, done, origin=origin, urgent=urgent)
            case Taken():
                pass

    async def _outcome(self, entry: InboxEntry, event: Inbound, allowed: Allowed) -> Outcome:
        if isinstance(event, InboundAction):
            return await self._pressed(entry, event, allowed)
        assert isinstance(event, InboundMessage)  # noqa: S101 - edits and deletes are no commands
        return await self._commanded(entry, event, allowed)

    async def _commanded(
        self, entry: InboxEntry, event: InboundMessage, allowed: Allowed
    ) -> Outcome:
        parsed = parse_command(event.text, COMMANDS.words)
        if isinstance(parsed, Unknown):
            form = self._form(event.address)
            fields = {"word": form.replace("{word}", parsed.word)}
            if parsed.nearest:
                fields["nearest"] = form.replace("{word}", parsed.nearest)
            return Tell("unknown_command", fields)
        assert isinstance(parsed, Command)  # noqa: S101 - stored as a command because it is one
        call = Call(
            key=entry.key,
            args=parsed.args,
            by=by(entry, allowed),
            role=allowed.role,
            principal=allowed.principal,
            name=event.sender.name,
            direct=event.direct,
            form=self._form(event.address),
            desk=self,
        )
        return await COMMANDS.run(parsed.word, call)

    async def _pressed(self, entry: InboxEntry, event: InboundAction, allowed: Allowed) -> Outcome:
        """What stands behind a button is bound to one turn: an old button does nothing new."""
        who = by(entry, allowed)
        action, _, turn = event.action.partition(":")
        match action:
            case "stop":
                return self._stopped(entry, who, turn)
            case "retry":
                return Act(Retry(who, None, turn=turn))
            case "approve" | "deny":
                return await self.questions.pressed(
                    turn, who, event.address, role=allowed.role, allow=action == "approve"
                )
            case "resume.go":
                return Act(Resume(who, None, go_on=True, turn=turn))
            case _:
                return Tell("text", {"text": "This button does nothing any more."})

    def _stopped(self, entry: InboxEntry, who: By, turn: str) -> Outcome:
        """In a room people see each other's answers, which are not theirs to stop."""
        for key, running in self._pool.running():
            if turn and running.id == turn and key != entry.key:
                if not who.admin:
                    return Tell("not_yours")
                self._pool.post(key, Stop(who, turn))
                return Taken()
        return Act(Stop(who, turn))

    async def tell(
        self,
        notice: str,
        address: str,
        fields: Fields,
        *changes: Change,
        origin: str = "",
        urgent: bool = False,
    ) -> None:
        """Show a notice, together with other changes in one transaction."""
        item = self._announcer.item(notice, address, fields, origin=origin, urgent=urgent)
        await self._delivery.put(*changes, PutItem(item))

    async def answer(self, notice: str, entry: InboxEntry, fields: Fields) -> None:
        """Answer something that was received with a notice."""
        await self.tell(notice, entry.address, fields, origin=origin_of(entry))

    async def meet(self, message: InboundMessage, stranger: Stranger, origin: str) -> None:
        """Answer somebody who is not let in, and tell the admins where they can be reached."""
        greeting = await self._people.meet(message, stranger.principal, direct=stranger.direct)
        if greeting.notice:
            address = write_address(message.address)
            await self.tell(greeting.notice, address, greeting.fields, origin=origin)
        if greeting.admins:
            for place in places_of(self._people.admins()):
                if self._capabilities(place):
                    await self.tell(greeting.admins, write_address(place), greeting.admin_fields)
            log.info("%s: %s", greeting.admins, greeting.admin_fields.get("principal"))

    def _form(self, address: Address) -> str:
        return command_form(self._capabilities(address))

    # --- what handlers use ----------------------------------------------------------------------

    async def look(self, key: str) -> State:
        """How a conversation stands."""
        return await self.ask(key, Begin())

    async def sessions(self, key: str) -> Sequence[Session]:
        """The sessions of a conversation, the newest first."""
        return await self._store.sessions(key=key)

    def running(self) -> Sequence[tuple[str, RunningTurn]]:
        """All turns under way."""
        return self._pool.running()

    async def stop_all(self, who: By) -> int:
        """Stop everything that runs or is about to; each chat is told by its own notice."""
        async with self._one_at_a_time, asyncio.TaskGroup() as group:
            stops = [group.create_task(self._stop_one(key, who)) for key in self._pool.at_work()]
        return sum(stop.result() for stop in stops)

    async def _stop_one(self, key: str, who: By) -> bool:
        """Stop one conversation; says whether there was something to stop."""
        try:
            # Its owner knows: a message may be accepted and not begun, a turn be told to end already.
            turn = (await self.ask(key, Begin())).turn
            if turn is None or turn.leaving:
                return False
            by = By(turn.address, who.person, admin=True)
            earlier = (await self.ask(key, Stop(by, quiet=True))).earlier
        except (TimeoutError, Unhandled) as error:
            log.warning("%s could not be stopped: %s", key, str(error) or "it took too long")
            return False
        return earlier is not None and earlier.session == turn.session

    async def ask(self, key: str, event: Event) -> State:
        """Hand an event to the owner of a conversation and wait until it is carried out."""
        async with asyncio.timeout(_ASK_SECONDS):
            return await self._pool.ask(key, event)

    def now(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.now()

    def restarting(self) -> bool:
        """Whether the gateway is on its way down."""
        return self._stopping.is_set()

    def crashes(self) -> int:
        """How many made it start in safe mode; 0: it is not in safe mode."""
        return self._crashes

    async def claim(self, principal: str, name: str, code: str) -> bool:
        """Make somebody the first admin, if the code is good."""
        return await self._people.claim(principal, name, code)

    async def pair_list(self) -> str:
        """Open requests and people let in, as lines."""
        lines = [
            f"{each['principal']} {each['name']}: {each['state']}" for each in self._people.listed()
        ]
        return "\n".join(lines) or "Nobody asks to be let in, and nobody was let in by a code."

    async def pair_approve(self, code: str) -> tuple[str, str] | None:
        """Let in whom the code belongs to, and tell them."""
        found = await self._people.approve(code)
        if found:
            platform, _, chat = found[0].partition(":")
            address = Address(platform=platform, chat=chat)
            if self._capabilities(address):
                await self.tell("paired", write_address(address), {})
        return found

    async def pair_revoke(self, principal: str) -> bool:
        """Let somebody in no more."""
        return await self._people.revoke(principal)
