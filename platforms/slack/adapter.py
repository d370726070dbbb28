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
from platforms.slack.calls import Json, SlackClient
from platforms.slack.config import SlackConfig
from platforms.slack.decode import SlackEvent, SlackEventDecoder, SlackIdentity
from platforms.slack.files import MAX_FILE_BYTES, SlackFiles
from platforms.slack.people import UserDirectory
from platforms.slack.rate_limit import RateLimitState
from platforms.slack.read_marks import SlackPlace, SlackPlaces, is_dm, is_user, parse_timestamp
from platforms.slack.send import SlackSender
from platforms.slack.socket_mode import SocketModeConnection
from platforms.slack.status import ThreadStatus
from platforms.slack.webhook import SlackWebhook
from platforms.slack.welcome import WelcomePrompts

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
    files=MAX_FILE_BYTES,
    caption_limit=750,  # it goes without blocks, every sign escaped, in 3,900 bytes
    reply=False,  # to answer a message on Slack is to open a thread below it
    command="!{word}",
)

DM_CAPABILITIES = msgspec.structs.replace(
    CAPABILITIES, live=Live.EDIT, live_interval=1.3, status=False, tasks=False
)
"""A stream is a reply in a thread; a DM is one flat conversation, so there a message is edited."""

EVENTS_PATH = "/slack/events"

_PLACES_KEY, _RATE_LIMIT_KEY, _SESSIONS_KEY, _GREETED_KEY = "places", "calls", "busy", "greeted"
_SAVE_SECONDS = 5.0
_SILENCE_SECONDS = 45.0  # of silence, after which the histories are asked whether it is one
_PLACES_CHECKED = 4  # of the places used last: a channel's history does not tell of its threads
_OVERLAP_SECONDS = 60.0  # seconds that are read again, in case something came out of order
_CONTEXT_MESSAGES = 20
_CONTEXT_TIMEOUT_SECONDS = 1.5
_MAX_READ_TRIES = 5
_MAX_CATCH_UP_MS = 7 * 86_400_000  # what was not used for longer is not read again, in milliseconds
_READ_BURST, _READ_PAUSE_SECONDS = 20, 1.5  # Slack answers such questions 50 times a minute


