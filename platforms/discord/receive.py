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
from platforms.discord.authors import Authors
from platforms.discord.connection import Client
from platforms.discord.decode import Me, Reading
from platforms.discord.errors import mapped
from platforms.discord.interactions import KINDS, Interactions
from platforms.discord.lookup import LOOK_SECONDS, PAGE, Lookup
from platforms.discord.persistence import persist
from platforms.discord.queues import Heard, Line, Lines
from platforms.discord.read_marks import Marks, sent_at
from platforms.discord.rooms import Listening, Payload, Room, Rooms, address_of

log = logging.getLogger(__name__)

JOIN_SECONDS = 1.0
"""A text this soon after one that was cut by the client is its other half."""

LONG_TEXT = 1_900
MOST_PAGES = 10

SEEN, AUTHORS, MENU = "seen", "authors", "menu"
"""Names on the shelf."""

_MENU_PAUSES = (1.0, 10.0, 60.0)

_SAVE_SECONDS = 1.0
_LOOK_BACK = 20
_READ_AGAIN = "READ_AGAIN"

_Asked = TypeVar("_Asked", InboundMessage, InboundAction)


class Odd(Exception):
    """An event that is not made as it should be."""


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise Odd from error


class Hearing:
    """One connection's worth of listening; what must outlast it is in marks and authors."""

    def __init__(
        self,
        *,
        platform: str,
        surroundings: Surroundings,
        marks: Marks,
        authors: Authors,
        inbox: Inbox,
        ready: Callable[[], None],
        saw: Callable[[str, str], None],
        require_mention: bool,
        join_seconds: float,
    ) -> None:
        self._platform = platform
        self._account = surroundings.account
        self._clock = surroundings.clock
        self._shelf = surroundings.shelf
        self._menu = surroundings.commands
        self._asks_memberships = surroundings.memberships
        self._marks = marks
        self._authors = authors
        self._inbox = inbox
        self._ready = ready
        self._saw = saw
        self._require_mention = require_mention
        self._join_seconds = join_seconds
        self._me: Me | None = None
        self._rooms = Rooms()
        self._listening = Listening()
        self._own_roles: dict[str, frozenset[str]] = {}  # by server
        self._changed = asyncio.Event()

    def open(self, tasks: asyncio.TaskGroup, client: Client) -> None:
        """Begin: from here on `hear` may be called."""
        self._tasks = tasks
        self._client = client
        self._lines = Lines(tasks, self._work)
        self._lookup = Lookup(client, self._clock, self._rooms)
        self._interactions = Interactions(client, tasks)

    # --- what the gateway sends --------------------------------------------------------------

    def hear(self, raw: str) -> None:
        """Take one frame; what cannot be read is named and left out."""
        try:
            with _reading():
                frame = msgspec.json.decode(raw)
                if frame.get("op") == 0:
                    self._sort(frame["t"], frame.get("d") or {})
        except Odd:
            log.exception("Discord sent something that cannot be read")

    def _sort(self, kind: str, data: Payload) -> None:
        self._rooms.hear(kind, data)
        match kind:
            case "READY":
                self._identified(data)
            case "RESUMED":
                self._ready()
            case "GUILD_CREATE" if self._me:
                self._own_roles[str(data["id"])] = decode.own_roles(data, self._me.id)
            case "GUILD_DELETE" if not data.get("unavailable"):
                self._own_roles.pop(str(data["id"]), None)
            case "MESSAGE_CREATE" | "MESSAGE_UPDATE" | "MESSAGE_DELETE" | "MESSAGE_DELETE_BULK":
                self._lines.put(str(data["channel_id"]), Heard(kind, data))
            case "INTERACTION_CREATE" if data.get("type") in KINDS:
                signed = self._interactions.sign(data)
                self._lines.put(str(data["channel_id"]), Heard(kind, data, signed))
            case _:
                pass

    def _identified(self, data: Payload) -> None:
        """A new session: nothing is replayed, so the channels in use are read again."""
        user = data["user"]
        name = str(user.get("global_name") or user.get("username") or "")
        application = str((data.get("application") or {}).get("id") or user["id"])
        self._me = Me(str(user["id"]), name, application)
        for channel, mark in self._marks.channels().items():
            if mark.guild and self._rooms.find(channel, mark.guild) is None:
                self._rooms.put(channel, mark.room)
            self._lines.put(channel, Heard(_READ_AGAIN, {}))
        if not data.get("guilds"):
            log.info("in no server yet; to be let in: %s", payloads.invite_link(application))
        self._tasks.create_task(self._show_menu(self._me), name="discord menu")
        self._ready()

    async def _work(self, channel: str, line: Line, heard: Heard) -> None:
        data = heard.data
        try:
            match heard.kind:
                case "MESSAGE_CREATE":
                    await self._take(channel, await self._gather(channel, line, data))
                case "MESSAGE_UPDATE":
                    await self._edited(channel, data)
                case "MESSAGE_DELETE":
                    await self._deleted(channel, str(data.get("id")), data)
                case "MESSAGE_DELETE_BULK":
                    for message in data.get("ids", ()):
                        await self._deleted(channel, str(message), data)
                case "INTERACTION_CREATE":
                    await self._interacted(channel, heard)
                case _:
                    await self._read_again(channel)
        except Odd:
            log.exception("Discord sent something that cannot be read")

    # --- messages ----------------------------------------------------------------------------

    async def _gather(self, channel: str, line: Line, data: Payload) -> list[Payload]:
        """Wait for the rest of a text that was too long for one message."""
        gathered = [data]
        if _is_long(data) and not data.get("guild_id"):
            with _reading():
                first = int(data["id"])
            await self._use(channel, Room(), first)  # it must outlast us while it waits
        while _is_long(gathered[-1]):
            last = gathered[-1]
            found = await line.follower(
                lambda heard, last=last: (  # type: ignore[misc]
                    heard.kind == "MESSAGE_CREATE" and _same_author(last, heard.data)
                ),
                self._join_seconds,
            )
            if found is None:
                break
            gathered.append(found.data)
        return gathered

    async def _take(self, channel: str, gathered: Sequence[Payload]) -> None:
        """Hand in one message, or the parts of one; afterwards they count as seen."""
        with _reading():
            first, last = int(gathered[0]["id"]), int(gathered[-1]["id"])
            guild = str(gathered[0].get("guild_id") or "")
        if self._me is None or self._marks.has_seen(channel, last):
            return
        room = await self._lookup.room(channel, guild)
        if decode.is_ours(gathered[0], self._me):
            self._heard_ourselves(channel, room, gathered[0])
        elif decode.is_written(gathered[0]):
            message = await self._read(channel, gathered, self._reads(channel, room))
            if message.addressed:
                await self._use(channel, room, first)
            await self._inbox(message)
        self._see(channel, last)

    async def _read(
        self, channel: str, gathered: Sequence[Payload], reading: Reading
    ) -> InboundMessage:
        with _reading():
            message = decode.join([decode.read_message(data, reading) for data in gathered])
        if message.addressed:
            self._authors.wrote(message.id, message.sender)
            self._changed.set()
        if reading.room.direct:
            return await self._vouched(message)
        if message.addressed:
            await self._look_back(channel, message.id, reading)
            author, shared = message.sender.id, bool(reading.room.parent)
            context = self._listening.before(channel, author, shared=shared)
            message = msgspec.structs.replace(message, context=context)
        with _reading():
            said = [
                decode.read_said(data, reading, addressed=message.addressed) for data in gathered
            ]
        self._listening.hear(channel, said)
        return message

    def _heard_ourselves(self, channel: str, room: Room, data: Payload) -> None:
        """What we said makes a channel one in use, and tells a post whether it arrived."""
        with _reading():
            if data.get("nonce"):
                self._saw(str(data["nonce"]), str(data["id"]))
            if self._marks.begin(channel, room, int(data["id"])):
                self._changed.set()
            if not room.direct:
                said = decode.read_said(data, self._reads(channel, room), addressed=False)
                self._listening.hear(channel, [said])

    async def _edited(self, channel: str, data: Payload) -> None:
        if self._me is None or not decode.is_written(data) or decode.is_ours(data, self._me):
            return
        room = await self._lookup.room(channel, str(data.get("guild_id") or ""))
        with _reading():
            edit = decode.read_edit(data, self._reads(channel, room))
        if edit is None:
            return
        text = "\n".join(getattr(part, "text", "") for part in edit.parts)
        self._listening.rewrite(channel, edit.message, text)
        if known := self._authors.of(edit.message):  # else it was not meant for us
            await self._inbox(msgspec.structs.replace(edit, sender=known))

    async def _deleted(self, channel: str, message: str, data: Payload) -> None:
        self._listening.forget(channel, message)
        sender = self._authors.of(message)
        if sender is None:
            return
        room = await self._lookup.room(channel, str(data.get("guild_id") or ""))
        address = address_of(self._platform, self._account, channel, room)
        now = self._clock.now()
        await self._inbox(decode.read_delete(message, sender, address, room, now))

    # --- buttons and commands ----------------------------------------------------------------

    async def _interacted(self, channel: str, heard: Heard) -> None:
        data = heard.data
        guild = str(data.get("guild_id") or "")
        room = await self._lookup.room(channel, guild, data.get("channel"))
        address = address_of(self._platform, self._account, channel, room)
        stored = False
        try:
            with _reading():
                number = int(data["id"])
                event: Inbound | None
                if data["type"] == decode.COMMAND:
                    event = await self._vouched(decode.read_command(data, address, room))
                elif event := decode.read_press(data, address, room):
                    event = await self._vouched(event)
            if event:
                await self._use(channel, room, number)
                await self._inbox(event)
            stored = True
        finally:
            if heard.signed:
                self._interactions.settle(data, heard.signed, stored=stored)

    # --- reading again -----------------------------------------------------------------------

    async def _read_again(self, channel: str) -> None:
        """Read what was said since the last message that was seen."""
        mark = self._marks.get(channel)
        if mark is None:
            return
        after = mark.last
        for _ in range(MOST_PAGES):
            try:
                page = await self._lookup.history(channel, after=after)
            except Rejected as error:
                log.info("the channel %s cannot be read any more: %s", channel, error)
                self._marks.forget(channel)
                self._changed.set()
                return
            await self._complete(page, mark.guild)
            for gathered in joined(page, self._join_seconds):
                await self._take(channel, gathered)
            if len(page) < PAGE:
                return
            after = int(page[-1]["id"])
        log.warning("more was said in the channel %s than is read again", channel)

    async def _complete(self, page: Sequence[Payload], guild: str) -> None:
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
            if person not in members and self._asks_memberships:
                members[person] = await self._lookup.member(guild, person)
            data["member"] = members.get(person)

    async def _look_back(self, channel: str, message: str, reading: Reading) -> None:
        """Read what stood in a room before we listened there."""
        if self._listening.is_complete(channel):
            return
        self._listening.complete(channel, ())  # asked once, whatever comes of it
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                page = await self._lookup.history(channel, before=int(message), limit=_LOOK_BACK)
        except (PlatformError, TimeoutError) as error:
            log.info("what stood in the channel %s before is not known: %s", channel, error)
            return
        with _reading():
            said = [
                decode.read_said(data, reading, addressed=False)
                for data in page
                if decode.is_written(data)
            ]
        self._listening.complete(channel, said)

    # --- helpers -----------------------------------------------------------------------------

    def _reads(self, channel: str, room: Room) -> Reading:
        assert self._me is not None  # noqa: S101 - nothing is read before we know who we are
        return Reading(
            self._me,
            address_of(self._platform, self._account, channel, room),
            room,
            self._own_roles.get(room.guild, frozenset()),
            self._rooms.name,
            channel in self._marks,
            self._require_mention,
        )

    async def _vouched(self, event: _Asked) -> _Asked:
        """Add what somebody who writes in private is in our servers."""
        sender = event.sender
        if not self._asks_memberships or not event.direct or sender.is_bot or not self._own_roles:
            return event
        found = await self._lookup.memberships(sender.id, list(self._own_roles))
        return msgspec.structs.replace(
            event, sender=msgspec.structs.replace(sender, memberships=found)
        )

    # --- what is kept ------------------------------------------------------------------------

    async def _use(self, channel: str, room: Room, number: int) -> None:
        """From here on a channel is in use; that is kept before anything of it is handed in."""
        if self._marks.begin(channel, room, number):
            await self.save()

    def _see(self, channel: str, message: int) -> None:
        self._marks.see(channel, message)
        if self._marks.dirty:
            self._changed.set()

    async def keep_marks(self) -> None:
        """Write the marks down now and then: what is read twice is known to be."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SAVE_SECONDS)
            self._changed.clear()
            await self.save()

    async def save(self) -> None:
        """Write down what was seen last, and whose it was."""
        if self._marks.dirty:
            await self._shelf.put(SEEN, self._marks.write())
        if self._authors.dirty:
            await self._shelf.put(AUTHORS, self._authors.write())

    async def _show_menu(self, me: Me) -> None:
        """Register the slash commands, if they are not those that Discord has already."""
        menu = payloads.commands(self._menu)
        written = me.application.encode() + msgspec.json.encode(menu)
        digest = hashlib.blake2b(written, digest_size=16).hexdigest()
        if not menu or await self._shelf.get(MENU) == digest:
            return

        async def show() -> None:
            with mapped():
                await self._client.http.bulk_upsert_global_commands(int(me.application), menu)

        try:
            await persist(show, _MENU_PAUSES)
        except PlatformError as error:
            log.warning("Discord does not take the menu of commands: %s", error)
        else:
            await self._shelf.put(MENU, digest)


def _is_long(data: Payload) -> bool:
    author = data.get("author") or {}
    return len(data.get("content") or "") >= LONG_TEXT and not author.get("bot")


def _same_author(first: Payload, second: Payload) -> bool:
    one, other = first.get("author") or {}, second.get("author") or {}
    return bool(one.get("id")) and one.get("id") == other.get("id")


def joined(page: Sequence[Payload], seconds: float) -> Iterator[list[Payload]]:
    """Put together what `_gather` would have waited for."""
    gathered: list[Payload] = []
    for data in page:
        if gathered and not _goes_on(gathered[-1], data, seconds):
            yield gathered
            gathered = []
        gathered.append(data)
    if gathered:
        yield gathered


def _goes_on(first: Payload, second: Payload, seconds: float) -> bool:
    passed = sent_at(int(second["id"])) - sent_at(int(first["id"]))
    return _is_long(first) and _same_author(first, second) and passed <= seconds * 1000
