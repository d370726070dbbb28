"""Requests of API clients: stored like every message, and followed through a subscription.

A repeated request with the same Idempotency-Key joins its running turn or replays its answer.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request

from agent.events import TextDelta
from gateway.http.api.answers import OPEN_STATES, StoredAnswer, StoredAnswers
from gateway.http.api.asked import ApiRequest, RequestMessage
from gateway.http.api.client_results import (
    complete_messages,
    new_messages,
    reopen_calls,
    result_ids,
)
from gateway.http.api.client_tools import apply_policy
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
from gateway.inbound.reader import origin_of, read_event
from gateway.inbound.reception import MessageRejected, source_of
from gateway.inbound.request_options import (
    EarlierMessage,
    RequestOptions,
    decode_options,
    encode_options,
)
from gateway.settings import ClientToolPolicy
from gateway.turns.answer import client_calls_in
from gateway.turns.feed_events import FeedEnd
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
from sessions.key import SessionKey
from sessions.records import InboxEntry, InboxState, Message, SessionReason, TurnState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids, stable_id, unique_part

log = logging.getLogger(__name__)

PLATFORM = "api"

_SENDER = Sender(id="key", name="API")
_PERSON = f"{PLATFORM}:{_SENDER.id}"
_PREVIOUS = "previous_response_id"
_MAX_SESSION_ID_LENGTH = 128
SESSION_ID_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._:@/+=-]{{0,{_MAX_SESSION_ID_LENGTH - 1}}}"
MAX_IDEMPOTENCY_KEY_LENGTH = 255
_GENERATED_PREFIX = "~"  # of generated conversation names; clients cannot choose such a name
_MAX_TRIES_PER_KEY = 20  # turns without an answer under one Idempotency-Key
_RESUMABLE_REASONS = {SessionReason.CRASH, SessionReason.RESTART, SessionReason.STUCK}
_LARGE_BODY_BYTES = 200_000  # larger bodies are decoded in a thread


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


class _Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation of a request, and the history that goes along."""

    address: Address
    messages: Sequence[RequestMessage]  # to add; the last one is to be answered
    single_turn: bool = False  # as in `gateway.inbound.request_options.RequestOptions`
    session_state: str = ""  # as in `TurnSubscription`
    rows: tuple[Message, ...] = ()
    after: str = ""

    @property
    def source(self) -> str:
        """See `gateway.inbound.reception.source_of`."""
        return f"{self.address.platform}@{self.address.account}:{self.address.chat}"

    @property
    def key(self) -> str:
        """Session key of the conversation."""
        return _key_of(self.address)


def _key_of(address: Address) -> str:
    return str(SessionKey(platform=address.platform, chat=address.chat))


class ConversationAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Operations on conversations that API requests need."""

    submit: Callable[[InboundMessage], Awaitable[InboxEntry | MessageRejected]]
    """Store a message, so that its turn begins."""
    post: Callable[[str, Event], None]
    """Send an event to the conversation of a key."""
    ask: Callable[[str, Event], Awaitable[object]]
    """Like `post`, but returns after the event is handled."""
    erase_session: Callable[[str], Awaitable[None]]
    is_stopping: Callable[[], bool]


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
        tool_policy: ClientToolPolicy = "pass",
    ) -> None:
        self._tool_policy = tool_policy
        self.model_resolver = model_resolver
        self.stored_answers = StoredAnswers(store)
        self._store = store
        self._clock = clock
        self._ids = ids
        self._feeds = feeds
        self._conversations = conversations
        self._pictures = pictures
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def begin(
        self, request: ApiRequest, session_id: str, idempotency_key: str
    ) -> TurnSubscription:
        """Store a request and subscribe to its turn.

        `session_id` names a conversation to continue; `idempotency_key` makes a repeat safe. Raises
        `RequestRefused`, or `StoreError` if nothing was stored.
        """
        if self._conversations.is_stopping():
            raise RequestRefused(NOT_READY)
        _check_headers(session_id, idempotency_key)
        request = msgspec.structs.replace(
            request,
            model=await self.model_resolver.resolve(request.model),
            plain=not session_id and is_task(request),
        )
        previous = await self._find_previous(request, session_id)
        # Clients cannot choose this name, so the conversation belongs to this request alone.
        own = stable_id(PLATFORM, idempotency_key) if idempotency_key else self._new_id()
        fresh = Address(PLATFORM, session_id or f"{_GENERATED_PREFIX}{own}")
        event = f"k{stable_id(idempotency_key)}" if idempotency_key else self._new_id()
        # The lock keeps other requests out between reading the end of a conversation and adding to it.
        async with self._lock_for(previous.address if previous else fresh):
            for number in range(1, _MAX_TRIES_PER_KEY + 1):
                name = event if number == 1 else f"{event}~{number}"
                if previous is None:
                    where = await self._choose_destination(request, fresh, session_id)
                else:
                    where = await self._destination_after(
                        request, previous, fresh, name if idempotency_key else ""
                    )
                found = await self._try_subscribe(request, where, name, keyed=bool(idempotency_key))
                if found:
                    return found
        msg = "Too many requests with this Idempotency-Key ended without an answer. Use a new key."
        raise invalid_request(msg, code="idempotency_key_used_up")

    async def stop(self, answer: StoredAnswer) -> None:
        """Stop a running answer; returns after the stop is stored."""
        origin = origin_of(answer.entry)
        await self._conversations.ask(answer.entry.key, RequestAbandoned(answer.entry.id, origin))

    async def delete(self, answer: StoredAnswer) -> None:
        """Delete an answer, and its generated conversation once all its answers are deleted."""
        await self.stored_answers.mark_deleted(answer, self._clock.now())
        turn, own = answer.turn, answer.address.chat.startswith(_GENERATED_PREFIX)
        if turn and own and await self.stored_answers.are_all_deleted(turn.session_id):
            by = CommandContext(address=answer.entry.address, person=_PERSON, admin=True)
            await self._conversations.ask(answer.entry.key, DeleteSession(by, turn.session_id))
            await self._conversations.erase_session(turn.session_id)

    # --- choice of the conversation -------------------------------------------------------------

    def _lock_for(self, address: Address) -> asyncio.Lock:
        return self._locks.setdefault(address.chat, asyncio.Lock())

    async def _find_previous(self, request: ApiRequest, session_id: str) -> StoredAnswer | None:
        """Return the answer that a request continues, if any; raises `RequestRefused`.

        Results of client tools continue the answer that contains their calls, even if the request
        brings its whole history.
        """
        if session_id and request.previous_id:
            msg = "X-Holdfast-Session and previous_response_id both name a conversation; send only one."
            raise invalid_request(msg, _PREVIOUS)
        if session_id:
            return None
        if request.previous_id:
            return await self._find_answer(request.previous_id)
        for call_id in result_ids(new_messages(request.messages)):
            if found := await self.stored_answers.find_by_call(call_id, _PERSON):
                return found
        return None

    async def _find_answer(self, answer_id: str) -> StoredAnswer:
        found = await self.stored_answers.find(answer_id)
        if found is None:
            msg = f"Previous response with id '{answer_id[:80]}' not found."
            raise invalid_request(msg, _PREVIOUS, "previous_response_not_found")
        if found.end is None:
            msg = "The previous response is still in progress; try again when it has ended."
            raise invalid_request(msg, _PREVIOUS, "previous_response_in_progress")
        return found

    async def _choose_destination(
        self, request: ApiRequest, address: Address, session_id: str
    ) -> _Destination:
        """Return the conversation of a request that continues no particular answer."""
        if not session_id:
            whole = complete_messages(request.messages)
            return _Destination(address=address, single_turn=True, messages=whole)
        # The stored history takes precedence over the client's.
        messages: Sequence[RequestMessage] = request.messages[-1:]
        after = ""
        if result_ids(new_messages(request.messages)):
            messages, after = await self._match_results(request, address)
        return _Destination(
            address=address,
            session_state=await self._read_session_state(address),
            messages=messages,
            after=after,
        )

    async def _match_results(
        self, request: ApiRequest, address: Address
    ) -> tuple[Sequence[RequestMessage], str]:
        """Return the messages to add to a named session and the session to continue.

        Only results of calls that wait for one are added. A session without history begins with all
        messages of the request.
        """
        stored = await self._store.conversation(_key_of(address))
        session = stored.newest
        if session is None:
            return complete_messages(request.messages), ""
        is_idle = not (stored.waiting or stored.running)
        rows = await self._store.sessions.history(session.id) if is_idle else ()
        waiting = {call.id for call in client_calls_in(rows)}
        messages = complete_messages(new_messages(request.messages), waiting)
        return messages, session.id if result_ids(messages) else ""

    async def _destination_after(
        self, request: ApiRequest, previous: StoredAnswer, fresh: Address, event: str
    ) -> _Destination:
        """Return the conversation that continues an answer.

        A request branches off into a new conversation if the answer is no longer the newest one or
        if nothing is to be stored. `event` is the event id of a request with an Idempotency-Key: a
        repeat of a request that continued in place finds its row there again.
        """
        by_calls = not request.previous_id
        new = new_messages(request.messages) if by_calls else request.messages
        done = previous.end.done if previous.end else None
        waiting = {call.id for call in done.client_calls} if done else set()
        messages = complete_messages(new, waiting)
        there = _Destination(
            address=previous.address,
            single_turn=previous.address.chat.startswith(_GENERATED_PREFIX),
            messages=messages,
        )
        branch = _Destination(address=fresh, single_turn=True, messages=messages)
        turn = previous.turn
        if event and await self._store.inbox.find(there.source, event):
            return there
        if turn is None:
            return branch
        in_place = request.retrievable or by_calls
        if in_place and await self._is_newest(previous, there.key):
            return msgspec.structs.replace(there, after=turn.session_id)
        rows = await self._store.sessions.history_up_to(turn.session_id, turn.id)
        rows = reopen_calls(rows, result_ids(messages))
        return msgspec.structs.replace(branch, rows=rows)

    async def _is_newest(self, previous: StoredAnswer, key: str) -> bool:
        """Return True if nothing was added to the conversation since the answer."""
        stored, turn = await self._store.conversation(key), previous.turn
        if stored.waiting or stored.running or stored.newest is None or turn is None:
            return False
        last = await self._store.turns.last(turn.session_id)
        return stored.newest.id == turn.session_id and last is not None and last.id == turn.id

    # --- subscribing ----------------------------------------------------------------------------

    async def _try_subscribe(
        self, request: ApiRequest, destination: _Destination, event: str, *, keyed: bool
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
            if known is None or known.state is InboxState.WAITING:
                message = await self._build_message(request, destination, event, keyed=keyed)
                assert source_of(message) == source  # noqa: S101 - same address
                known = _accepted_entry(await self._conversations.submit(message))
            if _options_of(known).digest != request.digest:
                raise RequestRefused(IDEMPOTENCY_KEY_REUSED)
            following = await self._subscribe(feed, known, destination.session_state)
        finally:
            if following is None:
                self._unsubscribe(feed, "")
        return following

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
        def leave() -> None:
            self._unsubscribe(feed, entry.key)

        created = entry.received_at // 1000
        wishes = _options_of(entry)
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
        if turn is None or turn.state is not TurnState.DONE:
            return None
        text, end = await self.stored_answers.read_ending(entry, turn)
        if end is None or await self.stored_answers.is_deleted(entry):
            return None
        stored = _replay(feed.origin, text, end)
        self._unsubscribe(feed, "")
        return TurnSubscription(
            feed=stored,
            id=feed.origin,
            entry=entry,
            created=created,
            model=model,
            session_state=session_state,
            unsubscribe=lambda: None,
        )

    def _unsubscribe(self, feed: Feed, key: str) -> None:
        """Stop following a turn; without followers the turn ends."""
        if self._feeds.release(feed) and key:
            self._conversations.post(key, RequestAbandoned(feed.inbox_id, feed.origin))

    # --- building the message -------------------------------------------------------------------

    async def _build_message(
        self, request: ApiRequest, destination: _Destination, event: str, *, keyed: bool
    ) -> InboundMessage:
        # The last message first, because the size of all pictures together is limited.
        *earlier, asked = destination.messages
        said, *before = await self._pictures.fetch_all((asked, *earlier))
        if self._conversations.is_stopping():  # began while the pictures were downloaded
            raise RequestRefused(NOT_READY)
        wishes = RequestOptions(
            system=request.system_prompt,
            model=request.model,
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            effort=request.reasoning_effort,
            before=tuple([await self._build_row(each) for each in before]),
            rows=destination.rows,
            after=destination.after,
            once=destination.single_turn,
            plain=request.plain,
            keyed=keyed,
            digest=request.digest,
            kept=request.retrievable,
            called=request.model or self.model_resolver.default_model(destination.key),
            answer=apply_policy(request.options, self._tool_policy),
            tool_call_id=said.tool_call_id or "",
            echo=request.echo,
        )
        files = await self._pictures.store_all(said.pictures)
        words = (Text(said.text),) if said.text.strip() else ()
        return InboundMessage(
            id=event,
            at=self._clock.now(),
            address=destination.address,
            sender=_SENDER,
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

    async def _read_session_state(self, address: Address) -> str:
        stored = await self._store.conversation(_key_of(address))
        if stored.active:
            return "continued"
        last = stored.newest
        resumed = last and last == stored.suspended and last.reason in _RESUMABLE_REASONS
        if resumed:
            return "resumed"
        return "continued" if stored.waiting else "new"

    def _new_id(self) -> str:
        return unique_part(self._ids.new("q"))


async def close_abandoned_requests(store: SessionStore, clock: Clock, key: str) -> None:
    """Close queued requests of an earlier process, except those with an Idempotency-Key.

    Their clients lost the connection; only a request with a key can be repeated and joined.
    """
    waiting = (await store.conversation(key)).waiting
    gone = tuple(entry.id for entry in waiting if not _options_of(entry).keyed)
    if gone:
        await store.apply(SetInbox(ids=gone, state=InboxState.DONE, at=clock.now()))


def auto_resumes(key: str) -> bool:
    """Return True for API conversations, because no person sees an interruption notice there.

    See `sessions.conversation.events.State.auto_resume`.
    """
    return key.startswith(f"{PLATFORM}:")


def _check_headers(session_id: str, idempotency_key: str) -> None:
    if session_id and not re.fullmatch(SESSION_ID_PATTERN, session_id):
        msg = (
            f"A session name (X-Holdfast-Session) can have up to {_MAX_SESSION_ID_LENGTH} letters, "
            "digits and . _ : @ / + = -"
        )
        raise invalid_request(msg, "X-Session-Id")
    if len(idempotency_key) > MAX_IDEMPOTENCY_KEY_LENGTH:
        msg = f"An Idempotency-Key can have at most {MAX_IDEMPOTENCY_KEY_LENGTH} characters."
        raise invalid_request(msg, "Idempotency-Key")


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


async def subscribe_to_answer(
    request: Request, requests: ApiRequests, decode: Callable[[bytes], ApiRequest]
) -> tuple[ApiRequest, TurnSubscription]:
    """Decode an HTTP request and begin its turn; raises like `ApiRequests.begin`."""
    body = await request.body()
    asked = await asyncio.to_thread(decode, body) if len(body) > _LARGE_BODY_BYTES else decode(body)
    headers = request.headers
    session = headers.get("x-holdfast-session") or headers.get("x-session-id", "")
    key = headers.get("idempotency-key", "")
    subscription = await requests.begin(asked, session, key)
    for warning in asked.warnings:
        log.warning("api: request %s: %s", subscription.id, warning)
    return asked, subscription
