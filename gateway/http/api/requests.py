"""From what is asked to a turn that is followed: stored like every message, and answered once."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import msgspec

from agent.events import TextDelta
from gateway.http.api.answers import OPEN, Kept, KeptAnswers
from gateway.http.api.asked import Asked, Picture, Said
from gateway.http.api.failures import (
    NOT_ALLOWED,
    NOT_NOW,
    OTHER_REQUEST,
    Refused,
    too_many,
    unfit,
)
from gateway.http.api.fetch_pictures import RemotePictures
from gateway.http.api.models import Naming
from gateway.inbound.reader import origin_of, read_event
from gateway.inbound.reception import NotTaken, source_of
from gateway.inbound.request_options import Row, Wishes, read_wishes, write_wishes
from gateway.turns.feeds import Feed, Feeds
from gateway.turns.news import End
from platforms.core.contract import Address, File, InboundMessage, Sender, Text
from sessions.changes import SetInbox
from sessions.conversation.events import Begin, Command, Delete, Event, Left
from sessions.key import SessionKey
from sessions.records import InboxEntry, InboxState, Message, Reason, TurnState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids, made_of

PLATFORM = "api"

Keep = Callable[[AsyncIterator[bytes]], Awaitable[tuple[str, int]]]

_HOLDER = Sender(id="key", name="API")
SESSION = r"[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,127}"
LONGEST_KEY = 255
_OWN = "~"  # the names that we give begin so
_MOST_TRIES = 20  # of one Idempotency-Key, where none came to an answer
_GOES_ON = {Reason.CRASH, Reason.RESTART, Reason.STUCK}


class Following(msgspec.Struct, frozen=True):
    """A turn that somebody waits for; it is let go of at the end of a `with`."""

    feed: Feed
    id: str
    entry: InboxEntry  # what was asked
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


class _Where(msgspec.Struct, frozen=True):
    """In which conversation something is asked, and what it knows of what was said before."""

    place: Address
    once: bool = False  # as in `gateway.inbound.request_options.Wishes`
    state: str = ""  # as in `Following`
    before: tuple[Said, ...] = ()
    rows: tuple[Message, ...] = ()
    after: str = ""

    @property
    def source(self) -> str:
        """See `gateway.inbound.reception.source_of`."""
        return f"{self.place.platform}@{self.place.account}:{self.place.chat}"

    @property
    def key(self) -> str:
        """Of the conversation."""
        return str(SessionKey(self.place.platform, self.place.chat))


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
        remote: RemotePictures,
        erase: Callable[[str], Awaitable[None]],
        stopping: Callable[[], bool],
    ) -> None:
        self.naming = naming
        self.kept = KeptAnswers(store)
        self._store = store
        self._clock = clock
        self._ids = ids
        self._feeds = feeds
        self._ask = ask
        self._post = post
        self._owner = owner  # takes an event as `post` does, and returns when it is carried out
        self._keep = keep  # a picture until its turn fetches it
        self._remote = remote
        self._erase = erase  # takes the words out of a session that was deleted
        self._stopping = stopping
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def begin(self, asked: Asked, session: str, key: str) -> Following:
        """Have a request answered; raises `Refused`, or `StoreError` when nothing was stored.

        `session` names a conversation that is kept, `key` says what may be sent again.
        """
        if self._stopping():
            raise Refused(NOT_NOW)
        _check(session, key)
        asked = msgspec.structs.replace(asked, model=await self.naming.find(asked.model))
        previous = await self._previous(asked.previous, session) if asked.previous else None
        # A name that no program can choose: it is for this request alone.
        own = made_of(PLATFORM, key) if key else self._new_id()
        fresh = Address(PLATFORM, session or f"{_OWN}{own}")
        event = f"k{made_of(key)}" if key else self._new_id()
        # Nobody comes between the look at the end of a conversation and the word added to it.
        async with self._line(previous.place if previous else fresh):
            for number in range(1, _MOST_TRIES + 1):
                name = event if number == 1 else f"{event}~{number}"
                if previous is None:
                    where = await self._begun(asked, fresh, session)
                else:
                    where = await self._after(asked, previous, fresh, name if key else "")
                found = await self._try(asked, where, name, keyed=bool(key))
                if found:
                    return found
        msg = "This Idempotency-Key came too often without an answer. Use a new one."
        raise unfit(msg, code="idempotency_key_used_up")

    async def stop(self, kept: Kept) -> None:
        """End what is still being answered; returns when that is stored."""
        origin = origin_of(kept.entry)
        await self._owner(kept.entry.key, Left(kept.entry.id, origin))

    async def forget(self, kept: Kept) -> None:
        """Give an answer to nobody any more; a conversation of which nothing is left goes with it."""
        await self.kept.forget(kept, self._clock.now())
        turn, own = kept.turn, kept.place.chat.startswith(_OWN)
        if turn and own and await self.kept.are_forgotten(turn.session_id):
            by = Command(kept.entry.address, f"{PLATFORM}:{_HOLDER.id}", admin=True)
            await self._owner(kept.entry.key, Delete(by, turn.session_id))
            await self._erase(turn.session_id)

    # --- in which conversation ------------------------------------------------------------------

    def _line(self, place: Address) -> asyncio.Lock:
        return self._lines.setdefault(place.chat, asyncio.Lock())

    async def _previous(self, answer_id: str, session: str) -> Kept:
        """Find the answer that somebody wants to go on from; raises `Refused`."""
        param = "previous_response_id"
        if session:
            msg = (
                "X-Session-Id and previous_response_id both name a conversation; send one of them."
            )
            raise unfit(msg, param)
        found = await self.kept.find(answer_id)
        if found is None:
            msg = f"Previous response with id '{answer_id[:80]}' not found."
            raise unfit(msg, param, "previous_response_not_found")
        if found.end is None:
            msg = "That response is still being written; ask again once it has ended."
            raise unfit(msg, param, "previous_response_in_progress")
        return found

    async def _begun(self, asked: Asked, place: Address, session: str) -> _Where:
        if session:  # the store knows better than the program what was said
            return _Where(place, state=await self._session_state(place))
        return _Where(place, once=True, before=asked.before)

    async def _after(self, asked: Asked, previous: Kept, fresh: Address, event: str) -> _Where:
        """Go on behind an answer; where others did so before, or nothing is to stay, branch off.

        `event` names what may be asked twice: where it went on before, it is found again.
        """
        there = _Where(
            previous.place, once=previous.place.chat.startswith(_OWN), before=asked.before
        )
        branch = _Where(fresh, once=True, before=asked.before)
        turn = previous.turn
        if event and await self._store.inbox_entry(there.source, event):
            return there
        if turn is None:
            return branch
        if asked.keep and await self._is_newest(previous, there.key):
            return msgspec.structs.replace(there, after=turn.session_id)
        rows = await self._store.history_up_to(turn.session_id, turn.id)
        return msgspec.structs.replace(branch, rows=rows)

    async def _is_newest(self, previous: Kept, key: str) -> bool:
        """Whether a conversation stands as it did when the answer was given."""
        stored, turn = await self._store.conversation(key), previous.turn
        if stored.waiting or stored.running or stored.newest is None or turn is None:
            return False
        last = await self._store.last_turn(turn.session_id)
        return stored.newest.id == turn.session_id and last is not None and last.id == turn.id

    # --- one try --------------------------------------------------------------------------------

    async def _try(
        self, asked: Asked, where: _Where, event: str, *, keyed: bool
    ) -> Following | None:
        """Join or begin a turn; None when there was one that came to no answer."""
        source = where.source
        origin = made_of(source, event)
        feed = self._feeds.open(origin)
        following: Following | None = None
        try:
            known = await self._found(source, event) if keyed else None
            if known and known.payload is None:  # it was deleted with its conversation
                return None
            if known is None or known.state is InboxState.WAITING:
                message = await self._message(asked, where, event, keyed=keyed)
                assert source_of(message) == source  # noqa: S101 - both name this place
                known = _taken(await self._ask(message))
            if _wishes_of(known).digest != asked.digest:
                raise Refused(OTHER_REQUEST)
            following = await self._followed(feed, known, where.state)
        finally:
            if following is None:
                self._leave(feed, "")
        return following

    async def _found(self, source: str, event: str) -> InboxEntry | None:
        """Find what was asked before, as it stands after all that is on its way to its owner."""
        known = await self._store.inbox_entry(source, event)
        if known is None or known.state not in OPEN:
            return known
        # Whoever asked may have left just now, and ended it: that is not to be joined.
        await self._owner(known.key, Begin())
        return await self._store.inbox_entry(source, event)

    async def _followed(self, feed: Feed, known: InboxEntry, state: str) -> Following | None:
        def leave() -> None:
            self._leave(feed, known.key)

        created = known.received_at // 1000
        wishes = _wishes_of(known)
        model = wishes.called or wishes.model or self.naming.usual(known.key)
        if known.state in OPEN:
            feed.inbox = known.id
            return Following(feed, feed.origin, known, created, model, state, leave)
        turn = await self._store.turn(known.turn_id) if known.turn_id else None
        if turn is None or turn.state is not TurnState.DONE:
            return None
        text, end = await self.kept.ending(known, turn)
        if end is None or await self.kept.is_forgotten(known):
            return None
        stored = _told_again(feed.origin, text, end)
        self._leave(feed, "")
        return Following(stored, feed.origin, known, created, model, state, lambda: None)

    def _leave(self, feed: Feed, key: str) -> None:
        """Stop following; whoever is the last ends the turn."""
        if self._feeds.leave(feed) and key:
            self._post(key, Left(feed.inbox, feed.origin))

    # --- what is stored -------------------------------------------------------------------------

    async def _message(
        self, asked: Asked, where: _Where, event: str, *, keyed: bool
    ) -> InboundMessage:
        said, *before = await self._remote.fetched((asked.message, *where.before))
        if self._stopping():  # meanwhile
            raise Refused(NOT_NOW)
        wishes = Wishes(
            system=asked.system,
            model=asked.model,
            max_output_tokens=asked.max_output_tokens,
            temperature=asked.temperature,
            effort=asked.effort,
            before=tuple([await self._row(each) for each in before]),
            rows=where.rows,
            after=where.after,
            once=where.once,
            keyed=keyed,
            digest=asked.digest,
            kept=asked.keep,
            called=asked.model or self.naming.usual(where.key),
            echo=asked.echo,
        )
        files = await self._files(said.pictures)
        words = (Text(said.text),) if said.text.strip() else ()
        return InboundMessage(
            id=event,
            at=self._clock.now(),
            address=where.place,
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
        if resumed:
            return "resumed"
        return "continued" if stored.waiting else "new"  # whose turn is yet to begin

    def _new_id(self) -> str:
        return self._ids.new("q").partition("_")[2]


async def forget_left(store: SessionStore, clock: Clock, key: str) -> None:
    """Nobody waits any more for what was asked before a start, unless it may be asked again."""
    waiting = (await store.conversation(key)).waiting
    gone = tuple(entry.id for entry in waiting if not _wishes_of(entry).keyed)
    if gone:
        await store.apply(SetInbox(gone, InboxState.DONE, clock.now()))


def goes_on(key: str) -> bool:
    """See `sessions.conversation.events.State.goes_on`: nobody reads there that a session was interrupted."""
    return key.startswith(f"{PLATFORM}:")


def _check(session: str, key: str) -> None:
    if session and not re.fullmatch(SESSION, session):
        msg = "X-Session-Id takes up to 128 letters, digits and . _ : @ / + = -"
        raise unfit(msg, "X-Session-Id")
    if len(key) > LONGEST_KEY:
        msg = f"An Idempotency-Key has at most {LONGEST_KEY} characters."
        raise unfit(msg, "Idempotency-Key")


def _told_again(origin: str, text: str, end: End) -> Feed:
    """Tell once more what was answered."""
    feed = Feed(origin)
    feed.tell(TextDelta(text))
    if end.done:
        feed.done(end.done)
    feed.finish(end.over, end.cause)
    return feed


def _taken(entry: InboxEntry | NotTaken) -> InboxEntry:
    if isinstance(entry, NotTaken):
        raise Refused(too_many(entry.limit) if entry.limit else NOT_ALLOWED)
    return entry


def _wishes_of(entry: InboxEntry) -> Wishes:
    event = read_event(entry)
    return read_wishes(event.wishes) if isinstance(event, InboundMessage) else Wishes()