class SlackAdapter:
    """One app in one workspace."""

    name = "slack"
    capabilities = CAPABILITIES

    def __init__(self, config: SlackConfig, surroundings: Surroundings) -> None:
        self.account = surroundings.account
        self._clock = surroundings.clock
        self._shelf = surroundings.shelf
        self._require_mention = config.require_mention
        self._command_words = surroundings.words
        self._calls = SlackClient(config.bot_token, config.base_url, surroundings.clock)
        self._people = UserDirectory(self._calls, self._shelf)
        self._thread_status = ThreadStatus(
            self._calls, lambda kept: self._shelf.put(_SESSIONS_KEY, kept)
        )
        self._welcome_prompts = WelcomePrompts(
            self._calls, lambda kept: self._shelf.put(_GREETED_KEY, kept)
        )
        self._sender = SlackSender(self._calls, self._thread_status)
        self._files = SlackFiles(self._calls, self._sender)
        self._socket_mode: SocketModeConnection | None = None
        self._webhook: SlackWebhook | None = None
        if config.mode == "socket" and config.app_token:
            self._socket_mode = SocketModeConnection(
                self._calls, config.app_token, surroundings.trouble
            )
        elif config.signing_secret:
            self._webhook = SlackWebhook(
                config.signing_secret, surroundings.clock, surroundings.trouble
            )
        self._identity: SlackIdentity | None = None
        self._places = SlackPlaces()
        self._dm_channels: dict[str, str] = {}  # person -> channel; few: admins, and who is paired
        self._inbox: Inbox | None = None
        self._last_event_at = 0.0  # when something last came in
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def capabilities_in(self, address: Address) -> Capabilities:
        """See `VariesByChat`."""
        channel = _channel_of(address)
        return DM_CAPABILITIES if is_dm(channel) or is_user(channel) else CAPABILITIES

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        return [Route(EVENTS_PATH, self._webhook.serve, methods=["POST"])] if self._webhook else []

    def hosts(self) -> Sequence[str]:
        """See `OffersHosts`. Slack alone knows its address of ours; each request is signed."""
        return ["*"] if self._webhook else []

    # --- receiving ----------------------------------------------------------------------------

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`."""
        try:
            async with self._calls.open_session() as session:
                if self._identity is None:  # the first connection of this process
                    await self._restore_rate_limit()
                self._identity = await self._identify()
                self._places = SlackPlaces(await self._shelf.get(_PLACES_KEY))
                self._thread_status.restore(await self._shelf.get(_SESSIONS_KEY))
                self._welcome_prompts.restore(await self._shelf.get(_GREETED_KEY))
                self._inbox = inbox
                await self._receive(session, ready)
        except BaseExceptionGroup as group:
            raise _first_error(group) from group
        finally:
            self._inbox = None

    async def _restore_rate_limit(self) -> None:
        if noted := await self._shelf.get(_RATE_LIMIT_KEY):
            found = msgspec.json.decode(noted, type=RateLimitState)
            self._calls.rate_limit.restore(found, self._clock.monotonic(), self._clock.now())

    async def _receive(self, session: aiohttp.ClientSession, ready: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._save_periodically())
            group.create_task(self._sender.run_live_edits())
            behind = asyncio.Event()  # there may be something that did not reach us

            def handle(
                request: SocketModeRequest, acknowledge: Callable[[], Awaitable[None]]
            ) -> None:
                group.create_task(self._receive_event(request.type, request.payload, acknowledge))

            def up() -> None:
                self._last_event_at = self._clock.monotonic()
                now = self._clock.now()
                self._places.mark_gap(now, now - _MAX_CATCH_UP_MS)
                ready()
                behind.set()

            group.create_task(self._catch_up(behind))
            if self._socket_mode:
                group.create_task(self._watch_for_silence(self._socket_mode))
                group.create_task(self._socket_mode.watch_for_other_programs(session, handle))
                await self._socket_mode.run(session, handle, up)
            elif self._webhook:
                self._webhook.handle_event = self._receive_event
                try:
                    up()
                    await asyncio.Event().wait()
                finally:
                    self._webhook.handle_event = None

    async def _identify(self) -> SlackIdentity:
        found = await self._calls.read("auth.test")
        team, user = str(found.get("team_id") or ""), str(found.get("user_id") or "")
        return SlackIdentity(team, user, str(found.get("bot_id") or ""))

    async def _receive_event(
        self, kind: str, payload: Json, acknowledge: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Store what an envelope carries, then acknowledge it; the events of a chat go in order."""
        self._last_event_at = self._clock.monotonic()
        found = self._create_decoder().decode(kind, payload, self._clock.now())
        if found:
            try:
                if found.is_ordered:
                    async with self._lock(found.event.address.chat):
                        await self._submit(found)
                else:  # a button or command waits for nothing
                    await self._submit(found)
            except PlatformError as error:
                # Slack could not say who this is. It is not stored, so it must come again.
                _log.warning("slack: an event waits for its next delivery: %s", error)
                if acknowledge is None:
                    raise
                return
        if acknowledge:
            await acknowledge()

    def _create_decoder(self) -> SlackEventDecoder:
        return SlackEventDecoder(
            self._identity or SlackIdentity("", ""),
            self._places,
            self._people.names,
            platform=self.name,
            account=self.account,
            require_mention=self._require_mention,
            command_words=self._command_words,
        )

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _submit(self, found: SlackEvent) -> Accepted:
        """Complete an event and have it stored."""
        assert self._inbox is not None  # noqa: S101 - only while it runs
        assert self._identity is not None  # noqa: S101
        event, team = found.event, self._identity.team
        if found.addressed:
            sender = await self._people.sender(found.user, found.team, team, is_bot=found.is_bot)
        else:
            sender = Sender(f"{found.team or team}/{found.user}", is_bot=found.is_bot)
        event = msgspec.structs.replace(event, sender=sender)
        if found.opened_chat:
            return await self._greet(found, event)
        if isinstance(event, InboundMessage) and self._starts_thread(found):
            context = (*await self._context(found), *event.context)
            event = msgspec.structs.replace(event, context=context)
        if not found.ts or not found.addressed:
            return await self._inbox(event)
        # Known before it is stored, so that a crash in between cannot leave a thread unknown.
        new = self._places.find(found.channel, found.thread) is None
        if new:
            await self._save_place(found)
        accepted = await self._inbox(event)
        if accepted is Accepted.IGNORED and is_dm(found.channel):  # or is not let in any more
            await self._welcome_prompts.forget(found.channel)
            for thread in {"", found.thread}:
                self._places.forget(found.channel, thread)
        elif not new:
            self._update_place(found)
        elif accepted is not Accepted.STORED:  # somebody who is not let in: no place of ours
            self._places.forget(found.channel, found.thread)
        return accepted

    async def _greet(self, found: SlackEvent, event: Inbound) -> Accepted:
        """Somebody opened a chat with us: the gateway greets whom it lets in, once."""
        assert self._inbox is not None  # noqa: S101 - only while it runs
        accepted = Accepted.DUPLICATE
        talks = self._places.find(found.channel, "") is not None
        if not (talks or self._welcome_prompts.is_greeted(found.channel)):
            accepted = await self._inbox(event)
            if accepted is not Accepted.STORED:
                return accepted
        await self._welcome_prompts.show_prompts(found.channel, found.thread)
        return accepted

    def _starts_thread(self, found: SlackEvent) -> bool:
        """Whether a thread begins to talk to us here: then what stood before is worth knowing."""
        known = self._places.find(found.channel, found.thread)
        return bool(found.thread) and found.addressed and known is None

    async def _context(self, found: SlackEvent) -> tuple[Quote, ...]:
        in_thread = found.thread != found.ts
        method = "conversations.replies" if in_thread else "conversations.history"
        where: Json = {"ts": found.thread} if in_thread else {}
        try:
            async with asyncio.timeout(_CONTEXT_TIMEOUT_SECONDS):
                answer = await self._calls.read(
                    method,
                    about_channel=found.channel,
                    channel=found.channel,
                    latest=found.ts,
                    limit=_CONTEXT_MESSAGES + 1,
                    **where,
                )
        except (PlatformError, TimeoutError):
            return ()  # good to have, but nothing to wait for
        messages = answer.get("messages") or []
        return self._create_decoder().quotes(messages, found.ts)[-_CONTEXT_MESSAGES:]

    async def _save_place(self, found: SlackEvent) -> None:
        self._update_place(found)
        if self._places.changed:
            await self._shelf.put(_PLACES_KEY, self._places.dump())

    def _update_place(self, found: SlackEvent) -> None:
        user = "" if found.is_bot else found.user
        self._places.update(found.channel, found.thread, found.ts, user, found.team)
        if found.thread:  # other threads may begin there while we are away
            self._places.update(found.channel, "", found.ts)

    async def _save_periodically(self) -> None:
        last = RateLimitState(0)
        while True:
            if self._places.changed:
                await self._shelf.put(_PLACES_KEY, self._places.dump())
            noted = self._calls.rate_limit.dump(self._clock.monotonic(), self._clock.now())
            if noted.calls != last.calls or noted.blocked:
                await self._shelf.put(_RATE_LIMIT_KEY, msgspec.json.encode(noted).decode())
                last = noted
            await self._thread_status.retry_clearing()
            await asyncio.sleep(_SAVE_SECONDS)

    # --- what did not reach us ----------------------------------------------------------------

    async def _catch_up(self, behind: asyncio.Event) -> None:
        """After each connect, read what was said meanwhile: Slack gives up after some minutes."""
        while True:
            await behind.wait()
            behind.clear()
            for number, (place, gaps) in enumerate(self._places.with_gaps()):
                if number >= _READ_BURST:
                    await asyncio.sleep(_READ_PAUSE_SECONDS)
                await self._read_missed_with_retry(place, gaps)

    async def _read_missed_with_retry(self, place: SlackPlace, gaps: int) -> None:
        for _ in range(_MAX_READ_TRIES):
            try:
                await self._read_missed(place)
            except Unavailable as error:
                await asyncio.sleep(min(error.retry_after or 2.0, 60.0))
            except Rejected as error:
                _log.info("slack: %s is not read any more: %s", place.channel, error)
                self._places.forget(place.channel, place.thread)
                return
            else:
                self._places.close_gap(place, gaps)
                return
        _log.warning("slack: what was said in %s meanwhile cannot be read", place.channel)

    async def _read_missed(self, place: SlackPlace) -> int:
        """Hand in what was said in a place since all of it was known; tells how much was new."""
        seconds, micros = parse_timestamp(place.missed or place.seen)
        if not seconds:
            return 0
        oldest = seconds + micros / 1e6 - _OVERLAP_SECONDS
        stored = 0
        home = self._identity.team if self._identity else ""
        async with self._lock(f"{home}/{place.channel}"):
            messages = await self._sender.history(place.channel, place.thread, oldest)
            for message in messages:
                found = self._create_decoder().decode_event(
                    {"type": "message", **message, "channel": place.channel}
                )
                if found and found.is_in(place):
                    stored += await self._submit(found) is Accepted.STORED
        return stored

    async def _watch_for_silence(self, sockets: SocketModeConnection) -> None:
        """A connection may be up and deaf: the histories of the last used chats would show it."""
        while True:
            await asyncio.sleep(_SILENCE_SECONDS / 3)
            if self._clock.monotonic() - self._last_event_at < _SILENCE_SECONDS:
                continue
            self._last_event_at = self._clock.monotonic()
            missed = 0
            for place in list(self._places)[:_PLACES_CHECKED]:
                with contextlib.suppress(PlatformError):
                    missed += await self._read_missed(place)
            if missed:
                _log.warning("slack: the connection was up but nothing came; opening another")
                await sockets.reconnect()

    # --- showing ------------------------------------------------------------------------------

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        channel = await self._channel(op.address)
        match op:
            case Post() | Ask():
                place = self._places.find(channel, op.address.thread)
                return await self._sender.post(op, channel, place, await self._own_user(op))
            case Edit():
                return await self._sender.edit(op, channel)
            case Delete():
                return await self._sender.delete(op, channel)
            case Upload():
                return await self._files.upload(op, channel, await self._own_user(op))
            case React():
                return await self._sender.react(op, channel)
            case Typing():
                return await self._sender.typing(op, channel)
            case Draft():
                msg = "Slack shows no drafts."
                raise Rejected(msg)

    async def _channel(self, address: Address) -> str:
        """The channel of an address; for a person, such as an admin, the DM with them."""
        channel = _channel_of(address)
        if not is_user(channel):
            return channel
        if channel not in self._dm_channels:
            opened = await self._calls.read("conversations.open", users=channel)
            self._dm_channels[channel] = str(opened["channel"]["id"])
        return self._dm_channels[channel]

    async def _own_user(self, op: Post | Ask | Upload) -> str:
        """Name our own user, where a repeat must know our messages from others'."""
        if not op.again:
            return ""
        self._identity = self._identity or await self._identify()
        return self._identity.user

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return self._files.fetch(file)


def _channel_of(address: Address) -> str:
    return address.chat.rpartition("/")[2]


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Give what went wrong first; the other tasks ended because of it."""
    for error in group.exceptions:
        return _first_error(error) if isinstance(error, BaseExceptionGroup) else error
    return group
