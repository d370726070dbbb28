"""Sans-IO: where a channel belongs, and what was said there lately."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from platforms.core.contract import Address, Quote

THREADS = frozenset({10, 11, 12})  # kinds of channel: of news, public, private
_DIRECT = frozenset({1, 3})
_MOST_ROOMS = 20_000
_MOST_LISTENED = 500
_MOST_QUOTES = 20

Payload = dict[str, Any]


class Room(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel: of a server (`guild`), a thread of another channel (`parent`), or neither."""

    guild: str = ""
    parent: str = ""
    name: str = ""

    @property
    def direct(self) -> bool:
        """Whether it is a chat with one person."""
        return not self.guild


class Rooms:
    """All channels that Discord told us of."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[str, Room] = OrderedDict()

    def hear(self, kind: str, data: Payload) -> None:
        """Take note of what the gateway tells about channels."""
        match kind:
            case "GUILD_CREATE":
                for each in (*data.get("channels", ()), *data.get("threads", ())):
                    self._note(each, str(data["id"]))
            case "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE":
                self._note(data, str(data.get("guild_id") or ""))
            case "THREAD_LIST_SYNC":
                for each in data.get("threads", ()):
                    self._note(each, str(data["guild_id"]))
            case _:
                pass

    def find(self, channel: str, guild: str) -> Room | None:
        """Find a channel; what stands in no server is a chat with one person."""
        if not guild:
            return Room()
        return self._rooms.get(channel)

    def put(self, channel: str, room: Room) -> None:
        """Remember a channel."""
        self._rooms[channel] = room
        self._rooms.move_to_end(channel)
        if len(self._rooms) > _MOST_ROOMS:
            self._rooms.popitem(last=False)

    def name(self, channel: str) -> str:
        """What a channel is called; its id when that is not known."""
        room = self._rooms.get(channel)
        return (room and room.name) or channel

    def _note(self, channel: Payload, guild: str) -> None:
        if guild:
            self.put(str(channel["id"]), room_of(channel, guild))


def room_of(channel: Payload, guild: str = "") -> Room:
    """Read a channel object."""
    if channel.get("type") in _DIRECT:
        return Room()
    parent = str(channel.get("parent_id") or "") if channel.get("type") in THREADS else ""
    return Room(str(channel.get("guild_id") or guild), parent, channel.get("name") or "")


def address_of(platform: str, account: str, channel: str, room: Room) -> Address:
    """Name a channel as the gateway does: a thread stands in its channel."""
    if room.parent:
        return Address(platform, room.parent, account, channel)
    return Address(platform, channel, account)


def channel_of(address: Address) -> str:
    """The channel that an address means."""
    return address.thread or address.chat


# --- what was said -------------------------------------------------------------------------------


class Said(msgspec.Struct, frozen=True):
    """A message in a room."""

    id: str
    author: str
    name: str
    text: str
    addressed: bool = False
    to: str = ""  # of our own messages: the author of the one it answers


class Listening:
    """The last messages of every room."""

    def __init__(self) -> None:
        self._said: OrderedDict[str, deque[Said]] = OrderedDict()
        self._complete: set[str] = set()  # what stood there before we listened is known, too

    def is_complete(self, channel: str) -> bool:
        """Tell whether we know what stood there last, even before we listened."""
        return channel in self._complete or len(self._said.get(channel, ())) >= _MOST_QUOTES

    def complete(self, channel: str, before: Iterable[Said]) -> None:
        """Put what stood there before in front of what we heard."""
        heard = list(self._said.get(channel, ()))
        known = {said.id for said in heard}
        self._said.pop(channel, None)
        self.hear(channel, (*(said for said in before if said.id not in known), *heard))
        self._complete.add(channel)

    def hear(self, channel: str, said: Iterable[Said]) -> None:
        """Add messages, the oldest first."""
        heard = self._said.setdefault(channel, deque(maxlen=_MOST_QUOTES * 2))
        heard.extend(said)
        self._said.move_to_end(channel)
        if len(self._said) > _MOST_LISTENED:
            self._complete.discard(self._said.popitem(last=False)[0])

    def forget(self, channel: str, message: str) -> None:
        """Drop what somebody deleted."""
        if heard := self._said.get(channel):
            kept = [said for said in heard if said.id != message]
            heard.clear()
            heard.extend(kept)

    def rewrite(self, channel: str, message: str, text: str) -> None:
        """Take over what somebody made of a message."""
        if heard := self._said.get(channel):
            kept = [
                msgspec.structs.replace(said, text=text) if said.id == message else said
                for said in heard
            ]
            heard.clear()
            heard.extend(kept)

    def before(self, channel: str, author: str, *, shared: bool) -> tuple[Quote, ...]:
        """What stood in a room that this person's conversation with us does not hold yet.

        In a thread everybody shares one conversation.
        """
        found = [said for said in self._unheard(channel, author, shared=shared) if said.text]
        return tuple(Quote(said.name, said.text, said.id) for said in found[-_MOST_QUOTES:])

    def _unheard(self, channel: str, author: str, *, shared: bool) -> Iterator[Said]:
        heard = list(self._said.get(channel, ()))
        start = 0
        for place, said in enumerate(heard):
            if said.addressed and (shared or said.author == author):
                start = place + 1
        for said in heard[start:]:
            if not (said.to and (shared or said.to == author)):
                yield said
