"""From an event of a platform to the conversation it belongs to: decide, store, then hand on.

Storing comes before the platform is told that the event arrived, and access is decided before
storing, because what is not meant for us is kept without its text.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec

from gateway.access.pairing import claim_in
from gateway.access.policy import (
    OWNERS,
    Allowed,
    Bot,
    Decision,
    NotAddressed,
    Policy,
    Role,
    Stranger,
    decide,
)
from gateway.delivery.view import write_address
from gateway.inbound import routing
from gateway.inbound.decisions import Decision as Decided
from gateway.inbound.rate_limit import MessageLimit
from gateway.inbound.reactions import Receipts
from gateway.inbound.reader import Reader, origin_of
from gateway.notices.catalogue import Fields
from gateway.settings import Settings
from platforms.core.contract import (
    Accepted,
    Inbound,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
)
from sessions.changes import SetInbox
from sessions.conversation.events import (
    Arrived,
    Command,
    Event,
    Missed,
    Rewritten,
    Withdrawn,
)
from sessions.records import InboxEntry, InboxState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock, rfc3339
from sessions.values.ids import Ids
from sessions.values.steady_clock import Steady

log = logging.getLogger(__name__)

_REMEMBERED = 1_000

Post = Callable[[str, Event], None]
CarryOut = Callable[[InboxEntry, Inbound, Allowed], Awaitable[None]]
Tell = Callable[[str, InboxEntry, Fields], Awaitable[None]]
Meet = Callable[[InboundMessage, Stranger, str], Awaitable[None]]


class NotTaken(msgspec.Struct, frozen=True):
    """Why something was not taken in: not allowed, or over the limit of messages a minute."""

    limit: int = 0


class Reception:
    """Where every event of every platform comes in."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        settings: Callable[[], Settings],
        reader: Reader,
        policy: Callable[[], Policy],
        words: frozenset[str],
        post: Post,
        carry_out: CarryOut,
        tell: Tell,
        meet: Meet,
        receipts: Receipts,
        restored_at: int = 0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._reader = reader
        self._policy = policy
        self._words = words
        self._post = post
        self._carry_out = carry_out
        self._tell = tell
        self._meet = meet
        self._receipts = receipts
        self._restored_at = restored_at  # what is older and not known may be answered already
        self._told_restored: set[str] = set()  # chats
        self._limit = MessageLimit()
        self._steady = Steady(clock)
        self._begun: dict[str, None] = {}  # commands of late, by inbox row: none is begun twice

    async def receive(self, event: Inbound) -> Accepted:
        """See `platforms.core.contract.Inbox`."""
        policy = self._policy()
        decision = decide(policy, event)
        if policy.claim and isinstance(decision, Allowed) and _is_claim(event):
            # Who is let in already may still be the owner to be; the code must not reach a model.
            decision = Stranger(decision.principal, direct=True)
        if not isinstance(decision, Allowed):
            return await self._turned_away(event, decision)
        match event:
            case InboundMessage():
                return await self._message(event, decision)
            case InboundAction():
                return await self._command(event, decision, Decided.BUTTON)
            case InboundEdit() | InboundDelete():
                return await self._correction(event)

    async def ask(self, event: InboundMessage) -> InboxEntry | NotTaken:
        """Take in what a program asks: it gets no notice, but is told here what became of it.

        Gives the row under which it is stored; one that was stored before it is the older one.
        """
        allowed = decide(self._policy(), event)
        if not isinstance(allowed, Allowed):
            return NotTaken()
        limit = self._limit_of(allowed.principal)
        if limit and not self._limit.allows(allowed.principal, limit, self._clock.now()):
            return NotTaken(limit)
        entry = self._entry(event, InboxState.WAITING, allowed.role.name.lower())
        if await self._store.accept(entry):
            self._post(entry.key, Arrived(self._reader.pending(entry)))
            return entry
        await self._look_again(entry)
        return await self._store.inbox_entry(entry.source, entry.event) or entry

    async def again(self, entry: InboxEntry, event: Inbound) -> None:
        """Carry out a command that was stored, and not carried out, before the process died."""
        decision = decide(self._policy(), event)
        if isinstance(decision, Allowed):
            await self._carry_out(entry, event, decision)
        else:
            done = SetInbox((entry.id,), InboxState.IGNORED, self._clock.now())
            await self._store.apply(done)

    # --- let in -------------------------------------------------------------------------------

    async def _message(self, event: InboundMessage, allowed: Allowed) -> Accepted:
        if event.at < self._restored_at:
            return await self._before_restore(event)
        known = routing.parse_command(event.text, self._words)
        if known and not self._reader.is_message(known):
            is_known = isinstance(known, routing.Command)
            word = known.word if is_known else Decided.UNKNOWN_COMMAND
            return await self._command(event, allowed, word)
        now = self._clock.now()
        stale_after = float(self._settings().gateway.stale_after)
        if routing.is_stale(self._steady.age(event.at), stale_after):
            fields = {"when": rfc3339(event.at)[:16].replace("T", " ")}
            return await self._not_taken(event, Decided.STALE, "stale", fields)
        limit = self._limit_of(allowed.principal)
        if limit and not self._limit.allows(allowed.principal, limit, now):
            return await self._not_taken(event, Decided.TOO_MANY, "too_many", {"limit": limit})
        entry = self._entry(event, InboxState.WAITING, f"{allowed.role.name.lower()}")
        if not await self._store.accept(entry):
            await self._look_again(entry)
            return Accepted.DUPLICATE
        self._receipts.taken_in(entry)
        self._post(entry.key, Arrived(self._reader.pending(entry)))
        return Accepted.STORED

    async def _look_again(self, entry: InboxEntry) -> None:
        """It was stored before; if whoever stored it was cut off right then, nobody took it."""
        known = await self._store.inbox_entry(entry.source, entry.event)
        if known and known.state is InboxState.WAITING:
            self._post(known.key, Missed(known.id, known.source, known.event))

    async def _command(self, event: Inbound, allowed: Allowed, decision: str) -> Accepted:
        entry = self._entry(event, InboxState.COMMAND, decision)
        accepted = Accepted.STORED
        if not await self._store.accept(entry):
            accepted = Accepted.DUPLICATE
            known = await self._store.inbox_entry(entry.source, entry.event)
            if known is None or known.state is not InboxState.COMMAND or known.id in self._begun:
                return accepted
            entry = known  # stored, and then something went wrong: now it is carried out
        self._begun[entry.id] = None
        if len(self._begun) > _REMEMBERED:
            del self._begun[next(iter(self._begun))]
        carried_out = False
        try:
            await self._carry_out(entry, event, allowed)
            carried_out = True
        finally:
            if not carried_out:
                self._begun.pop(entry.id, None)
        return accepted

    async def _not_taken(
        self, event: InboundMessage, decision: str, notice: str, fields: Fields
    ) -> Accepted:
        entry = self._entry(event, InboxState.REFUSED, decision)
        if not await self._store.accept(entry):
            return Accepted.DUPLICATE
        await self._tell(notice, entry, fields)
        return Accepted.STORED

    async def _before_restore(self, event: InboundMessage) -> Accepted:
        """Told once in each chat, whatever is read there again."""
        place = source_of(event)
        entry = self._entry(event, InboxState.REFUSED, Decided.BEFORE_RESTORE)
        if not await self._store.accept(entry):
            await self._look_again(entry)
            return Accepted.DUPLICATE
        if place not in self._told_restored:
            self._told_restored.add(place)
            when = rfc3339(self._restored_at)[:16].replace("T", " ")
            await self._tell("restored", entry, {"when": when})
        return Accepted.STORED

    async def _correction(self, event: InboundEdit | InboundDelete) -> Accepted:
        """An edit or delete reaches a message that still waits; later it changes nothing.

        It is carried out, then noted: cut off in between it comes again, and does no harm. What it
        says is kept in the message that it changes alone, for others may not have been meant for us.
        """
        source = source_of(event)
        if await self._store.inbox_entry(source, event.id):
            return Accepted.DUPLICATE
        old = await self._store.inbox_entry(source, event.message)
        if old and old.state in {InboxState.WAITING, InboxState.HELD}:
            await self._corrected(old, event)
        known = old is not None and old.state is not InboxState.IGNORED
        state = InboxState.DONE if known else InboxState.IGNORED
        decision = Decided.DELETE if isinstance(event, InboundDelete) else Decided.EDIT
        entry = self._entry(_without_words(event), state, decision)
        if not known:
            entry = msgspec.structs.replace(entry, payload=None)
        if not await self._store.accept(entry):
            return Accepted.DUPLICATE
        return Accepted.STORED if known else Accepted.IGNORED

    async def _corrected(self, old: InboxEntry, event: InboundEdit | InboundDelete) -> None:
        if isinstance(event, InboundDelete):
            self._post(old.key, Withdrawn(old.id))
        elif old.payload:
            changed = self._reader.rewritten(old, event)
            await self._store.replace_payload(old.id, changed.payload)
            self._post(old.key, Rewritten(old.id, self._reader.pending(changed).message))

    # --- turned away --------------------------------------------------------------------------

    async def _turned_away(self, event: Inbound, decision: Decision) -> Accepted:
        match decision:
            case NotAddressed():
                why = Decided.NOT_ADDRESSED
            case Bot():
                why = Decided.BOT
            case _:
                why = Decided.NOT_ALLOWED
        entry = self._entry(event, InboxState.IGNORED, why)
        if not await self._store.accept(msgspec.structs.replace(entry, payload=None)):
            return Accepted.DUPLICATE
        log.debug("%s: %s", entry.key, why)
        if isinstance(decision, Stranger) and isinstance(event, InboundMessage):
            await self._meet(event, decision, origin_of(entry))
        return Accepted.IGNORED

    # --- helpers ------------------------------------------------------------------------------

    def _entry(self, event: Inbound, state: InboxState, decision: str) -> InboxEntry:
        place = event.address
        return InboxEntry(
            id=self._ids.new("i"),
            source=source_of(event),
            event=event.id,
            key=str(routing.key_of(event, self._settings().sessions.group_scope)),
            address=write_address(place),
            state=state,
            payload=msgspec.json.encode(event),
            received_at=self._clock.now(),
            decision=decision,
        )

    def _limit_of(self, principal: str) -> int | None:
        """Messages a minute; the owner at this machine has a limit only where one is written."""
        limits = self._settings().limits
        own = limits.users.get(principal)
        usual = None if principal in OWNERS else limits.messages_per_minute
        return (own and own.messages_per_minute) or usual


def _without_words(event: InboundEdit | InboundDelete) -> InboundEdit | InboundDelete:
    """Which message it changes, for `holdfast why`; not what it says now."""
    return msgspec.structs.replace(event, parts=()) if isinstance(event, InboundEdit) else event


def source_of(event: Inbound) -> str:
    """Where an event's id is unique: platform, account and chat."""
    place = event.address
    return f"{place.platform}@{place.account}:{place.chat}"


def _is_claim(event: Inbound) -> bool:
    return isinstance(event, InboundMessage) and event.direct and bool(claim_in(event.text))


def by(entry: InboxEntry, allowed: Allowed) -> Command:
    """Who gave a command, in the words of the session machine."""
    admin = allowed.role is Role.ADMIN
    return Command(entry.address, allowed.principal, admin, entry.id, origin_of(entry))
