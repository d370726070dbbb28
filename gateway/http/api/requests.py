"""From what is asked to a turn that is followed: stored like every message, and answered once."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request

from agent.events import TextDelta
from gateway.http.api.answers import OPEN_STATES, StoredAnswer, StoredAnswers
from gateway.http.api.asked import ApiRequest, RequestMessage, RequestPicture
from gateway.http.api.failures import (
    IDEMPOTENCY_KEY_REUSED,
    NOT_ALLOWED,
    NOT_READY,
    RequestRefused,
    invalid_request,
    too_many_messages,
)
from gateway.http.api.fetch_pictures import RemotePictures
from gateway.http.api.models import ModelResolver
from gateway.inbound.reader import origin_of, read_event
from gateway.inbound.reception import MessageRejected, source_of
from gateway.inbound.request_options import (
    EarlierMessage,
    RequestOptions,
    decode_options,
    encode_options,
)
from gateway.turns.feed_events import FeedEnd
from gateway.turns.feeds import Feed, Feeds
from platforms.core.contract import Address, File, InboundMessage, Sender, Text
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
from sessions.values.ids import Ids, stable_id

PLATFORM = "api"

StorePicture = Callable[[AsyncIterator[bytes]], Awaitable[tuple[str, int]]]

_SENDER = Sender(id="key", name="API")
SESSION_ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,127}"
MAX_IDEMPOTENCY_KEY_LENGTH = 255
_GENERATED_PREFIX = "~"  # the names that we give begin so
_MAX_TRIES_PER_KEY = 20  # of one Idempotency-Key, where none came to an answer
_RESUMABLE_REASONS = {SessionReason.CRASH, SessionReason.RESTART, SessionReason.STUCK}


class TurnSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that somebody waits for; it is let go of at the end of a `with`."""

    feed: Feed
    id: str
    entry: InboxEntry  # what was asked
    created: int  # seconds since 1970
    model: str
    session_state: str  # of the session: "new", "continued", "resumed"; empty: there is none
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
    """In which conversation something is asked, and what it knows of what was said before."""

    address: Address
    single_turn: bool = False  # as in `gateway.inbound.request_options.RequestOptions`
    session_state: str = ""  # as in `TurnSubscription`
    history: tuple[RequestMessage, ...] = ()
    rows: tuple[Message, ...] = ()
    after: str = ""

    @property
    def source(self) -> str:
        """See `gateway.inbound.reception.source_of`."""
        return f"{self.address.platform}@{self.address.account}:{self.address.chat}"

    @property
    def key(self) -> str:
        """Of the conversation."""
        return str(SessionKey(platform=self.address.platform, chat=self.address.chat))


