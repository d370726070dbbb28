"""From what is asked to a turn that is followed: stored like every message, and answered once."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

import msgspec

from agent.events import Ending, TextDelta, TurnDone
from agent.spend import Usage
from gateway.answer import CAPPED
from gateway.api.asked import Asked, Picture, Said
from gateway.api.failures import (
    NOT_ALLOWED,
    NOT_NOW,
    OTHER_REQUEST,
    Refused,
    too_many,
    unfit,
)
from gateway.api.naming import Naming
from gateway.delivery.view import read_body
from gateway.feeds import Feed, Feeds
from gateway.inbound import NotTaken, source_of
from gateway.messages import read_event
from gateway.news import Over
from gateway.wishes import Row, Wishes, read_wishes, write_wishes
from platforms.core.contract import Address, File, InboundMessage, Sender, Text
from sessions.changes import SetInbox
from sessions.events import Begin, Event, Left
from sessions.key import SessionKey
from sessions.records import InboxEntry, InboxState, Reason, Turn, TurnState
from sessions.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids, made_of

PLATFORM = "api"

Keep = Callable[[AsyncIterator[bytes]], Awaitable[tuple[str, int]]]

_HOLDER = Sender(id="key", name="API")
SESSION = r"[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,127}"
LONGEST_KEY = 255
_MOST_TRIES = 20  # of one Idempotency-Key, where none came to an answer
_OPEN = {InboxState.WAITING, InboxState.RUNNING}
_GOES_ON = {Reason.CRASH, Reason.RESTART, Reason.STUCK}


class Following(msgspec.Struct, frozen=True):
    """A turn that somebody waits for; it is let go of at the end of a `with`."""

    feed: Feed
    id: str
    created: int  # seconds since 1970
    model: str
    state: str  # of the session: "new", "continued", "resumed"; empty: there is none
    leave: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        self.leave()


class Requests:
    """Begins turns for programs, and finds those that are there already."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        feeds: Feeds,
        naming: Naming,
        ask: Callable[[InboundMessage], Awaitable[InboxEntry | NotTaken]],
        post: Callable[[str, Event], None],
        owner: Callable[[str, Event], Awaitable[object]],
        keep: Keep,
        stopping: Callable[[], bool],
    ) -> None:
        self.naming = naming
        self._store = store
        self._clock = clock
        self._ids = ids
        self._feeds = feeds
        self._ask = ask
        self._post = post
        self._owner = owner  # takes an event as `post` does, and returns when it is carried out
        self._keep = keep  # a picture until its turn fetches it
        self._stopping = stopping

    async def begin(self, asked: Asked, session: str, key: str) -> Following:
        """Have a request answered; raises `Refused`, or `StoreError` when nothing was stored.

        `session` names a conversation that is kept, `key` says what may be sent again.
        """
        if self._stopping():
            raise Refused(NOT_NOW)
        _check(session, key)
        asked = msgspec.structs.replace(asked, model=await self.naming.find(asked.model))
        # A name that no program can choose: it is for this request alone.
        own = made_of(PLATFORM, key) if key else self._new_id()
        place = Address(PLATFORM, session or f"~{own}")
        event = f"k{made_of(key)}" if key else self._new_id()
        for number in range(1, _MOST_TRIES + 1):
            name = event if number == 1 else f"{event}~{number}"
            found = await self._try(asked, place, name, session=session, keyed=bool(key))
            if found:
                return found
        msg = "This Idempotency-Key came too often without an answer. Use a new one."
        raise unfit(msg, code="idempotency_key_used_up")

    # --- one try --------------------------------------------------------------------------------

    async def _try(
        self, asked: Asked, place: Address, event: str, *, session: str, keyed: bool
    ) -> Following | None:
        """Join or begin a turn; None when there was one that came to no answer."""
        source = f"{PLATFORM}@:{place.chat}"
        origin = made_of(source, event)
        feed = self._feeds.open(origin)
        following: Following | None = None
        try:
            state = await self._session_state(place) if session else ""
            known = await self._found(source, event) if keyed else None
            if known is None or known.state is InboxState.WAITING:
                message = await self._message(asked, place, event, once=not session, keyed=keyed)
                assert source_of(message) == source  # noqa: S101 - both name this place
                known = _taken(await self._ask(message))
            if _wishes_of(known).digest != asked.digest:
                raise Refused(OTHER_REQUEST)
            following = await self._followed(feed, known, state, asked.model)
        finally:
            if following is None:
                self._leave(feed, "")
        return following

    async def _found(self, source: str, event: str) -> InboxEntry | None:
        """Find what was asked before, as it stands after all that is on its way to its owner."""
        known = await self._store.inbox_entry(source, event)
        if known is None or known.state not in _OPEN:
            return known
        # Whoever asked may have left just now, and ended it: that is not to be joined.
        await self._owner(known.key, Begin())
        return await self._store.inbox_entry(source, event)

    async def _followed(
        self, feed: Feed, known: InboxEntry, state: str, model: str
    ) -> Following | None:
        def leave() -> None:
            self._leave(feed, known.key)

        created = known.received_at // 1000
        model = model or self.naming.usual(known.key)
        if known.state in _OPEN:
            feed.inbox = known.id
            return Following(feed, feed.origin, created, model, state, leave)
        turn = await self._store.turn(known.turn_id) if known.turn_id else None
        if turn is None or turn.state is not TurnState.DONE:
            return None
        stored = await self._stored(turn, feed.origin)
        self._leave(feed, "")
        return Following(stored, feed.origin, created, model, state, lambda: None)

    async def _stored(self, turn: Turn, origin: str) -> Feed:
        """Tell once more what was answered."""
        items = await self._store.turn_items(turn.id)
        text = next((read_body(item).text for item in items if item.kind == "answer"), "")
        spent = await self._store.spent(turn_id=turn.id)
        usage = Usage(spent.input_tokens, spent.output_tokens, spent.cached_tokens)
        last = "capped" if turn.cause == CAPPED else ""
        feed = Feed(origin)
        feed.tell(TextDelta(text))
        feed.done(TurnDone(Ending.ANSWERED, text, usage=usage, last=last))
        feed.finish(Over.ANSWERED)
        return feed

    def _leave(self, feed: Feed, key: str) -> None:
        """Stop following; whoever is the last ends the turn."""
        if self._feeds.leave(feed) and key:
            self._post(key, Left(feed.inbox, feed.origin))

    # --- what is stored -------------------------------------------------------------------------

    async def _message(
        self, asked: Asked, place: Address, event: str, *, once: bool, keyed: bool
    ) -> InboundMessage:
        said = asked.before if once else ()  # else the store knows better
        wishes = Wishes(
            system=asked.system,
            model=asked.model,
            max_output_tokens=asked.max_output_tokens,
            temperature=asked.temperature,
            effort=asked.effort,
            before=tuple([await self._row(each) for each in said]),
            once=once,
            keyed=keyed,
            digest=asked.digest,
        )
        files = await self._files(asked.message.pictures)
        words = (Text(asked.message.text),) if asked.message.text.strip() else ()
        return InboundMessage(
            id=event,
            at=self._clock.now(),
            address=place,
            sender=_HOLDER,
            parts=(*words, *files),
            direct=True,
            addressed=True,
            wishes=write_wishes(wishes),
        )

    async def _row(self, said: Said) -> Row:
        files = await self._files(said.pictures)
        return Row(said.role, said.text, files, said.tool_calls, said.tool_call_id)

    async def _files(self, pictures: tuple[Picture, ...]) -> tuple[File, ...]:
        return tuple([await self._file(each) for each in pictures])

    async def _file(self, picture: Picture) -> File:
        async def pieces() -> AsyncIterator[bytes]:
            yield picture.content

        ref, size = await self._keep(pieces())
        return File(picture.name, picture.media_type, ref, size)

    async def _session_state(self, place: Address) -> str:
        stored = await self._store.conversation(str(SessionKey(place.platform, place.chat)))
        if stored.active:
            return "continued"
        last = stored.newest
        resumed = last and last == stored.suspended and last.reason in _GOES_ON
        return "resumed" if resumed else "new"

    def _new_id(self) -> str:
        return self._ids.new("q").partition("_")[2]


