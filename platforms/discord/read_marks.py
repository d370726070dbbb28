"""Sans-IO: what was seen last in the channels in use; kept on the shelf."""

from collections import OrderedDict

import msgspec

from platforms.discord.rooms import DiscordChannel

MAX_CHANNELS = 500
_DISCORD_EPOCH_MS = 1_420_070_400_000  # Discord's ids begin with 2015


class ReadMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """One channel: everything up to `last` is stored."""

    last: int
    guild: str = ""
    parent: str = ""

    @property
    def channel(self) -> DiscordChannel:
        """The channel, as far as it matters for reading it again."""
        return DiscordChannel(self.guild, self.parent)


class ReadMarks:
    """The channels in use; the longest unused is forgotten."""

    def __init__(self, marks: dict[str, ReadMark] | None = None) -> None:
        self._marks: OrderedDict[str, ReadMark] = OrderedDict(marks or {})
        self.dirty = False

    def __contains__(self, channel: str) -> bool:
        return channel in self._marks

    def get(self, channel: str) -> ReadMark | None:
        """What was seen last in a channel."""
        return self._marks.get(channel)

    def channels(self) -> dict[str, ReadMark]:
        """All channels in use."""
        return dict(self._marks)

    def start(self, channel: str, room: DiscordChannel, first: int) -> bool:
        """Use a channel from this message on; False when it is in use already."""
        if channel in self._marks:
            return False
        self._marks[channel] = ReadMark(first - 1, room.guild, room.parent)
        if len(self._marks) > MAX_CHANNELS:
            self._marks.popitem(last=False)
        self.dirty = True
        return True

    def mark_read(self, channel: str, message: int) -> None:
        """Everything up to this message is stored; nothing where the channel is not in use."""
        mark = self._marks.get(channel)
        if mark and message > mark.last:
            self._marks[channel] = msgspec.structs.replace(mark, last=message)
            self._marks.move_to_end(channel)
            self.dirty = True

    def is_read(self, channel: str, message: int) -> bool:
        """Tell whether a message is stored already."""
        mark = self._marks.get(channel)
        return mark is not None and message <= mark.last

    def forget(self, channel: str) -> None:
        """A channel is gone, or not ours to read any more."""
        if self._marks.pop(channel, None):
            self.dirty = True

    def dump(self) -> str:
        """Write everything for the shelf."""
        self.dirty = False
        return msgspec.json.encode(self._marks).decode()


def load_marks(text: str | None) -> ReadMarks:
    """Read what `write` wrote."""
    return ReadMarks(msgspec.json.decode(text, type=dict[str, ReadMark]) if text else None)


def sent_at(message: int) -> int:
    """When something was made, out of its id; milliseconds."""
    return (message >> 22) + _DISCORD_EPOCH_MS


def id_at(milliseconds: int) -> int:
    """The smallest id that something made at a moment can have."""
    return max(0, milliseconds - _DISCORD_EPOCH_MS) << 22
