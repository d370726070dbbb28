"""Requests of API clients: stored like every message, and followed through a subscription.

A repeated request with the same Idempotency-Key joins its running turn or replays its answer.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import msgspec

from agent.events import TextDelta
from gateway.access.api_keys import API_PLATFORM, Requester, is_generated
from gateway.http.api.answers import OPEN_STATES, StoredAnswer, StoredAnswers
from gateway.http.api.asked import ApiRequest, RequestMessage
from gateway.http.api.client_tools import apply_policy
from gateway.http.api.conversation.choice import Destination, own_conversation
from gateway.http.api.conversation.lookup import ConversationLookup
from gateway.http.api.conversation.named_session import NamedSession
from gateway.http.api.failures import (
    IDEMPOTENCY_KEY_REUSED,
    NOT_ALLOWED,
    NOT_READY,
    RequestRefused,
    invalid_request,
    too_many_messages,
)
from gateway.http.api.fetch_pictures import RequestPictures
from gateway.http.api.models import ModelResolver
from gateway.http.api.plain.tasks import is_task
from gateway.http.client_names import ClientNames
from gateway.http.concurrency import TOO_MANY_REQUESTS
from gateway.inbound.reader import origin_of, read_event
from gateway.inbound.reception import MessageRejected, source_of
from gateway.inbound.request_options import (
    EarlierMessage,
    RequestOptions,
    decode_options,
    encode_options,
)
from gateway.settings import ClientToolPolicy
from gateway.turns.feed_events import FeedEnd, FeedOutcome
from gateway.turns.feeds import Feed, Feeds
from platforms.core.contract import Address, InboundMessage, Sender, Text
from sessions.changes import SetInbox
from sessions.conversation.events import (
    CommandContext,
    DeleteSession,
    Event,
    RequestAbandoned,
    StartWaiting,
)
from sessions.records import InboxEntry, InboxState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids, stable_id, unique_part

log = logging.getLogger(__name__)

PLATFORM = API_PLATFORM

_MAX_SESSION_ID_LENGTH = 128
SESSION_ID_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._:@/+=-]{{0,{_MAX_SESSION_ID_LENGTH - 1}}}"
MAX_IDEMPOTENCY_KEY_LENGTH = 255
_MAX_TRIES_PER_KEY = 20  # turns without an answer under one Idempotency-Key


class TurnSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A client's subscription to a turn; a context manager that unsubscribes at the end."""

    feed: Feed
    id: str
    entry: InboxEntry  # of the request
    created: int  # Unix time in seconds
    model: str
    session_state: str  # "new", "continued" or "resumed"; empty without a session
    unsubscribe: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        self.unsubscribe()


class ConversationAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Operations on conversations that API requests need."""

    submit: Callable[[InboundMessage, Requester], Awaitable[InboxEntry | MessageRejected]]
    """Store a message, so that its turn begins."""
    post: Callable[[str, Event], None]
    """Send an event to the conversation of a key."""
    ask: Callable[[str, Event], Awaitable[object]]
    """Like `post`, but returns after the event is handled."""
    erase_session: Callable[[str], Awaitable[None]]
    count_background_turns: Callable[[], int]
    """Return the number of running turns that need no client."""
    is_stopping: Callable[[], bool]


class RequestPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `[http]` about what requests may say."""

    client_names: ClientNames
    client_tools: ClientToolPolicy
    max_background_turns: int
    on_busy: Callable[[], None]  # a request was refused because of this limit


