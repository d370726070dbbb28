"""Receives platform events: decides, stores, then passes them to their conversation.

An event is stored before the platform gets its acknowledgement. Access is decided before storing,
because messages not meant for the bot are stored without their text.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from gateway.access.api_keys import Requester
from gateway.access.pairing import find_claim_code
from gateway.access.policy import (
    Allowed,
    NotAddressed,
    Policy,
    Role,
    Stranger,
    Undecided,
    UnlistedBot,
    decide_access,
)
from gateway.inbound import routing
from gateway.inbound.decisions import InboxDecision
from gateway.inbound.rate_limit import MessageRateLimit, RefusalNotices
from gateway.inbound.reactions import MessageReactions
from gateway.inbound.reader import InboxReader, is_message_command, origin_of, read_event
from gateway.inbound.request_options import decode_options
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
    CommandContext,
    Event,
    MessageArrived,
    MessageDeleted,
    MessageEdited,
    MessageRedelivered,
)
from sessions.records import InboxEntry, InboxState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.steady_clock import SteadyClock
from sessions.values.text import count_of, format_time

log = logging.getLogger(__name__)

_REMEMBERED_COMMANDS = 1_000

MIN_CONTROLS_PER_MINUTE = 60
"""Uses of /stop and answers to approval requests per person, counted apart from messages."""

PostEvent = Callable[[str, Event], None]
DispatchCommand = Callable[[InboxEntry, routing.ReceivedCommand, Allowed], Awaitable[None]]
ReplyWithNotice = Callable[[NoticeId, InboxEntry, NoticeFields], Awaitable[None]]
GreetStranger = Callable[[InboundMessage, Stranger, str], Awaitable[None]]

_Refusal = NotAddressed | UnlistedBot | Stranger


MessageLimits = Callable[[str, Requester | None], Mapping[str, int]]
"""Returns the messages per minute for everyone whose limit counts: by the person of a message, and
the sender of an API request."""


class ReceptionRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules by which the reception decides about an event."""

    settings: Callable[[], Settings]  # the present ones, because a reload replaces them
    policy: Callable[[], Policy]
    message_limits: MessageLimits
    command_words: Callable[[], frozenset[str]]  # of all commands, including prompts
    prompt_words: Callable[[], frozenset[str]]  # of commands that become messages
    restored_at: int = 0  # unknown older messages may already be answered


class ReceptionHandlers(msgspec.Struct, frozen=True, kw_only=True):
    """Receivers of stored events."""

    post: PostEvent
    dispatch: DispatchCommand
    reply: ReplyWithNotice
    greet_stranger: GreetStranger


class MessageRejected(msgspec.Struct, frozen=True):
    """A request that was not accepted: no access, or over `limit` messages per minute."""

    limit: int = 0


def _log_received(entry: InboxEntry, text: str) -> None:
    """Log a stored message with its place and length, never with its text."""
    where = {"platform": entry.address.platform, "chat": entry.key, "inbox": entry.id}
    log.info("message received, %s", count_of(len(text), "character"), extra=where)


