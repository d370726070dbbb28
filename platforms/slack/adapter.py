"""Slack as the gateway knows it: what comes in is stored before it is acknowledged, op by op out."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

import aiohttp
import msgspec
from slack_sdk.socket_mode.request import SocketModeRequest
from starlette.routing import BaseRoute, Route

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Capabilities,
    Delete,
    Draft,
    Edit,
    File,
    Inbound,
    InboundMessage,
    Inbox,
    Live,
    Op,
    Post,
    Quote,
    React,
    Receipt,
    Repeat,
    Sender,
    Surroundings,
    Typing,
    Unit,
    Upload,
)
from platforms.core.errors import PlatformError, Rejected, Unavailable
from platforms.slack.calls import Calls, Json
from platforms.slack.config import SlackConfig
from platforms.slack.decode import Found, Identity, Reader
from platforms.slack.files import LARGEST, Files
from platforms.slack.people import People
from platforms.slack.rate_limit import Noted
from platforms.slack.read_marks import Place, Places, is_dm, is_person, moment
from platforms.slack.send import Show
from platforms.slack.socket_mode import Sockets
from platforms.slack.status import Presence
from platforms.slack.webhook import SignedRequests
from platforms.slack.welcome import Home

_log = logging.getLogger(__name__)

CAPABILITIES = Capabilities(
    text_limit=11_000,  # a markdown block takes 12,000
    unit=Unit.CHARACTERS,
    live=Live.STREAM,
    repeat=Repeat.LOOKUP,
    live_interval=1.0,
    # Slack counts calls of a method, in all chats together or posts in a channel, but never all
    # that happens in one chat; its own limits are kept by `platforms.slack.rate_limit`.
    burst=30,
    per_second=10.0,
    typing_interval=60.0,  # its words stay for two minutes
    typing_ends=True,
    status=True,
    tasks=True,
    threads_apart=True,
    buttons=20,
    reactions=True,
    files=LARGEST,
    caption_limit=750,  # it goes without blocks, every sign escaped, in 3,900 bytes
    reply=False,  # to answer a message on Slack is to open a thread below it
    command="!{word}",
)

IN_DMS = msgspec.structs.replace(
    CAPABILITIES, live=Live.EDIT, live_interval=1.3, status=False, tasks=False
)
"""A stream is a reply in a thread; a DM is one flat conversation, so there a message is edited."""

PATH = "/slack/events"

_SHELF, _CALLS, _BUSY, _GREETED = "places", "calls", "busy", "greeted"
_KEEP_SECONDS = 5.0
_QUIET_SECONDS = 45.0  # of silence, after which the histories are asked whether it is one
_LOOKED_AT = 4  # of the places used last: a channel's history does not tell of its threads
_OVERLAP = 60.0  # seconds that are read again, in case something came out of order
_CONTEXT = 20
_CONTEXT_SECONDS = 1.5
_MOST_WAITS = 5
_MISSED = 7 * 86_400_000  # what was not used for longer is not read again, in milliseconds
_READ_AT_ONCE, _READ_PAUSE = 20, 1.5  # Slack answers such questions 50 times a minute


class SlackAdapter:
    """One app in one workspace."""

    name = "slack"
    capabilities = CAPABILITIES

    def __init__(self, config: SlackConfig, surroundings: Surroundings) -> None:
        self.account = surroundings.account
        self._clock = surroundings.clock
        self._shelf = surroundings.shelf
        self._require_mention = config.require_mention
        self._words = surroundings.words
        self._calls = Calls(config.bot_token, config.base_url, surroundings.clock)
        self._people = People(self._calls, self._shelf)
        self._presence = Presence(self._calls, lambda kept: self._shelf.put(_BUSY, kept))
        self._home = Home(self._calls, lambda kept: self._shelf.put(_GREETED, kept))
        self._show = Show(self._calls, self._presence)
        self._files = Files(self._calls, self._show)
        self._sockets: Sockets | None = None
        self._signed: SignedRequests | None = None
        if config.mode == "socket" and config.app_token:
            self._sockets = Sockets(self._calls, config.app_token, surroundings.trouble)
        elif config.signing_secret:
            self._signed = SignedRequests(
                config.signing_secret, surroundings.clock, surroundings.trouble
            )
        self._us: Identity | None = None
        self._places = Places()
        self._directs: dict[str, str] = {}  # person -> channel; few: admins, and who is paired
        self._inbox: Inbox | None = None
        self._heard = 0.0  # when something last came in
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def capabilities_in(self, address: Address) -> Capabilities:
        """See `VariesByChat`."""
        channel = _channel_of(address)
        return IN_DMS if is_dm(channel) or is_person(channel) else CAPABILITIES

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        return [Route(PATH, self._signed.serve, methods=["POST"])] if self._signed else []

    def hosts(self) -> Sequence[str]:
        """See `OffersHosts`. Slack alone knows its address of ours; each request is signed."""
        return ["*"] if self._signed else []

    # --- receiving ----------------------------------------------------------------------------

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`."""
        try:
            async with self._calls.connected() as session:
                if self._us is None:  # the first connection of this process
                    await self._count_on()
                self._us = await self._identify()
                self._places = Places(await self._shelf.get(_SHELF))
                self._presence.left_by_an_earlier_process(await self._shelf.get(_BUSY))
                self._home.read(await self._shelf.get(_GREETED))
                self._inbox = inbox
                await self._receive(session, ready)
        except BaseExceptionGroup as group:
            raise _first(group) from group
        finally:
            self._inbox = None

    async def _count_on(self) -> None:
        if noted := await self._shelf.get(_CALLS):
            found = msgspec.json.decode(noted, type=Noted)
            self._calls.budget.go_on(found, self._clock.monotonic(), self._clock.now())

    async def _receive(self, session: aiohttp.ClientSession, ready: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_places())
            group.create_task(self._show.take_turns())
            behind = asyncio.Event()  # there may be something that did not reach us

            def handle(
                request: SocketModeRequest, acknowledge: Callable[[], Awaitable[None]]
            ) -> None:
                group.create_task(self._take(request.type, request.payload, acknowledge))

            def up() -> None:
                self._heard = self._clock.monotonic()
                now = self._clock.now()
                self._places.gap(now, now - _MISSED)
                ready()
                behind.set()

            group.create_task(self._catch_up(behind))
            if self._sockets:
                group.create_task(self._listen_for_silence(self._sockets))
                group.create_task(self._sockets.look_for_others(session, handle))
                await self._sockets.run(session, handle, up)
            elif self._signed:
                self._signed.take = self._take
                try:
                    up()
                    await asyncio.Event().wait()
                finally:
                    self._signed.take = None

    async def _identify(self) -> Identity:
        found = await self._calls.read("auth.test")
        team, user = str(found.get("team_id") or ""), str(found.get("user_id") or "")
        return Identity(team, user, str(found.get("bot_id") or ""))

    async def _take(
        self, kind: str, payload: Json, acknowledge: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Store what an envelope carries, then acknowledge it; the events of a chat go in order."""
        self._heard = self._clock.monotonic()
        found = self._reader().payload(kind, payload, self._clock.now())
        if found:
            try:
                if found.in_order:
                    async with self._lock(found.event.address.chat):
                        await self._hand_in(found)
                else:  # a button or command waits for nothing
                    await self._hand_in(found)
            except PlatformError as error:
                # Slack could not say who this is. It is not stored, so it must come again.
                _log.warning("slack: an event waits for its next delivery: %s", error)
                if acknowledge is None:
                    raise
                return
        if acknowledge:
            await acknowledge()

    def _reader(self) -> Reader:
        return Reader(
            self._us or Identity("", ""),
            self._places,
            self._people.names,
            platform=self.name,
            account=self.account,
            require_mention=self._require_mention,
            words=self._words,
        )

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _hand_in(self, found: Found) -> Accepted:
        """Complete an event and have it stored."""
        assert self._inbox is not None  # noqa: S101 - only while it runs
        assert self._us is not None  # noqa: S101
        event, team = found.event, self._us.team
        if found.addressed:
            sender = await self._people.sender(found.user, found.team, team, is_bot=found.is_bot)
        else:
            sender = Sender(f"{found.team or team}/{found.user}", is_bot=found.is_bot)
        event = msgspec.structs.replace(event, sender=sender)
        if found.opens:
            return await self._greet(found, event)
        if isinstance(event, InboundMessage) and self._opens(found):
            context = (*await self._context(found), *event.context)
            event = msgspec.structs.replace(event, context=context)
        if not found.ts or not found.addressed:
            return await self._inbox(event)
        # Known before it is stored, so that a crash in between cannot leave a thread unknown.
        new = self._places.find(found.channel, found.thread) is None
        if new:
            await self._remember(found)
        accepted = await self._inbox(event)
        if accepted is Accepted.IGNORED and is_dm(found.channel):  # or is not let in any more
            await self._home.forget(found.channel)
            for thread in {"", found.thread}:
                self._places.forget(found.channel, thread)
        elif not new:
            self._use(found)
        elif accepted is not Accepted.STORED:  # somebody who is not let in: no place of ours
            self._places.forget(found.channel, found.thread)
        return accepted

    async def _greet(self, found: Found, event: Inbound) -> Accepted:
        """Somebody opened a chat with us: the gateway greets whom it lets in, once."""
        assert self._inbox is not None  # noqa: S101 - only while it runs
        accepted = Accepted.DUPLICATE
        talks = self._places.find(found.channel, "") is not None
        if not (talks or self._home.knows(found.channel)):
            accepted = await self._inbox(event)
            if accepted is not Accepted.STORED:
                return accepted
        await self._home.welcome(found.channel, found.thread)
        return accepted

    def _opens(self, found: Found) -> bool:
        """Whether a thread begins to talk to us here: then what stood before is worth knowing."""
        known = self._places.find(found.channel, found.thread)
        return bool(found.thread) and found.addressed and known is None

    async def _context(self, found: Found) -> tuple[Quote, ...]:
        in_thread = found.thread != found.ts
        method = "conversations.replies" if in_thread else "conversations.history"
        where: Json = {"ts": found.thread} if in_thread else {}
        try:
            async with asyncio.timeout(_CONTEXT_SECONDS):
                answer = await self._calls.read(
                    method,
                    where=found.channel,
                    channel=found.channel,
                    latest=found.ts,
                    limit=_CONTEXT + 1,
                    **where,
                )
        except (PlatformError, TimeoutError):
            return ()  # good to have, but nothing to wait for
        messages = answer.get("messages") or []
        return self._reader().quotes(messages, found.ts)[-_CONTEXT:]

    async def _remember(self, found: Found) -> None:
        self._use(found)
        if self._places.changed:
            await self._shelf.put(_SHELF, self._places.kept())

    def _use(self, found: Found) -> None:
        user = "" if found.is_bot else found.user
        self._places.use(found.channel, found.thread, found.ts, user, found.team)
        if found.thread:  # other threads may begin there while we are away
            self._places.use(found.channel, "", found.ts)

    async def _keep_places(self) -> None:
        last = Noted(0)
        while True:
            if self._places.changed:
                await self._shelf.put(_SHELF, self._places.kept())
            noted = self._calls.budget.noted(self._clock.monotonic(), self._clock.now())
            if noted.calls != last.calls or noted.blocked:
                await self._shelf.put(_CALLS, msgspec.json.encode(noted).decode())
                last = noted
            await self._presence.tidy()
            await asyncio.sleep(_KEEP_SECONDS)

    # --- what did not reach us ----------------------------------------------------------------

    async def _catch_up(self, behind: asyncio.Event) -> None:
        """After each connect, read what was said meanwhile: Slack gives up after some minutes."""
        while True:
            await behind.wait()
            behind.clear()
            for number, (place, gaps) in enumerate(self._places.incomplete()):
                if number >= _READ_AT_ONCE:
                    await asyncio.sleep(_READ_PAUSE)
                await self._read_patiently(place, gaps)

    async def _read_patiently(self, place: Place, gaps: int) -> None:
        for _ in range(_MOST_WAITS):
            try:
                await self._read_on(place)
            except Unavailable as error:
                await asyncio.sleep(min(error.retry_after or 2.0, 60.0))
            except Rejected as error:
                _log.info("slack: %s is not read any more: %s", place.channel, error)
                self._places.forget(place.channel, place.thread)
                return
            else:
                self._places.complete(place, gaps)
                return
        _log.warning("slack: what was said in %s meanwhile cannot be read", place.channel)

    async def _read_on(self, place: Place) -> int:
        """Hand in what was said in a place since all of it was known; tells how much was new."""
        seconds, micros = moment(place.missed or place.seen)
        if not seconds:
            return 0
        oldest = seconds + micros / 1e6 - _OVERLAP
        stored = 0
        home = self._us.team if self._us else ""
        async with self._lock(f"{home}/{place.channel}"):
            messages = await self._show.history(place.channel, place.thread, oldest)
            for message in messages:
                found = self._reader().event(
                    {"type": "message", **message, "channel": place.channel}
                )
                if found and found.is_in(place):
                    stored += await self._hand_in(found) is Accepted.STORED
        return stored

    async def _listen_for_silence(self, sockets: Sockets) -> None:
        """A connection may be up and deaf: the histories of the last used chats would show it."""
        while True:
            await asyncio.sleep(_QUIET_SECONDS / 3)
            if self._clock.monotonic() - self._heard < _QUIET_SECONDS:
                continue
            self._heard = self._clock.monotonic()
            missed = 0
            for place in list(self._places)[:_LOOKED_AT]:
                with contextlib.suppress(PlatformError):
                    missed += await self._read_on(place)
            if missed:
                _log.warning("slack: the connection was up but nothing came; opening another")
                await sockets.drop()

    # --- showing ------------------------------------------------------------------------------

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        channel = await self._channel(op.address)
        match op:
            case Post() | Ask():
                place = self._places.find(channel, op.address.thread)
                return await self._show.post(op, channel, place, await self._user(op))
            case Edit():
                return await self._show.edit(op, channel)
            case Delete():
                return await self._show.delete(op, channel)
            case Upload():
                return await self._files.upload(op, channel, await self._user(op))
            case React():
                return await self._show.react(op, channel)
            case Typing():
                return await self._show.typing(op, channel)
            case Draft():
                msg = "Slack shows no drafts."
                raise Rejected(msg)

    async def _channel(self, address: Address) -> str:
        """The channel of an address; for a person, such as an admin, the DM with them."""
        channel = _channel_of(address)
        if not is_person(channel):
            return channel
        if channel not in self._directs:
            opened = await self._calls.read("conversations.open", users=channel)
            self._directs[channel] = str(opened["channel"]["id"])
        return self._directs[channel]

    async def _user(self, op: Post | Ask | Upload) -> str:
        """Name our own user, where a repeat must know our messages from others'."""
        if not op.again:
            return ""
        self._us = self._us or await self._identify()
        return self._us.user

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return self._files.fetch(file)


def _channel_of(address: Address) -> str:
    return address.chat.rpartition("/")[2]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Give what went wrong first; the other tasks ended because of it."""
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    return group
