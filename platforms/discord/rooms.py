"""Sans-IO: channels, their servers and threads, and recent messages per channel."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from platforms.core.contract import Address, Quote

_THREAD_TYPES = frozenset({10, 11, 12})  # channel types: announcement, public, private thread
_DIRECT_TYPES = frozenset({1, 3})  # channel types: DM, group DM
_MAX_CHANNELS = 20_000
_MAX_CHANNELS_WITH_MESSAGES = 500
_MAX_QUOTES = 20

Payload = dict[str, Any]


class DiscordChannel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel of a server (`guild`), a thread in a channel (`parent`), or a private chat."""

    guild: str = ""
    parent: str = ""
    name: str = ""

    @property
    def is_direct(self) -> bool:
        """True for a private chat."""
        return not self.guild


class ChannelDirectory:
    """Cache of the channels that Discord has sent."""

    def __init__(self) -> None:
        self._channels: OrderedDict[str, DiscordChannel] = OrderedDict()

    def on_event(self, kind: str, data: Payload) -> None:
        """Update the cache from a gateway event."""
        match kind:
            case "GUILD_CREATE":
                for channel in (*data.get("channels", ()), *data.get("threads", ())):
                    self._add(channel, str(data["id"]))
            case "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE":
                self._add(data, str(data.get("guild_id") or ""))
            case "THREAD_LIST_SYNC":
                for channel in data.get("threads", ()):
                    self._add(channel, str(data["guild_id"]))
            case _:
                pass

    def find(self, channel: str, guild: str) -> DiscordChannel | None:
        """Return a known channel; a channel without a server is always a private chat."""
        if not guild:
            return DiscordChannel()
        return self._channels.get(channel)

    def put(self, channel: str, room: DiscordChannel) -> None:
        """Add or replace a channel."""
        self._channels[channel] = room
        self._channels.move_to_end(channel)
        if len(self._channels) > _MAX_CHANNELS:
            self._channels.popitem(last=False)

    def name_of(self, channel: str) -> str:
        """Return a channel's name, or its id if the name is unknown."""
        room = self._channels.get(channel)
        return (room and room.name) or channel

    def _add(self, channel: Payload, guild: str) -> None:
        if guild:
            self.put(str(channel["id"]), parse_channel(channel, guild))


def parse_channel(channel: Payload, guild: str = "") -> DiscordChannel:
    """Return the channel described by a channel object."""
    if channel.get("type") in _DIRECT_TYPES:
        return DiscordChannel()
    parent = str(channel.get("parent_id") or "") if channel.get("type") in _THREAD_TYPES else ""
    return DiscordChannel(str(channel.get("guild_id") or guild), parent, channel.get("name") or "")


def channel_address(platform: str, account: str, channel: str, room: DiscordChannel) -> Address:
    """Return the gateway's address of a channel; a thread is addressed within its parent."""
    if room.parent:
        return Address(platform, room.parent, account, channel)
    return Address(platform, channel, account)


def channel_id(address: Address) -> str:
    """Return the Discord channel id of an address."""
    return address.thread or address.chat


# --- recent messages -----------------------------------------------------------------------------


class RecentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message kept as context."""

    id: str
    author: str
    name: str
    text: str
    addressed: bool = False
    reply_to_author: str = ""  # set on the bot's messages: author of the answered message


class RecentMessages:
    """Cache of the last messages of each room."""

    def __init__(self) -> None:
        self._messages: OrderedDict[str, deque[RecentMessage]] = OrderedDict()
        self._with_history: set[str] = set()  # channels whose earlier history was loaded

    def has_history(self, channel: str) -> bool:
        """Return whether the cache holds enough messages without loading older history."""
        return channel in self._with_history or len(self._messages.get(channel, ())) >= _MAX_QUOTES

    def add_history(self, channel: str, history: Iterable[RecentMessage]) -> None:
        """Insert older messages before those received live."""
        live = list(self._messages.get(channel, ()))
        known = {message.id for message in live}
        self._messages.pop(channel, None)
        self.add(channel, (*(message for message in history if message.id not in known), *live))
        self._with_history.add(channel)

    def add(self, channel: str, messages: Iterable[RecentMessage]) -> None:
        """Add messages, oldest first."""
        recent = self._messages.setdefault(channel, deque(maxlen=_MAX_QUOTES * 2))
        recent.extend(messages)
        self._messages.move_to_end(channel)
        if len(self._messages) > _MAX_CHANNELS_WITH_MESSAGES:
            self._with_history.discard(self._messages.popitem(last=False)[0])

    def delete(self, channel: str, message: str) -> None:
        """Remove a deleted message."""
        if recent := self._messages.get(channel):
            kept = [other for other in recent if other.id != message]
            recent.clear()
            recent.extend(kept)

    def edit(self, channel: str, message: str, text: str) -> None:
        """Replace the text of an edited message."""
        if recent := self._messages.get(channel):
            edited = [
                msgspec.structs.replace(other, text=text) if other.id == message else other
                for other in recent
            ]
            recent.clear()
            recent.extend(edited)

    def context_for(self, channel: str, author: str, *, shared: bool) -> tuple[Quote, ...]:
        """Return recent messages that the author's conversation with the bot does not contain yet.

        `shared` means that all people in the room share one conversation, as in a thread.
        """
        missing = [
            message
            for message in self._not_in_conversation(channel, author, shared=shared)
            if message.text
        ]
        return tuple(
            Quote(message.name, message.text, message.id) for message in missing[-_MAX_QUOTES:]
        )

    def _not_in_conversation(
        self, channel: str, author: str, *, shared: bool
    ) -> Iterator[RecentMessage]:
        recent = list(self._messages.get(channel, ()))
        start = 0
        for index, message in enumerate(recent):
            if message.addressed and (shared or message.author == author):
                start = index + 1
        for message in recent[start:]:
            if not (message.reply_to_author and (shared or message.reply_to_author == author)):
                yield message
