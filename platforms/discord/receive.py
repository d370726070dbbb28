"""Takes in what the gateway sends, and reads again what it missed."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from platforms.core.contract import (
    Inbound,
    InboundAction,
    InboundMessage,
    Inbox,
    Surroundings,
)
from platforms.core.errors import PlatformError, Rejected
from platforms.discord import decode, payloads
from platforms.discord.authors import MessageAuthors
from platforms.discord.connection import DiscordClient
from platforms.discord.decode import BotAccount, MessageContext
from platforms.discord.errors import translate_errors
from platforms.discord.interactions import INTERACTION_TYPES, Interactions
from platforms.discord.lookup import LOOKUP_TIMEOUT_SECONDS, PAGE_SIZE, DiscordLookup
from platforms.discord.persistence import retry_call
from platforms.discord.queues import ChannelEvent, ChannelQueue, ChannelQueues
from platforms.discord.read_marks import ReadMarks, sent_at
from platforms.discord.rooms import (
    ChannelDirectory,
    DiscordChannel,
    Payload,
    RecentMessages,
    channel_address,
)

log = logging.getLogger(__name__)

JOIN_SECONDS = 1.0
"""A text this soon after one that was cut by the client is its other half."""

LONG_TEXT_CHARS = 1_900
MAX_PAGES = 10

READ_MARKS_KEY, AUTHORS_KEY, MENU_KEY = "seen", "authors", "menu"
"""Names on the shelf."""

_MENU_PAUSES = (1.0, 10.0, 60.0)

_SAVE_SECONDS = 1.0
_CONTEXT_MESSAGES = 20
_READ_AGAIN = "READ_AGAIN"

_Asked = TypeVar("_Asked", InboundMessage, InboundAction)


class MalformedEvent(Exception):
    """An event that is not made as it should be."""


@contextmanager
def _malformed_errors() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise MalformedEvent from error


class DiscordReceiver:
    """One connection's worth of listening; what must outlast it is in marks and authors."""

    def __init__(
        self,
        *,
        platform: str,
        surroundings: Surroundings,
        marks: ReadMarks,
        authors: MessageAuthors,
        inbox: Inbox,
        ready: Callable[[], None],
        on_own_message: Callable[[str, str], None],
        require_mention: bool,
        join_seconds: float,
    ) -> None:
        self._platform = platform
        self._account = surroundings.account
        self._clock = surroundings.clock
        self._shelf = surroundings.shelf
        self._commands = surroundings.commands
        self._needs_memberships = surroundings.memberships
        self._marks = marks
        self._authors = authors
        self._inbox = inbox
        self._ready = ready
        self._on_own_message = on_own_message
        self._require_mention = require_mention
        self._join_seconds = join_seconds
        self._bot_account: BotAccount | None = None
        self._channels = ChannelDirectory()
        self._recent_messages = RecentMessages()
        self._own_roles: dict[str, frozenset[str]] = {}  # by server
        self._changed = asyncio.Event()

    def start(self, tasks: asyncio.TaskGroup, client: DiscordClient) -> None:
        """Begin: from here on `hear` may be called."""
        self._tasks = tasks
        self._client = client
        self._queues = ChannelQueues(tasks, self._handle)
        self._lookup = DiscordLookup(client, self._clock, self._channels)
        self._interactions = Interactions(client, tasks)

    # --- what the gateway sends --------------------------------------------------------------

    def on_frame(self, raw: str) -> None:
        """Take one frame; what cannot be read is named and left out."""
        try:
            with _malformed_errors():
                frame = msgspec.json.decode(raw)
                if frame.get("op") == 0:
                    self._dispatch(frame["t"], frame.get("d") or {})
        except MalformedEvent:
            log.exception("Discord sent something that cannot be read")

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
                self._queues.put(str(data["channel_id"]), ChannelEvent(kind, data))
            case "INTERACTION_CREATE" if data.get("type") in INTERACTION_TYPES:
                signed = self._interactions.acknowledge(data)
                self._queues.put(str(data["channel_id"]), ChannelEvent(kind, data, signed))
            case _:
                pass

    def _on_ready(self, data: Payload) -> None:
        """A new session: nothing is replayed, so the channels in use are read again."""
        user = data["user"]
        name = str(user.get("global_name") or user.get("username") or "")
        application = str((data.get("application") or {}).get("id") or user["id"])
        self._bot_account = BotAccount(str(user["id"]), name, application)
        for channel, mark in self._marks.channels().items():
            if mark.guild and self._channels.find(channel, mark.guild) is None:
                self._channels.put(channel, mark.channel)
            self._queues.put(channel, ChannelEvent(_READ_AGAIN, {}))
        if not data.get("guilds"):
            log.info("in no server yet; to be let in: %s", payloads.invite_link(application))
        self._tasks.create_task(self._publish_commands(self._bot_account), name="discord menu")
        self._ready()

    async def _handle(self, channel: str, line: ChannelQueue, heard: ChannelEvent) -> None:
        data = heard.data
        try:
            match heard.kind:
                case "MESSAGE_CREATE":
                    await self._receive(channel, await self._gather_parts(channel, line, data))
                case "MESSAGE_UPDATE":
                    await self._on_edit(channel, data)
                case "MESSAGE_DELETE":
                    await self._on_delete(channel, str(data.get("id")), data)
                case "MESSAGE_DELETE_BULK":
                    for message in data.get("ids", ()):
                        await self._on_delete(channel, str(message), data)
                case "INTERACTION_CREATE":
                    await self._on_interaction(channel, heard)
                case _:
                    await self._read_again(channel)
        except MalformedEvent:
            log.exception("Discord sent something that cannot be read")

    # --- messages ----------------------------------------------------------------------------

    async def _gather_parts(self, channel: str, line: ChannelQueue, data: Payload) -> list[Payload]:
        """Wait for the rest of a text that was too long for one message."""
        gathered = [data]
        if _is_long(data) and not data.get("guild_id"):
            with _malformed_errors():
                first = int(data["id"])
            await self._start_using(
                channel, DiscordChannel(), first
            )  # it must outlast us while it waits
        while _is_long(gathered[-1]):
            last = gathered[-1]
            found = await line.take_follower(
                lambda heard, last=last: (  # type: ignore[misc]
                    heard.kind == "MESSAGE_CREATE" and _same_author(last, heard.data)
                ),
                self._join_seconds,
            )
            if found is None:
                break
            gathered.append(found.data)
        return gathered

    async def _receive(self, channel: str, gathered: Sequence[Payload]) -> None:
        """Hand in one message, or the parts of one; afterwards they count as seen."""
        with _malformed_errors():
            first, last = int(gathered[0]["id"]), int(gathered[-1]["id"])
            guild = str(gathered[0].get("guild_id") or "")
        if self._bot_account is None or self._marks.is_read(channel, last):
            return
        room = await self._lookup.channel(channel, guild)
        if decode.is_own_message(gathered[0], self._bot_account):
            self._receive_own_message(channel, room, gathered[0])
        elif decode.is_user_message(gathered[0]):
            message = await self._read(channel, gathered, self._message_context(channel, room))
            if message.addressed:
                await self._start_using(channel, room, first)
            await self._inbox(message)
        self._mark_read(channel, last)

    async def _read(
        self, channel: str, gathered: Sequence[Payload], reading: MessageContext
    ) -> InboundMessage:
        with _malformed_errors():
            message = decode.join_messages(
                [decode.read_message(data, reading) for data in gathered]
            )
        if message.addressed:
            self._authors.add(message.id, message.sender)
            self._changed.set()
        if reading.channel.is_direct:
            return await self._with_memberships(message)
        if message.addressed:
            await self._load_context(channel, message.id, reading)
            author, shared = message.sender.id, bool(reading.channel.parent)
            context = self._recent_messages.context_for(channel, author, shared=shared)
            message = msgspec.structs.replace(message, context=context)
        with _malformed_errors():
            said = [
                decode.read_context_message(data, reading, addressed=message.addressed)
                for data in gathered
            ]
        self._recent_messages.add(channel, said)
        return message

    def _receive_own_message(self, channel: str, room: DiscordChannel, data: Payload) -> None:
        """What we said makes a channel one in use, and tells a post whether it arrived."""
        with _malformed_errors():
            if data.get("nonce"):
                self._on_own_message(str(data["nonce"]), str(data["id"]))
            if self._marks.start(channel, room, int(data["id"])):
                self._changed.set()
            if not room.is_direct:
                said = decode.read_context_message(
                    data, self._message_context(channel, room), addressed=False
                )
                self._recent_messages.add(channel, [said])

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
        if known := self._authors.find(edit.message):  # else it was not meant for us
            await self._inbox(msgspec.structs.replace(edit, sender=known))

    async def _on_delete(self, channel: str, message: str, data: Payload) -> None:
        self._recent_messages.delete(channel, message)
        sender = self._authors.find(message)
        if sender is None:
            return
        room = await self._lookup.channel(channel, str(data.get("guild_id") or ""))
        address = channel_address(self._platform, self._account, channel, room)
        now = self._clock.now()
        await self._inbox(decode.read_delete(message, sender, address, room, now))

    # --- buttons and commands ----------------------------------------------------------------

    async def _on_interaction(self, channel: str, heard: ChannelEvent) -> None:
        data = heard.data
        guild = str(data.get("guild_id") or "")
        room = await self._lookup.channel(channel, guild, data.get("channel"))
        address = channel_address(self._platform, self._account, channel, room)
        stored = False
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
                await self._inbox(event)
            stored = True
        finally:
            if heard.acknowledgement:
                self._interactions.finish(data, heard.acknowledgement, stored=stored)

    # --- reading again -----------------------------------------------------------------------

    async def _read_again(self, channel: str) -> None:
        """Read what was said since the last message that was seen."""
        mark = self._marks.get(channel)
        if mark is None:
            return
        after = mark.last
        for _ in range(MAX_PAGES):
            try:
                page = await self._lookup.history(channel, after=after)
            except Rejected as error:
                log.info("the channel %s cannot be read any more: %s", channel, error)
                self._marks.forget(channel)
                self._changed.set()
                return
            await self._add_members(page, mark.guild)
            for gathered in group_parts(page, self._join_seconds):
                await self._receive(channel, gathered)
            if len(page) < PAGE_SIZE:
                return
            after = int(page[-1]["id"])
        log.warning("more was said in the channel %s than is read again", channel)

    async def _add_members(self, page: Sequence[Payload], guild: str) -> None:
        """The history does not say in which server it is, nor who is a member of what."""
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

    async def _load_context(self, channel: str, message: str, reading: MessageContext) -> None:
        """Read what stood in a room before we listened there."""
        if self._recent_messages.has_history(channel):
            return
        self._recent_messages.add_history(channel, ())  # asked once, whatever comes of it
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                page = await self._lookup.history(
                    channel, before=int(message), limit=_CONTEXT_MESSAGES
                )
        except (PlatformError, TimeoutError) as error:
            log.info("what stood in the channel %s before is not known: %s", channel, error)
            return
        with _malformed_errors():
            said = [
                decode.read_context_message(data, reading, addressed=False)
                for data in page
                if decode.is_user_message(data)
            ]
        self._recent_messages.add_history(channel, said)

    # --- helpers -----------------------------------------------------------------------------

    def _message_context(self, channel: str, room: DiscordChannel) -> MessageContext:
        assert self._bot_account is not None  # noqa: S101 - nothing is read before we know who we are
        return MessageContext(
            account=self._bot_account,
            address=channel_address(self._platform, self._account, channel, room),
            channel=room,
            own_roles=self._own_roles.get(room.guild, frozenset()),
            channel_name=self._channels.name_of,
            is_in_use=channel in self._marks,
            require_mention=self._require_mention,
        )

    async def _with_memberships(self, event: _Asked) -> _Asked:
        """Add what somebody who writes in private is in our servers."""
        sender = event.sender
        if not self._needs_memberships or not event.direct or sender.is_bot or not self._own_roles:
            return event
        found = await self._lookup.memberships(sender.id, list(self._own_roles))
        return msgspec.structs.replace(
            event, sender=msgspec.structs.replace(sender, memberships=found)
        )

    # --- what is kept ------------------------------------------------------------------------

    async def _start_using(self, channel: str, room: DiscordChannel, number: int) -> None:
        """From here on a channel is in use; that is kept before anything of it is handed in."""
        if self._marks.start(channel, room, number):
            await self.save()

    def _mark_read(self, channel: str, message: int) -> None:
        self._marks.mark_read(channel, message)
        if self._marks.dirty:
            self._changed.set()

    async def save_periodically(self) -> None:
        """Write the marks down now and then: what is read twice is known to be."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SAVE_SECONDS)
            self._changed.clear()
            await self.save()

    async def save(self) -> None:
        """Write down what was seen last, and whose it was."""
        if self._marks.dirty:
            await self._shelf.put(READ_MARKS_KEY, self._marks.dump())
        if self._authors.dirty:
            await self._shelf.put(AUTHORS_KEY, self._authors.dump())

    async def _publish_commands(self, me: BotAccount) -> None:
        """Register the slash commands, if they are not those that Discord has already."""
        menu = payloads.command_payloads(self._commands)
        written = me.application.encode() + msgspec.json.encode(menu)
        digest = hashlib.blake2b(written, digest_size=16).hexdigest()
        if not menu or await self._shelf.get(MENU_KEY) == digest:
            return

        async def show() -> None:
            with translate_errors():
                await self._client.http.bulk_upsert_global_commands(int(me.application), menu)

        try:
            await retry_call(show, _MENU_PAUSES)
        except PlatformError as error:
            log.warning("Discord does not take the menu of commands: %s", error)
        else:
            await self._shelf.put(MENU_KEY, digest)


def _is_long(data: Payload) -> bool:
    author = data.get("author") or {}
    return len(data.get("content") or "") >= LONG_TEXT_CHARS and not author.get("bot")


def _same_author(first: Payload, second: Payload) -> bool:
    one, other = first.get("author") or {}, second.get("author") or {}
    return bool(one.get("id")) and one.get("id") == other.get("id")


def group_parts(page: Sequence[Payload], seconds: float) -> Iterator[list[Payload]]:
    """Put together what `_gather` would have waited for."""
    gathered: list[Payload] = []
    for data in page:
        if gathered and not _continues(gathered[-1], data, seconds):
            yield gathered
            gathered = []
        gathered.append(data)
    if gathered:
        yield gathered


def _continues(first: Payload, second: Payload, seconds: float) -> bool:
    passed = sent_at(int(second["id"])) - sent_at(int(first["id"]))
    return _is_long(first) and _same_author(first, second) and passed <= seconds * 1000