class ApiRequests:
    """Begins turns for programs, and finds those that are there already."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        feeds: Feeds,
        model_resolver: ModelResolver,
        submit: Callable[[InboundMessage], Awaitable[InboxEntry | MessageRejected]],
        post_event: Callable[[str, Event], None],
        apply_event: Callable[[str, Event], Awaitable[object]],
        store_picture: StorePicture,
        remote_pictures: RemotePictures,
        erase_session: Callable[[str], Awaitable[None]],
        is_stopping: Callable[[], bool],
    ) -> None:
        self.model_resolver = model_resolver
        self.stored_answers = StoredAnswers(store)
        self._store = store
        self._clock = clock
        self._ids = ids
        self._feeds = feeds
        self._submit = submit
        self._post_event = post_event
        self._apply_event = (
            apply_event  # takes an event as `post` does, and returns when it is carried out
        )
        self._store_picture = store_picture  # a picture until its turn fetches it
        self._remote_pictures = remote_pictures
        self._erase_session = erase_session  # takes the words out of a session that was deleted
        self._is_stopping = is_stopping
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def begin(
        self, request: ApiRequest, session_id: str, idempotency_key: str
    ) -> TurnSubscription:
        """Have a request answered; raises `Refused`, or `StoreError` when nothing was stored.

        `session` names a conversation that is kept, `key` says what may be sent again.
        """
        if self._is_stopping():
            raise RequestRefused(NOT_READY)
        _check_headers(session_id, idempotency_key)
        request = msgspec.structs.replace(
            request, model=await self.model_resolver.resolve(request.model)
        )
        previous = (
            await self._find_previous(request.previous_id, session_id)
            if request.previous_id
            else None
        )
        # A name that no program can choose: it is for this request alone.
        own = stable_id(PLATFORM, idempotency_key) if idempotency_key else self._new_id()
        fresh = Address(PLATFORM, session_id or f"{_GENERATED_PREFIX}{own}")
        event = f"k{stable_id(idempotency_key)}" if idempotency_key else self._new_id()
        # Nobody comes between the look at the end of a conversation and the word added to it.
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
        msg = "This Idempotency-Key came too often without an answer. Use a new one."
        raise invalid_request(msg, code="idempotency_key_used_up")

    async def stop(self, answer: StoredAnswer) -> None:
        """End what is still being answered; returns when that is stored."""
        origin = origin_of(answer.entry)
        await self._apply_event(answer.entry.key, RequestAbandoned(answer.entry.id, origin))

    async def delete(self, answer: StoredAnswer) -> None:
        """Give an answer to nobody any more; a conversation of which nothing is left goes with it."""
        await self.stored_answers.mark_deleted(answer, self._clock.now())
        turn, own = answer.turn, answer.address.chat.startswith(_GENERATED_PREFIX)
        if turn and own and await self.stored_answers.are_all_deleted(turn.session_id):
            by = CommandContext(
                address=answer.entry.address, person=f"{PLATFORM}:{_SENDER.id}", admin=True
            )
            await self._apply_event(answer.entry.key, DeleteSession(by, turn.session_id))
            await self._erase_session(turn.session_id)

    # --- in which conversation ------------------------------------------------------------------

    def _lock_for(self, address: Address) -> asyncio.Lock:
        return self._locks.setdefault(address.chat, asyncio.Lock())

    async def _find_previous(self, answer_id: str, session_id: str) -> StoredAnswer:
        """Find the answer that somebody wants to go on from; raises `Refused`."""
        param = "previous_response_id"
        if session_id:
            msg = (
                "X-Session-Id and previous_response_id both name a conversation; send one of them."
            )
            raise invalid_request(msg, param)
        found = await self.stored_answers.find(answer_id)
        if found is None:
            msg = f"Previous response with id '{answer_id[:80]}' not found."
            raise invalid_request(msg, param, "previous_response_not_found")
        if found.end is None:
            msg = "That response is still being written; ask again once it has ended."
            raise invalid_request(msg, param, "previous_response_in_progress")
        return found

    async def _choose_destination(
        self, request: ApiRequest, address: Address, session_id: str
    ) -> _Destination:
        if session_id:  # the store knows better than the program what was said
            return _Destination(
                address=address, session_state=await self._read_session_state(address)
            )
        return _Destination(address=address, single_turn=True, history=request.history)

    async def _destination_after(
        self, request: ApiRequest, previous: StoredAnswer, fresh: Address, event: str
    ) -> _Destination:
        """Go on behind an answer; where others did so before, or nothing is to stay, branch off.

        `event` names what may be asked twice: where it went on before, it is found again.
        """
        there = _Destination(
            address=previous.address,
            single_turn=previous.address.chat.startswith(_GENERATED_PREFIX),
            history=request.history,
        )
        branch = _Destination(address=fresh, single_turn=True, history=request.history)
        turn = previous.turn
        if event and await self._store.inbox.find(there.source, event):
            return there
        if turn is None:
            return branch
        if request.retrievable and await self._is_newest(previous, there.key):
            return msgspec.structs.replace(there, after=turn.session_id)
        rows = await self._store.sessions.history_up_to(turn.session_id, turn.id)
        return msgspec.structs.replace(branch, rows=rows)

    async def _is_newest(self, previous: StoredAnswer, key: str) -> bool:
        """Whether a conversation stands as it did when the answer was given."""
        stored, turn = await self._store.conversation(key), previous.turn
        if stored.waiting or stored.running or stored.newest is None or turn is None:
            return False
        last = await self._store.turns.last(turn.session_id)
        return stored.newest.id == turn.session_id and last is not None and last.id == turn.id

    # --- one try --------------------------------------------------------------------------------

    async def _try_subscribe(
        self, request: ApiRequest, destination: _Destination, event: str, *, keyed: bool
    ) -> TurnSubscription | None:
        """Join or begin a turn; None when there was one that came to no answer."""
        source = destination.source
        origin = stable_id(source, event)
        feed = self._feeds.acquire(origin)
        following: TurnSubscription | None = None
        try:
            known = await self._find_entry(source, event) if keyed else None
            if known and known.payload is None:  # it was deleted with its conversation
                return None
            if known is None or known.state is InboxState.WAITING:
                message = await self._build_message(request, destination, event, keyed=keyed)
                assert source_of(message) == source  # noqa: S101 - both name this place
                known = _accepted_entry(await self._submit(message))
            if _options_of(known).digest != request.digest:
                raise RequestRefused(IDEMPOTENCY_KEY_REUSED)
            following = await self._subscribe(feed, known, destination.session_state)
        finally:
            if following is None:
                self._unsubscribe(feed, "")
        return following

    async def _find_entry(self, source: str, event: str) -> InboxEntry | None:
        """Find what was asked before, as it stands after all that is on its way to its owner."""
        known = await self._store.inbox.find(source, event)
        if known is None or known.state not in OPEN_STATES:
            return known
        # Whoever asked may have left just now, and ended it: that is not to be joined.
        await self._apply_event(known.key, StartWaiting())
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
            feed.inbox_id = entry.id
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
        """Stop following; whoever is the last ends the turn."""
        if self._feeds.release(feed) and key:
            self._post_event(key, RequestAbandoned(feed.inbox_id, feed.origin))

    # --- what is stored -------------------------------------------------------------------------

    async def _build_message(
        self, request: ApiRequest, destination: _Destination, event: str, *, keyed: bool
    ) -> InboundMessage:
        said, *before = await self._remote_pictures.fetch_all(
            (request.message, *destination.history)
        )
        if self._is_stopping():  # meanwhile
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
            keyed=keyed,
            digest=request.digest,
            kept=request.retrievable,
            called=request.model or self.model_resolver.default_model(destination.key),
            echo=request.echo,
        )
        files = await self._store_files(said.pictures)
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
        files = await self._store_files(message.pictures)
        return EarlierMessage(
            role=message.role,
            text=message.text,
            files=files,
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
        )

    async def _store_files(self, pictures: tuple[RequestPicture, ...]) -> tuple[File, ...]:
        return tuple([await self._store_file(each) for each in pictures])

    async def _store_file(self, picture: RequestPicture) -> File:
        async def pieces() -> AsyncIterator[bytes]:
            yield picture.content

        ref, size = await self._store_picture(pieces())
        return File(picture.name, picture.media_type, ref=ref, size=size)

    async def _read_session_state(self, address: Address) -> str:
        stored = await self._store.conversation(
            str(SessionKey(platform=address.platform, chat=address.chat))
        )
        if stored.active:
            return "continued"
        last = stored.newest
        resumed = last and last == stored.suspended and last.reason in _RESUMABLE_REASONS
        if resumed:
            return "resumed"
        return "continued" if stored.waiting else "new"  # whose turn is yet to begin

    def _new_id(self) -> str:
        return self._ids.new("q").partition("_")[2]


async def close_abandoned_requests(store: SessionStore, clock: Clock, key: str) -> None:
    """Nobody waits any more for what was asked before a start, unless it may be asked again."""
    waiting = (await store.conversation(key)).waiting
    gone = tuple(entry.id for entry in waiting if not _options_of(entry).keyed)
    if gone:
        await store.apply(SetInbox(ids=gone, state=InboxState.DONE, at=clock.now()))


def auto_resumes(key: str) -> bool:
    """See `sessions.conversation.events.State.auto_resume`: nobody reads there that a session was interrupted."""
    return key.startswith(f"{PLATFORM}:")


def _check_headers(session_id: str, idempotency_key: str) -> None:
    if session_id and not re.fullmatch(SESSION_ID_PATTERN, session_id):
        msg = "X-Session-Id takes up to 128 letters, digits and . _ : @ / + = -"
        raise invalid_request(msg, "X-Session-Id")
    if len(idempotency_key) > MAX_IDEMPOTENCY_KEY_LENGTH:
        msg = f"An Idempotency-Key has at most {MAX_IDEMPOTENCY_KEY_LENGTH} characters."
        raise invalid_request(msg, "Idempotency-Key")


def _replay(origin: str, text: str, end: FeedEnd) -> Feed:
    """Tell once more what was answered."""
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


_LARGE_BODY_BYTES = 200_000  # bytes of a body that is read beside the loop


async def subscribe_to_answer(
    request: Request, requests: ApiRequests, decode: Callable[[bytes], ApiRequest]
) -> tuple[ApiRequest, TurnSubscription]:
    """Have a request answered; raises what `Requests.begin` raises."""
    body = await request.body()
    asked = await asyncio.to_thread(decode, body) if len(body) > _LARGE_BODY_BYTES else decode(body)
    headers = request.headers
    session, key = headers.get("x-session-id", ""), headers.get("idempotency-key", "")
    return asked, await requests.begin(asked, session, key)