class ApiRequests:
    """Service that begins turns for API clients and finds the turns of repeated requests."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        feeds: Feeds,
        model_resolver: ModelResolver,
        conversations: ConversationAccess,
        pictures: RequestPictures,
        policy: RequestPolicy,
    ) -> None:
        self.model_resolver = model_resolver
        self.client_names = policy.client_names
        self._policy = policy
        self.stored_answers = StoredAnswers(store)
        self._lookup = ConversationLookup(store, self.stored_answers)
        self._store = store
        self._clock = clock
        self._ids = ids
        self._feeds = feeds
        self._conversations = conversations
        self._pictures = pictures
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def begin(
        self,
        request: ApiRequest,
        requester: Requester,
        session: NamedSession,
        idempotency_key: str,
    ) -> TurnSubscription:
        """Store a request and subscribe to its turn.

        Sessions, answers and `idempotency_key`, which makes a repeat safe, belong to the key of the
        requester. Raises `RequestRefused`, or `StoreError` if nothing was stored.
        """
        if self._conversations.is_stopping():
            raise RequestRefused(NOT_READY)
        _check_headers(session, idempotency_key)
        request = msgspec.structs.replace(
            request,
            model=await self.model_resolver.resolve(request.model),
            requester=requester,
            plain=(session.is_hint or not session.name) and is_task(request),
        )
        previous = await self._lookup.find_previous(request, requester, session)
        # Clients cannot choose this name, so the conversation belongs to this request alone.
        own = stable_id(PLATFORM, idempotency_key) if idempotency_key else self._new_id()
        fresh = Address(PLATFORM, requester.generated_conversation(own))
        name = "" if request.plain else session.name
        named = Address(PLATFORM, requester.conversation(name)) if name else None
        event = f"k{stable_id(idempotency_key)}" if idempotency_key else self._new_id()
        # The lock keeps other requests out between reading the end of a conversation and adding to it.
        async with self._lock_for(previous.address if previous else named or fresh):
            for number in range(1, _MAX_TRIES_PER_KEY + 1):
                event_id = event if number == 1 else f"{event}~{number}"
                repeat = event_id if idempotency_key else ""
                where = None
                if previous:
                    where = await self._lookup.after_answer(request, previous, fresh, repeat)
                elif named:
                    where = await self._lookup.in_session(request, session, named, repeat)
                where = where or own_conversation(request, fresh)
                found = await self._try_subscribe(
                    request, where, event_id, keyed=bool(idempotency_key)
                )
                if found:
                    return found
        msg = "Too many requests with this Idempotency-Key ended without an answer. Use a new key."
        raise invalid_request(msg, code="idempotency_key_used_up")

    async def follow(self, answer: StoredAnswer) -> TurnSubscription | None:
        """Subscribe to an answer in the background that has not ended; None if it has."""
        feed = self._feeds.acquire(origin_of(answer.entry))
        following: TurnSubscription | None = None
        try:
            # Read again: the turn may have ended before the feed was acquired.
            entry = await self._store.inbox.get(answer.entry.id)
            if entry and entry.state in OPEN_STATES:
                following = await self._subscribe(feed, entry, "")
        finally:
            if following is None:
                self._unsubscribe(feed, "")
        return following

    async def replay(self, answer: StoredAnswer) -> TurnSubscription:
        """Return a finished subscription to an answer that has ended."""
        ended = answer if answer.end else await self.stored_answers.refresh(answer)
        assert ended.end  # noqa: S101 - its inbox row is closed
        origin = origin_of(ended.entry)
        return TurnSubscription(
            feed=_replay(origin, ended.text, ended.end),
            id=origin,
            entry=ended.entry,
            created=ended.entry.received_at // 1000,
            model=ended.options.called,
            session_state="",
            unsubscribe=_nothing_to_leave,
        )

    async def stop(self, answer: StoredAnswer) -> None:
        """Stop a running answer; returns after the stop is stored."""
        origin = origin_of(answer.entry)
        await self._conversations.ask(answer.entry.key, RequestAbandoned(answer.entry.id, origin))

    async def delete(self, answer: StoredAnswer) -> None:
        """Delete an answer, and its generated conversation once all its answers are deleted."""
        await self.stored_answers.mark_deleted(answer, self._clock.now())
        turn, own = answer.turn, is_generated(answer.address.chat)
        if turn and own and await self.stored_answers.are_all_deleted(turn.session_id):
            by = CommandContext(
                address=answer.entry.address,
                person=f"{PLATFORM}:{answer.message.sender.id}",
                admin=True,
            )
            await self._conversations.ask(answer.entry.key, DeleteSession(by, turn.session_id))
            await self._conversations.erase_session(turn.session_id)

    def _lock_for(self, address: Address) -> asyncio.Lock:
        return self._locks.setdefault(address.chat, asyncio.Lock())

    # --- subscribing ----------------------------------------------------------------------------

    async def _try_subscribe(
        self, request: ApiRequest, destination: Destination, event: str, *, keyed: bool
    ) -> TurnSubscription | None:
        """Join or begin a turn; None if an earlier turn under this event id had no answer."""
        source = destination.source
        origin = stable_id(source, event)
        feed = self._feeds.acquire(origin)
        following: TurnSubscription | None = None
        try:
            known = await self._find_entry(source, event) if keyed else None
            if known and known.payload is None:  # deleted with its conversation
                return None
            if known is None and self._is_over_limit(request):
                self._policy.on_busy()
                raise RequestRefused(TOO_MANY_REQUESTS)
            if known is None or known.state is InboxState.WAITING:
                requester = request.requester
                assert requester  # noqa: S101 - `begin` sets it
                message = await self._build_message(
                    request, requester, destination, event, keyed=keyed
                )
                assert source_of(message) == source  # noqa: S101 - same address
                known = _accepted_entry(await self._conversations.submit(message, requester))
            if _options_of(known).digest != request.digest:
                raise RequestRefused(IDEMPOTENCY_KEY_REUSED)
            following = await self._subscribe(feed, known, destination.session_state)
        finally:
            if following is None:
                self._unsubscribe(feed, "")
        return following

    def _is_over_limit(self, request: ApiRequest) -> bool:
        """Return True if a request would run in the background beside as many as may run there."""
        running = self._conversations.count_background_turns
        return request.background and running() >= self._policy.max_background_turns

    async def _find_entry(self, source: str, event: str) -> InboxEntry | None:
        """Return the row of an earlier request, after the conversation applied pending events."""
        known = await self._store.inbox.find(source, event)
        if known is None or known.state not in OPEN_STATES:
            return known
        # The earlier client may just have disconnected, which ends the turn. Wait until the
        # conversation has applied that, so that a turn about to end is not joined.
        await self._conversations.ask(known.key, StartWaiting())
        return await self._store.inbox.find(source, event)

    async def _subscribe(
        self, feed: Feed, entry: InboxEntry, session_state: str
    ) -> TurnSubscription | None:
        created = entry.received_at // 1000
        wishes = _options_of(entry)

        def leave() -> None:
            self._unsubscribe(feed, "" if wishes.background else entry.key)

        model = wishes.called or wishes.model or self.model_resolver.default_model(entry.key)
        if entry.state in OPEN_STATES:
            feed.set_inbox_row(entry.id)
            return TurnSubscription(
                feed=feed,
                id=feed.origin,
                entry=entry,
                created=created,
                model=model,
                session_state=session_state,
                unsubscribe=leave,
            )
        turn = await self._store.turns.get(entry.turn_id) if entry.turn_id else None
        text, end = await self.stored_answers.read_ending(entry, turn)
        if end is None or end.outcome is not FeedOutcome.ANSWERED:
            return None
        if await self.stored_answers.is_deleted(entry):
            return None
        self._unsubscribe(feed, "")
        return TurnSubscription(
            feed=_replay(feed.origin, text, end),
            id=feed.origin,
            entry=entry,
            created=created,
            model=model,
            session_state=session_state,
            unsubscribe=_nothing_to_leave,
        )

    def _unsubscribe(self, feed: Feed, key: str) -> None:
        """Stop following a turn; the turn of a conversation `key` ends without followers."""
        if self._feeds.release(feed) and key:
            self._conversations.post(key, RequestAbandoned(feed.inbox_id, feed.origin))

    # --- building the message -------------------------------------------------------------------

    async def _build_message(
        self,
        request: ApiRequest,
        requester: Requester,
        destination: Destination,
        event: str,
        *,
        keyed: bool,
    ) -> InboundMessage:
        # The last message first, because the size of all pictures together is limited.
        *earlier, asked = destination.messages
        said, *before = await self._pictures.fetch_all((asked, *earlier))
        if self._conversations.is_stopping():  # began while the pictures were downloaded
            raise RequestRefused(NOT_READY)
        continued = await self._store.turns.get(destination.turn) if destination.turn else None
        wishes = RequestOptions(
            system=request.system_prompt,
            model=request.model,
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            effort=request.reasoning_effort,
            before=tuple([await self._build_row(each) for each in before]),
            rows=destination.rows,
            after=destination.after,
            turn=continued.id if continued else "",
            turn_attempts=continued.attempts if continued else 0,
            once=destination.single_turn,
            plain=request.plain,
            keyed=keyed,
            background=request.background,
            digest=request.digest,
            kept=request.retrievable,
            called=request.model or self.model_resolver.default_model(destination.key),
            answer=apply_policy(request.options, self._policy.client_tools),
            tool_call_id=said.tool_call_id or "",
            echo=request.echo,
            requester=None if requester == Requester() else requester,
        )
        files = await self._pictures.store_all(said.pictures)
        words = (Text(said.text),) if said.text.strip() else ()
        return InboundMessage(
            id=event,
            at=self._clock.now(),
            address=destination.address,
            sender=Sender(id=requester.sender_id, name=requester.name),
            parts=(*words, *files),
            direct=True,
            addressed=True,
            wishes=encode_options(wishes),
        )

    async def _build_row(self, message: RequestMessage) -> EarlierMessage:
        files = await self._pictures.store_all(message.pictures)
        return EarlierMessage(
            role=message.role,
            text=message.text,
            files=files,
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
            interrupted=message.interrupted or None,
        )

    def _new_id(self) -> str:
        return unique_part(self._ids.new("q"))


async def close_abandoned_requests(
    store: SessionStore, clock: Clock, key: str, has_access: Callable[[InboxEntry], bool]
) -> None:
    """Close queued requests of an earlier process whose clients cannot get the answer.

    The clients lost the connection. A request with an Idempotency-Key can be repeated and joined,
    and one in the background is polled. Requests with an API key that was revoked meanwhile are
    closed too.
    """
    waiting = (await store.conversation(key)).waiting
    gone = tuple(entry.id for entry in waiting if not (_is_expected(entry) and has_access(entry)))
    if gone:
        await store.apply(SetInbox(ids=gone, state=InboxState.DONE, at=clock.now()))


def _is_expected(entry: InboxEntry) -> bool:
    """Return True if the client of a queued request can still get its answer."""
    options = _options_of(entry)
    return options.keyed or options.background


def auto_resumes(key: str) -> bool:
    """Return True for API conversations, because no person sees an interruption notice there.

    See `sessions.conversation.events.State.auto_resume`.
    """
    return key.startswith(f"{PLATFORM}:")


def _check_headers(session: NamedSession, idempotency_key: str) -> None:
    if session.name and not re.fullmatch(SESSION_ID_PATTERN, session.name):
        msg = (
            f"{session.header} can have up to {_MAX_SESSION_ID_LENGTH} letters, digits and "
            ". _ : @ / + = -"
        )
        raise invalid_request(msg, session.header)
    if len(idempotency_key) > MAX_IDEMPOTENCY_KEY_LENGTH:
        msg = f"An Idempotency-Key can have at most {MAX_IDEMPOTENCY_KEY_LENGTH} characters."
        raise invalid_request(msg, "Idempotency-Key")


def _nothing_to_leave() -> None:
    """Unsubscribe from a replay."""


def _replay(origin: str, text: str, end: FeedEnd) -> Feed:
    """Return a finished feed that replays a stored answer."""
    feed = Feed(origin)
    feed.publish(TextDelta(text))
    if end.done:
        feed.set_result(end.done)
    feed.finish(end.outcome, end.cause)
    return feed


def _accepted_entry(entry: InboxEntry | MessageRejected) -> InboxEntry:
    if isinstance(entry, MessageRejected):
        raise RequestRefused(too_many_messages(entry.limit) if entry.limit else NOT_ALLOWED)
    return entry


def _options_of(entry: InboxEntry) -> RequestOptions:
    event = read_event(entry)
    return decode_options(event.wishes) if isinstance(event, InboundMessage) else RequestOptions()