class Reception:
    """Entry point for the events of all platforms."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        rules: ReceptionRules,
        reader: InboxReader,
        reactions: MessageReactions,
        handlers: ReceptionHandlers,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._rules = rules
        self._reader = reader
        self._reactions = reactions
        self._handlers = handlers
        self._restore_notified_chats: set[str] = set()
        self._rate_limit = MessageRateLimit()
        self._control_limit = MessageRateLimit()
        self._refusal_notices = RefusalNotices()
        self._steady_clock = SteadyClock(clock)
        self._started_commands: dict[str, None] = {}
        """Inbox rows of recent commands, so that no command starts twice."""

    async def receive(self, event: Inbound) -> Accepted:
        """See `platforms.core.contract.Inbox`."""
        policy = self._rules.policy()
        decision = decide_access(policy, event)
        if policy.claim_open and isinstance(decision, Allowed) and _is_claim(event):
            # A person with access may still claim ownership; the code must not reach the model.
            decision = Stranger(decision.principal, direct=True)
        if isinstance(decision, Undecided):
            log.info("%s: access of %s is not known yet", source_of(event), decision.principal)
            return Accepted.UNDECIDED
        if not isinstance(decision, Allowed):
            return await self._turn_away(event, decision)
        match event:
            case InboundMessage():
                return await self._receive_message(event, decision, policy)
            case InboundAction():
                return await self._receive_command(event, decision, InboxDecision.BUTTON)
            case InboundEdit() | InboundDelete():
                return await self._receive_correction(event)

    async def receive_request(
        self, event: InboundMessage, requester: Requester
    ) -> InboxEntry | MessageRejected:
        """Accept a request from a program; the outcome is returned instead of sent as a notice.

        Returns the row under which the request is stored; for a repeated request, the earlier row.
        The result of a call that the model made is not counted as a message.
        """
        policy = self._rules.policy()
        allowed = decide_access(policy, event)
        if not isinstance(allowed, Allowed):
            return MessageRejected()
        limits = self._rules.message_limits(allowed.principal, requester)
        counted = {} if decode_options(event.wishes).continues_call else limits
        full = self._rate_limit.try_acquire_all(counted, self._clock.now())
        if full is not None:
            return MessageRejected(limits[full])
        entry = self._make_entry(event, InboxState.WAITING, allowed.role.name.lower())
        if await self._store.accept(entry):
            if await self._drop_if_revoked(entry, event, policy):
                return MessageRejected()
            _log_received(entry, event.text)
            pending = self._reader.make_pending(entry, event, command=None)
            self._handlers.post(entry.key, MessageArrived(pending))
            return entry
        await self._recheck_stored(entry)
        return await self._store.inbox.find(entry.source, entry.event) or entry

    async def redo_command(self, entry: InboxEntry, event: Inbound) -> None:
        """Carry out a command that was stored but not carried out before the process died."""
        decision = decide_access(self._rules.policy(), event)
        command = routing.find_command(event, self._rules.command_words())
        if command and isinstance(decision, Allowed):
            await self._handlers.dispatch(entry, command, decision)
        else:
            done = SetInbox(ids=(entry.id,), state=InboxState.IGNORED, at=self._clock.now())
            await self._store.apply(done)

    # --- accepted -----------------------------------------------------------------------------

    async def _receive_message(
        self, event: InboundMessage, allowed: Allowed, policy: Policy
    ) -> Accepted:
        if event.at < self._rules.restored_at:
            return await self._refuse_before_restore(event)
        parsed = routing.parse_command(event.text, self._rules.command_words())
        if parsed and not is_message_command(parsed):
            is_known = isinstance(parsed, routing.ParsedCommand)
            if parsed.word in self._rules.prompt_words() and self._is_stale(event):
                return await self._refuse_stale(event, allowed)
            word = parsed.word if is_known else InboxDecision.UNKNOWN_COMMAND
            command = routing.CommandMessage(event, parsed)
            return await self._receive_command(command, allowed, word)
        now = self._clock.now()
        if self._is_stale(event):
            return await self._refuse_stale(event, allowed)
        limit = self._messages_per_minute(allowed.principal)
        if limit and not self._try_acquire_message(allowed.principal, now):
            return await self._refuse_beyond_limit(event, allowed, limit)
        entry = self._make_entry(event, InboxState.WAITING, f"{allowed.role.name.lower()}")
        if not await self._store.accept(entry):
            await self._recheck_stored(entry)
            return Accepted.DUPLICATE
        if await self._drop_if_revoked(entry, event, policy):
            return Accepted.IGNORED
        _log_received(entry, event.text)
        self._reactions.on_accepted(entry)
        pending = self._reader.make_pending(entry, event, parsed)
        self._handlers.post(entry.key, MessageArrived(pending))
        return Accepted.STORED

    def _is_stale(self, event: InboundMessage) -> bool:
        stale_after = float(self._rules.settings().gateway.stale_after)
        return routing.is_stale(self._steady_clock.age_ms(event.at), stale_after)

    async def _refuse_stale(self, event: InboundMessage, allowed: Allowed) -> Accepted:
        fields: NoticeFields = {"when": format_time(event.at, seconds=False)}
        return await self._refuse(
            event, InboxDecision.STALE, allowed, NoticeId.MESSAGE_TOO_OLD, fields
        )

    async def _drop_if_revoked(
        self, entry: InboxEntry, event: InboundMessage, earlier_policy: Policy
    ) -> bool:
        """Drop a message whose sender lost access while the message was stored.

        `earlier_policy` allowed the message; `gateway.commands.enforcement` did not find it then.
        """
        policy = self._rules.policy()
        if policy is earlier_policy or isinstance(decide_access(policy, event), Allowed):
            return False
        ignored = SetInbox(ids=(entry.id,), state=InboxState.IGNORED, at=self._clock.now())
        await self._store.apply(ignored)
        return True

    async def _recheck_stored(self, entry: InboxEntry) -> None:
        """Notify the conversation of a known message that no turn has taken yet.

        The process that stored the message may have died before posting the event.
        """
        known = await self._store.inbox.find(entry.source, entry.event)
        if known and known.state is InboxState.WAITING:
            self._handlers.post(known.key, MessageRedelivered(known.id, known.source, known.event))

    async def _receive_command(
        self, command: routing.ReceivedCommand, allowed: Allowed, decision: str
    ) -> Accepted:
        event = command if isinstance(command, InboundAction) else command.message
        limit = self._messages_per_minute(allowed.principal)
        if limit and not self._try_acquire_command(command, allowed.principal, limit):
            refused = await self._refuse_beyond_limit(event, allowed, limit)
            if refused is Accepted.STORED:
                return refused  # otherwise the command is known and may not be carried out yet
        entry = self._make_entry(event, InboxState.COMMAND, decision)
        accepted = Accepted.STORED
        if not await self._store.accept(entry):
            accepted = Accepted.DUPLICATE
            known = await self._store.inbox.find(entry.source, entry.event)
            if (
                known is None
                or known.state is not InboxState.COMMAND
                or known.id in self._started_commands
            ):
                return accepted
            entry = known  # stored, but not carried out because of an error
        self._started_commands[entry.id] = None
        if len(self._started_commands) > _REMEMBERED_COMMANDS:
            del self._started_commands[next(iter(self._started_commands))]
        carried_out = False
        try:
            await self._handlers.dispatch(entry, command, allowed)
            carried_out = True
        finally:
            if not carried_out:
                self._started_commands.pop(entry.id, None)
        return accepted

    def _try_acquire_command(
        self, command: routing.ReceivedCommand, principal: str, limit: int
    ) -> bool:
        """Count a command; return False beyond the limit of its kind."""
        now = self._clock.now()
        if routing.is_control(command):
            most = max(limit, MIN_CONTROLS_PER_MINUTE)
            return self._control_limit.try_acquire(principal, most, now)
        return self._try_acquire_message(principal, now)

    def _try_acquire_message(self, principal: str, now: int) -> bool:
        limits = self._rules.message_limits(principal, None)
        return self._rate_limit.try_acquire_all(limits, now) is None

    async def _refuse_beyond_limit(
        self, event: InboundMessage | InboundAction, allowed: Allowed, limit: int
    ) -> Accepted:
        fields: NoticeFields = {"limit": limit}
        return await self._refuse(
            event, InboxDecision.TOO_MANY, allowed, NoticeId.TOO_MANY_MESSAGES, fields
        )

    async def _refuse(
        self,
        event: InboundMessage | InboundAction,
        decision: str,
        allowed: Allowed,
        notice: NoticeId,
        fields: NoticeFields,
    ) -> Accepted:
        """Store a refused event; its sender is told once a minute."""
        entry = self._make_entry(event, InboxState.REFUSED, decision)
        if not await self._store.accept(entry):
            return Accepted.DUPLICATE
        now = self._clock.now()
        if self._refusal_notices.try_notify(entry.source, allowed.principal, decision, now):
            await self._handlers.reply(notice, entry, fields)
        return Accepted.STORED

    async def _refuse_before_restore(self, event: InboundMessage) -> Accepted:
        """Refuse a message older than the restored backup; the notice is sent once per chat."""
        source = source_of(event)
        entry = self._make_entry(event, InboxState.REFUSED, InboxDecision.BEFORE_RESTORE)
        if not await self._store.accept(entry):
            await self._recheck_stored(entry)
            return Accepted.DUPLICATE
        if source not in self._restore_notified_chats:
            self._restore_notified_chats.add(source)
            when = format_time(self._rules.restored_at, seconds=False)
            await self._handlers.reply(NoticeId.SESSION_RESTORED, entry, {"when": when})
        return Accepted.STORED

    async def _receive_correction(self, event: InboundEdit | InboundDelete) -> Accepted:
        """Apply an edit or deletion to a waiting message; otherwise ignore the correction.

        Only the author may edit a message. A moderator may delete the message of another person.

        The change is applied before the event is stored; after an interruption it is applied again,
        which is harmless. The new text is stored only in the changed message, because other edits
        may not be meant for the bot.
        """
        source = source_of(event)
        if await self._store.inbox.find(source, event.id):
            return Accepted.DUPLICATE
        old = await self._store.inbox.find(source, event.message)
        if old and old.state in {InboxState.WAITING, InboxState.HELD}:
            if isinstance(event, InboundDelete) or _is_author(old, event):
                await self._apply_correction(old, event)
            else:
                log.warning("%s: an edit of another person's message was ignored", old.key)
        known = old is not None and old.state is not InboxState.IGNORED
        state = InboxState.DONE if known else InboxState.IGNORED
        decision = InboxDecision.DELETE if isinstance(event, InboundDelete) else InboxDecision.EDIT
        entry = self._make_entry(_without_text(event), state, decision)
        if not known:
            entry = msgspec.structs.replace(entry, payload=None)
        if not await self._store.accept(entry):
            return Accepted.DUPLICATE
        return Accepted.STORED if known else Accepted.IGNORED

    async def _apply_correction(self, old: InboxEntry, event: InboundEdit | InboundDelete) -> None:
        if isinstance(event, InboundDelete):
            self._handlers.post(old.key, MessageDeleted(old.id))
        elif old.payload:
            changed = self._reader.apply_edit(old, event)
            await self._store.replace_payload(old.id, changed.payload)
            self._handlers.post(
                old.key, MessageEdited(old.id, self._reader.read_pending(changed).message)
            )

    # --- ignored ------------------------------------------------------------------------------

    async def _turn_away(self, event: Inbound, decision: _Refusal) -> Accepted:
        reason = _ignored_decision(decision)
        entry = self._make_entry(event, InboxState.IGNORED, reason)
        if not await self._store.accept(msgspec.structs.replace(entry, payload=None)):
            return Accepted.DUPLICATE
        log.debug("%s ignored: %s", entry.key, reason)
        if isinstance(decision, Stranger) and isinstance(event, InboundMessage):
            await self._handlers.greet_stranger(event, decision, origin_of(entry))
        return Accepted.IGNORED

    # --- helpers ------------------------------------------------------------------------------

    def _make_entry(self, event: Inbound, state: InboxState, decision: str) -> InboxEntry:
        address = event.address
        return InboxEntry(
            id=self._ids.new("i"),
            source=source_of(event),
            event=event.id,
            key=str(routing.session_key_for(event, self._rules.settings().sessions.group_scope)),
            address=address,
            state=state,
            payload=msgspec.json.encode(event),
            received_at=self._clock.now(),
            decision=decision,
        )

    def _messages_per_minute(self, principal: str) -> int | None:
        """Return the limit for a person; the owner has one only if configured."""
        return min(self._rules.message_limits(principal, None).values(), default=None)


def _without_text(event: InboundEdit | InboundDelete) -> InboundEdit | InboundDelete:
    """Return the correction without its text, as `holdfast why` needs only its target."""
    return msgspec.structs.replace(event, parts=()) if isinstance(event, InboundEdit) else event


def _is_author(entry: InboxEntry, edit: InboundEdit) -> bool:
    """Return True if the editor wrote the message; the words count as those of its author."""
    return read_event(entry).sender.id == edit.sender.id


def source_of(event: Inbound) -> str:
    """Return the scope in which an event's id is unique: platform, account and chat."""
    address = event.address
    return f"{address.platform}@{address.account}:{address.chat}"


def _is_claim(event: Inbound) -> bool:
    return isinstance(event, InboundMessage) and event.direct and bool(find_claim_code(event.text))


def command_context(entry: InboxEntry, allowed: Allowed) -> CommandContext:
    """Return the sender and address of a command for the session machine."""
    admin = allowed.role is Role.ADMIN
    return CommandContext(
        address=entry.address,
        person=allowed.principal,
        admin=admin,
        inbox=entry.id,
        origin=origin_of(entry),
    )


def _ignored_decision(decision: _Refusal) -> InboxDecision:
    match decision:
        case NotAddressed():
            return InboxDecision.NOT_ADDRESSED
        case UnlistedBot():
            return InboxDecision.BOT
        case Stranger():
            return InboxDecision.NOT_ALLOWED