async def forget_left(store: SessionStore, clock: Clock, key: str) -> None:
    """Nobody waits any more for what was asked before a start, unless it may be asked again."""
    waiting = (await store.conversation(key)).waiting
    gone = tuple(entry.id for entry in waiting if not _wishes_of(entry).keyed)
    if gone:
        await store.apply(SetInbox(gone, InboxState.DONE, clock.now()))


def goes_on(key: str) -> bool:
    """See `sessions.events.State.goes_on`: nobody reads there that a session was interrupted."""
    return key.startswith(f"{PLATFORM}:")


def _check(session: str, key: str) -> None:
    if session and not re.fullmatch(SESSION, session):
        msg = "X-Session-Id takes up to 128 letters, digits and . _ : @ / + = -"
        raise unfit(msg, "X-Session-Id")
    if len(key) > LONGEST_KEY:
        msg = f"An Idempotency-Key has at most {LONGEST_KEY} characters."
        raise unfit(msg, "Idempotency-Key")


def _taken(entry: InboxEntry | NotTaken) -> InboxEntry:
    if isinstance(entry, NotTaken):
        raise Refused(too_many(entry.limit) if entry.limit else NOT_ALLOWED)
    return entry


def _wishes_of(entry: InboxEntry) -> Wishes:
    event = read_event(entry)
    return read_wishes(event.wishes) if isinstance(event, InboundMessage) else Wishes()
