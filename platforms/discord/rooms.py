"""Sans-IO: where a channel belongs, and what was said there lately."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from platforms.core.contract import Address, Quote

THREAD_TYPES = frozenset({10, 11, 12})  # kinds of channel: of news, public, private
_DIRECT_TYPES = frozenset({1, 3})
_MAX_CHANNELS = 20_000
_MAX_CHANNELS_WITH_MESSAGES = 500
_MAX_QUOTES = 20

Payload = dict[str, Any]


class DiscordChannel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel: of a server (`guild`), a thread of another channel (`parent`), or neither."""

    guild: str = ""
    parent: str = ""
    name: str = ""

    @property
    def is_direct(self) -> bool:
        """Whether it is a chat with one person."""
        return not self.guild


class ChannelDirectory:
    """All channels that Discord told us of."""

    def __init__(self) -> None:
        self._channels: OrderedDict[str, DiscordChannel] = OrderedDict()

    def on_event(self, kind: str, data: Payload) -> None:
        """Take note of what the gateway tells about channels."""
        match kind:
            case "GUILD_CREATE":
                for each in (*data.get("channels", ()), *data.get("threads", ())):
                    self._add(each, str(data["id"]))
            case "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE":
                self._add(data, str(data.get("guild_id") or ""))
            case "THREAD_LIST_SYNC":
                for each in data.get("threads", ()):
                    self._add(each, str(data["guild_id"]))
            case _:
                pass

    def find(self, channel: str, guild: str) -> DiscordChannel | None:
        """Find a channel; what stands in no server is a chat with one person."""
        if not guild:
            return DiscordChannel()
        return self._channels.get(channel)

    def put(self, channel: str, room: DiscordChannel) -> None:
        """Remember a channel."""
        self._channels[channel] = room
        self._channels.move_to_end(channel)
        if len(self._channels) > _MAX_CHANNELS:
            self._channels.popitem(last=False)

    def name_of(self, channel: str) -> str:
        """What a channel is called; its id when that is not known."""
        room = self._channels.get(channel)
        return (room and room.name) or channel

    def _add(self, channel: Payload, guild: str) -> None:
        if guild:
            self.put(str(channel["id"]), parse_channel(channel, guild))


def parse_channel(channel: Payload, guild: str = "") -> DiscordChannel:
    """Read a channel object."""
    if channel.get("type") in _DIRECT_TYPES:
        return DiscordChannel()
    parent = str(channel.get("parent_id") or "") if channel.get("type") in THREAD_TYPES else ""
    return DiscordChannel(str(channel.get("guild_id") or guild), parent, channel.get("name") or "")


def channel_address(platform: str, account: str, channel: str, room: DiscordChannel) -> Address:
    """Name a channel as the gateway does: a thread stands in its channel."""
    if room.parent:
        return Address(platform, room.parent, account, channel)
    return Address(platform, channel, account)


def channel_id(address: Address) -> str:
    """The channel that an address means."""
    return address.thread or address.chat


# --- what was said -------------------------------------------------------------------------------


class RecentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message in a room."""

    id: str
    author: str
    name: str
    text: str
    addressed: bool = False
    reply_to_author: str = ""  # of our own messages: the author of the one it answers


class RecentMessages:
    """The last messages of every room."""

    def __init__(self) -> None:
        self._messages: OrderedDict[str, deque[RecentMessage]] = OrderedDict()
        self._with_history: set[str] = set()  # what stood there before we listened is known, too

    def has_history(self, channel: str) -> bool:
        """Tell whether we know what stood there last, even before we listened."""
        return channel in self._with_history or len(self._messages.get(channel, ())) >= _MAX_QUOTES

    def add_history(self, channel: str, before: Iterable[RecentMessage]) -> None:
        """Put what stood there before in front of what we heard."""
        heard = list(self._messages.get(channel, ()))
        known = {said.id for said in heard}
        self._messages.pop(channel, None)
        self.add(channel, (*(said for said in before if said.id not in known), *heard))
        self._with_history.add(channel)

    def add(self, channel: str, said: Iterable[RecentMessage]) -> None:
        """Add messages, the oldest first."""
        heard = self._messages.setdefault(channel, deque(maxlen=_MAX_QUOTES * 2))
        heard.extend(said)
        self._messages.move_to_end(channel)
        if len(self._messages) > _MAX_CHANNELS_WITH_MESSAGES:
            self._with_history.discard(self._messages.popitem(last=False)[0])

    def delete(self, channel: str, message: str) -> None:
        """Drop what somebody deleted."""
        if heard := self._messages.get(channel):
            kept = [said for said in heard if said.id != message]
            heard.clear()
            heard.extend(kept)

    def edit(self, channel: str, message: str, text: str) -> None:
        """Take over what somebody made of a message."""
        if heard := self._messages.get(channel):
            kept = [
                msgspec.structs.replace(said, text=text) if said.id == message else said
                for said in heard
            ]
            heard.clear()
            heard.extend(kept)

    def context_for(self, channel: str, author: str, *, shared: bool) -> tuple[Quote, ...]:
        """What stood in a room that this person's conversation with us does not hold yet.

        In a thread everybody shares one conversation.
        """
        found = [
            said for said in self._not_in_conversation(channel, author, shared=shared) if said.text
        ]
        return tuple(Quote(said.name, said.text, said.id) for said in found[-_MAX_QUOTES:])

    def _not_in_conversation(
        self, channel: str, author: str, *, shared: bool
    ) -> Iterator[RecentMessage]:
        heard = list(self._messages.get(channel, ()))
        start = 0
        for place, said in enumerate(heard):
            if said.addressed and (shared or said.author == author):
                start = place + 1
        for said in heard[start:]:
            if not (said.reply_to_author and (shared or said.reply_to_author == author)):
                yield said
