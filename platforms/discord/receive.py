"""Intake of gateway events into the inbox, with backfill of messages missed while disconnected."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from platforms.core.contract import (
    Accepted,
    Inbound,
    InboundAction,
    InboundMessage,
    Inbox,
    Surroundings,
)
from platforms.core.errors import PlatformError, Rejected, Unauthorized
from platforms.core.retry import retry_call
from platforms.discord import decode, payloads
from platforms.discord.connection import DiscordClient
from platforms.discord.decode import BotAccount, MessageContext
from platforms.discord.errors import translate_errors
from platforms.discord.interactions import INTERACTION_TYPES, Interactions
from platforms.discord.lookup import (
    LOOKUP_TIMEOUT_SECONDS,
    PAGE_SIZE,
    PARTIAL_CACHE_SECONDS,
    DiscordLookup,
)
from platforms.discord.queues import ChannelEvent, ChannelQueue, ChannelQueues
from platforms.discord.read_marks import sent_at
from platforms.discord.receiver_state import ReceiverState
from platforms.discord.rooms import (
    ChannelDirectory,
    DiscordChannel,
    Payload,
    RecentMessages,
    channel_address,
)
from platforms.discord.send import DiscordSender
from sessions.values.tasks import start_task

log = logging.getLogger(__name__)

JOIN_SECONDS = 1.0
"""Longest pause between the pieces of a text that the client split."""

_LONG_TEXT_CHARS = 1_900
_MAX_PAGES = 10

_MENU_KEY = "menu"

_MENU_PAUSES = (1.0, 10.0, 60.0)

_SAVE_SECONDS = 1.0
_CONTEXT_MESSAGES = 20
_READ_AGAIN = "READ_AGAIN"

_Asked = TypeVar("_Asked", InboundMessage, InboundAction)


_UNREADABLE = (
    AttributeError,
    LookupError,
    RecursionError,  # nested too deeply
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)


class MalformedEvent(Exception):
    """An event that does not have the documented form."""


class NotStored(Exception):
    """The inbox did not store an event; the event itself is well-formed."""


@contextmanager
def _malformed_errors() -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise MalformedEvent from error


class DiscordReceiver:
    """Receiver of one connection; `state` outlives the connection.

    `sender` learns nonce and id of each message that the bot itself posted, and the commands that
    it answers privately.
    """

    def __init__(
        self,
        *,
        platform: str,
        surroundings: Surroundings,
        state: ReceiverState,
        inbox: Inbox,
        ready: Callable[[], None],
        sender: DiscordSender,
        require_mention: bool,
        join_seconds: float,
    ) -> None:
        self._platform = platform
        self._account = surroundings.account
        self._clock = surroundings.clock
        self._shelf = surroundings.shelf
        self._surroundings = surroundings
        self._needs_memberships = surroundings.memberships
        self._state = state
        self._marks = state.marks
        self._authors = state.authors
        self._inbox = inbox
        self._ready = ready
        self._sender = sender
        self._require_mention = require_mention
        self._join_seconds = join_seconds
        self._bot_account: BotAccount | None = None
        self._channels = ChannelDirectory()
        self._recent_messages = RecentMessages()
        self._own_roles: dict[str, frozenset[str]] = {}  # guild id -> role ids
        self._changed = asyncio.Event()

    def start(self, tasks: asyncio.TaskGroup, client: DiscordClient) -> None:
        """Prepare for a connection; must be called before the first `on_frame`."""
        self._tasks = tasks
        self._client = client
        self._queues = ChannelQueues(tasks, self._handle)
        self._lookup = DiscordLookup(client, self._clock, self._channels)
        private_words = frozenset(
            entry.word for entry in self._surroundings.commands if entry.private
        )
        self._interactions = Interactions(
            client, tasks, self._sender.private_commands, private_words
        )

    # --- gateway events ----------------------------------------------------------------------

    def on_frame(self, raw: str) -> None:
        """Dispatch one gateway frame; malformed frames are logged and skipped."""
        try:
            with _malformed_errors():
                frame = msgspec.json.decode(raw)
                if frame.get("op") == 0:
                    self._dispatch(frame["t"], frame.get("d") or {})
        except MalformedEvent:
            log.exception("discord: skipped a malformed gateway frame")

    def _dispatch(self, kind: str, data: Payload) -> None:
        self._channels.on_event(kind, data)
        match kind:
            case "READY":
                self._on_ready(data)
            case "RESUMED":
                self._ready()
            case "GUILD_CREATE" if self._bot_account:
                self._own_roles[str(data["id"])] = decode.own_roles(data, self._bot_account.id)
            case "GUILD_DELETE" if not data.get("unavailable"):
                self._own_roles.pop(str(data["id"]), None)
            case "MESSAGE_CREATE" | "MESSAGE_UPDATE" | "MESSAGE_DELETE" | "MESSAGE_DELETE_BULK":
                self._queues.put(_read_channel(data), ChannelEvent(kind, data))
            case "INTERACTION_CREATE" if data.get("type") in INTERACTION_TYPES:
                channel = _read_channel(data)
                acknowledgement = self._interactions.acknowledge(data)
                self._queues.put(channel, ChannelEvent(kind, data, acknowledgement))
            case _:
                pass

    def _on_ready(self, data: Payload) -> None:
        """Start a new session; Discord replays nothing, so backfill all channels in use."""
        user = data["user"]
        name = str(user.get("global_name") or user.get("username") or "")
        application = str((data.get("application") or {}).get("id") or user["id"])
        self._bot_account = BotAccount(str(user["id"]), name, application)
        for channel, mark in self._marks.channels().items():
            if mark.guild and self._channels.find(channel, mark.guild) is None:
                self._channels.put(channel, mark.channel)
            self._queues.put(channel, ChannelEvent(_READ_AGAIN, {}))
        if not data.get("guilds"):
            log.info(
                "discord: the bot is in no server yet; add it with %s",
                payloads.invite_link(application),
            )
        start_task(self._tasks, self._publish_commands(self._bot_account), name="discord menu")
        self._ready()

    async def _handle(self, channel: str, queue: ChannelQueue, event: ChannelEvent) -> None:
        try:
            with _malformed_errors():
                await self._handle_event(channel, queue, event)
        except MalformedEvent:
            log.exception("discord: skipped a malformed event in channel %s", channel)

    async def _handle_event(self, channel: str, queue: ChannelQueue, event: ChannelEvent) -> None:
        data = event.data
        match event.kind:
            case "MESSAGE_CREATE":
                await self._receive(channel, await self._gather_parts(channel, queue, data))
            case "MESSAGE_UPDATE":
                await self._on_edit(channel, data)
            case "MESSAGE_DELETE":
                await self._on_delete(channel, str(data.get("id")), data)
            case "MESSAGE_DELETE_BULK":
                for message in data.get("ids", ()):
                    await self._on_delete(channel, str(message), data)
            case "INTERACTION_CREATE":
                await self._on_interaction(channel, event)
            case _:
                await self._read_again(channel)

    async def _store(self, event: Inbound) -> Accepted:
        """Hand an event to the inbox; errors of the inbox are not faults of the event."""
        try:
            return await self._inbox(event)
        except _UNREADABLE as error:
            raise NotStored from error

    # --- messages ----------------------------------------------------------------------------

    async def _gather_parts(
        self, channel: str, queue: ChannelQueue, data: Payload
    ) -> list[Payload]:
        """Return the pieces of a text that the client split, waiting for the next piece."""
        pieces = [data]
        if _is_long(data) and not data.get("guild_id"):
            with _malformed_errors():
                first = int(data["id"])
            # With a mark, the waiting piece is read again after a crash.
            await self._start_using(channel, DiscordChannel(), first)
        while _is_long(pieces[-1]):
            last = pieces[-1]
            follower = await queue.take_follower(
                lambda event, last=last: (  # type: ignore[misc]
                    event.kind == "MESSAGE_CREATE" and _same_author(last, event.data)
                ),
                self._join_seconds,
            )
            if follower is None:
                break
            pieces.append(follower.data)
        return pieces

    async def _receive(self, channel: str, pieces: Sequence[Payload]) -> None:
        """Submit one message, given as its pieces, and advance the channel's read mark."""
        with _malformed_errors():
            first, last = int(pieces[0]["id"]), int(pieces[-1]["id"])
            guild = str(pieces[0].get("guild_id") or "")
        if self._bot_account is None or self._marks.is_read(channel, last):
            return
        room = await self._lookup.channel(channel, guild)
        if decode.is_own_message(pieces[0], self._bot_account):
            self._receive_own_message(channel, room, pieces[0])
        elif decode.is_user_message(pieces[0]):
            message = await self._read(channel, pieces, self._message_context(channel, room))
            if message.addressed:
                await self._start_using(channel, room, first)
            # The queue of a private chat waits for the lookup. Until the message is stored the read
            # mark stays before it, so that it is read again after a crash.
            while await self._store(message) is Accepted.UNDECIDED:
                await asyncio.sleep(PARTIAL_CACHE_SECONDS)
                message = await self._with_memberships(message)
        self._mark_read(channel, last)

    async def _read(
        self, channel: str, pieces: Sequence[Payload], context: MessageContext
    ) -> InboundMessage:
        with _malformed_errors():
            message = decode.join_messages([decode.read_message(data, context) for data in pieces])
        if message.addressed:
            self._authors.add(message.id, message.sender)
            self._changed.set()
        if context.channel.is_direct:
            return await self._with_memberships(message)
        if message.addressed:
            await self._load_context(channel, message.id, context)
            author, shared = message.sender.id, bool(context.channel.parent)
            quotes = self._recent_messages.context_for(channel, author, shared=shared)
            message = msgspec.structs.replace(message, context=quotes)
        with _malformed_errors():
            recent = [
                decode.read_context_message(data, context, addressed=message.addressed)
                for data in pieces
            ]
        self._recent_messages.add(channel, recent)
        return message

    def _receive_own_message(self, channel: str, room: DiscordChannel, data: Payload) -> None:
        """Put the channel in use and report the message to the sender by its nonce."""
        with _malformed_errors():
            if data.get("nonce"):
                self._sender.on_own_message(str(data["nonce"]), str(data["id"]))
            if self._marks.start(channel, room, int(data["id"])):
                self._changed.set()
            if not room.is_direct:
                recent = decode.read_context_message(
                    data, self._message_context(channel, room), addressed=False
                )
                self._recent_messages.add(channel, [recent])

    async def _on_edit(self, channel: str, data: Payload) -> None:
        if (
            self._bot_account is None
            or not decode.is_user_message(data)
            or decode.is_own_message(data, self._bot_account)
        ):
            return
        room = await self._lookup.channel(channel, str(data.get("guild_id") or ""))
        with _malformed_errors():
            edit = decode.read_edit(data, self._message_context(channel, room))
        if edit is None:
            return
        text = "\n".join(getattr(part, "text", "") for part in edit.parts)
        self._recent_messages.edit(channel, edit.message, text)
        if known := self._authors.find(edit.message):  # unknown: the message was not addressed
            await self._store(msgspec.structs.replace(edit, sender=known))

    async def _on_delete(self, channel: str, message: str, data: Payload) -> None:
        self._recent_messages.delete(channel, message)
        sender = self._authors.find(message)
        if sender is None:
            return
        room = await self._lookup.channel(channel, str(data.get("guild_id") or ""))
        address = channel_address(self._platform, self._account, channel, room)
        now = self._clock.now()
        await self._store(decode.read_delete(message, sender, address, room, now))

    # --- buttons and commands ----------------------------------------------------------------

    async def _on_interaction(self, channel: str, queued: ChannelEvent) -> None:
        data = queued.data
        guild = str(data.get("guild_id") or "")
        room = await self._lookup.channel(channel, guild, data.get("channel"))
        address = channel_address(self._platform, self._account, channel, room)
        accepted: Accepted | None = None
        try:
            with _malformed_errors():
                number = int(data["id"])
                event: Inbound | None
                if data["type"] == decode.COMMAND:
                    event = await self._with_memberships(decode.read_command(data, address, room))
                elif event := decode.read_press(data, address, room):
                    event = await self._with_memberships(event)
            if event:
                await self._start_using(channel, room, number)
                accepted = await self._store(event)
            else:
                accepted = Accepted.IGNORED
        finally:
            if queued.acknowledgement:
                self._interactions.finish(
                    data,
                    queued.acknowledgement,
                    stored=accepted not in {None, Accepted.UNDECIDED},
                    answered=accepted is Accepted.STORED,
                )

    # --- backfill ----------------------------------------------------------------------------

    async def _read_again(self, channel: str) -> None:
        """Process the messages that came after the channel's read mark."""
        mark = self._marks.get(channel)
        if mark is None:
            return
        after = mark.last
        for _ in range(_MAX_PAGES):
            try:
                page = await self._lookup.history(channel, after=after)
            except Rejected as error:
                log.info("discord: channel %s is no longer readable: %s", channel, error)
                self._marks.forget(channel)
                self._changed.set()
                return
            await self._add_members(page, mark.guild)
            for pieces in group_parts(page, self._join_seconds):
                try:
                    with _malformed_errors():
                        await self._receive(channel, pieces)
                except MalformedEvent:
                    log.exception("discord: skipped a malformed message in channel %s", channel)
            if len(page) < PAGE_SIZE:
                return
            after = int(page[-1]["id"])
        log.warning(
            "discord: skipped messages in channel %s: more than %d arrived while disconnected",
            channel,
            _MAX_PAGES * PAGE_SIZE,
        )

    async def _add_members(self, page: Sequence[Payload], guild: str) -> None:
        """Add the server and the author's membership, which history payloads do not contain."""
        if not guild:
            return
        members: dict[str, Payload | None] = {}
        for data in page:
            data["guild_id"] = guild
            author = data.get("author") or {}
            person = str(author.get("id", ""))
            if author.get("bot") or not person.isdigit() or data.get("webhook_id"):
                continue
            if person not in members and self._needs_memberships:
                members[person] = await self._lookup.member(guild, person)
            data["member"] = members.get(person)

    async def _load_context(self, channel: str, message: str, context: MessageContext) -> None:
        """Load the messages before an addressed one, once per room and as far as possible."""
        if self._recent_messages.has_history(channel):
            return
        self._recent_messages.add_history(channel, ())  # do not retry if loading fails
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                page = await self._lookup.history(
                    channel, before=int(message), limit=_CONTEXT_MESSAGES
                )
        except Unauthorized:
            raise
        except (PlatformError, TimeoutError) as error:
            log.info("discord: no earlier messages loaded for channel %s: %s", channel, error)
            return
        with _malformed_errors():
            history = [
                decode.read_context_message(data, context, addressed=False)
                for data in page
                if decode.is_user_message(data)
            ]
        self._recent_messages.add_history(channel, history)

    # --- helpers -----------------------------------------------------------------------------

    def _message_context(self, channel: str, room: DiscordChannel) -> MessageContext:
        assert self._bot_account is not None  # noqa: S101 - READY precedes every message
        return MessageContext(
            account=self._bot_account,
            address=channel_address(self._platform, self._account, channel, room),
            channel=room,
            own_roles=self._own_roles.get(room.guild, frozenset()),
            channel_name=self._channels.name_of,
            is_in_use=channel in self._marks,
            require_mention=self._require_mention,
            command_words=self._surroundings.words,
        )

    async def _with_memberships(self, event: _Asked) -> _Asked:
        """Add the sender's server memberships to an event from a private chat."""
        sender = event.sender
        if not self._needs_memberships or not event.direct or sender.is_bot or not self._own_roles:
            return event
        memberships = await self._lookup.memberships(sender.id, list(self._own_roles))
        return msgspec.structs.replace(
            event,
            sender=msgspec.structs.replace(
                sender, memberships=memberships or (), memberships_unknown=memberships is None
            ),
        )

    # --- persistence -------------------------------------------------------------------------

    async def _start_using(self, channel: str, room: DiscordChannel, number: int) -> None:
        """Put a channel in use, and save its mark before any of its messages is submitted."""
        if self._marks.start(channel, room, number):
            await self.save()

    def _mark_read(self, channel: str, message: int) -> None:
        self._marks.mark_read(channel, message)
        if self._marks.dirty:
            self._changed.set()

    async def save_periodically(self) -> None:
        """Save changed marks and authors once a second; runs until cancelled.

        Marks that lag behind are harmless, because the inbox recognizes messages read twice.
        """
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SAVE_SECONDS)
            self._changed.clear()
            await self.save()

    async def save(self) -> None:
        """Write changed read marks and authors to the shelf."""
        await self._state.save(self._shelf)

    def refresh_menu(self) -> None:
        """Register changed slash commands in the background, once the bot's account is known."""
        if self._bot_account:
            start_task(self._tasks, self._publish_commands(self._bot_account), name="discord menu")

    async def _publish_commands(self, me: BotAccount) -> None:
        """Register the slash commands if they changed since the last registration."""
        menu = payloads.command_payloads(self._surroundings.menu)
        content = me.application.encode() + msgspec.json.encode(menu)
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        if not menu or await self._shelf.get(_MENU_KEY) == digest:
            return

        async def register() -> None:
            with translate_errors():
                await self._client.http.bulk_upsert_global_commands(int(me.application), menu)

        try:
            await retry_call(register, _MENU_PAUSES)
        except Unauthorized:
            raise  # ends the adapter, which reports the refused token once
        except PlatformError as error:
            log.warning("discord: the slash commands could not be registered: %s", error)
        else:
            await self._shelf.put(_MENU_KEY, digest)


def _read_channel(data: Payload) -> str:
    return str(int(data["channel_id"]))


def _is_long(data: Payload) -> bool:
    author = data.get("author") or {}
    return len(data.get("content") or "") >= _LONG_TEXT_CHARS and not author.get("bot")


def _same_author(first: Payload, second: Payload) -> bool:
    one, other = first.get("author") or {}, second.get("author") or {}
    return bool(one.get("id")) and one.get("id") == other.get("id")


def group_parts(page: Sequence[Payload], seconds: float) -> Iterator[list[Payload]]:
    """Yield the messages of a history page, with pieces of a split text grouped together."""
    pieces: list[Payload] = []
    for data in page:
        if pieces and not _continues(pieces[-1], data, seconds):
            yield pieces
            pieces = []
        pieces.append(data)
    if pieces:
        yield pieces


def _continues(first: Payload, second: Payload, seconds: float) -> bool:
    pause_ms = sent_at(int(second["id"])) - sent_at(int(first["id"]))
    return _is_long(first) and _same_author(first, second) and pause_ms <= seconds * 1000
