"""Sans-IO: the last stored message of each channel in use, persisted on the shelf."""

from collections import OrderedDict

import msgspec

from platforms.discord.rooms import DiscordChannel

MAX_CHANNELS = 500
_DISCORD_EPOCH_MS = 1_420_070_400_000  # snowflake ids count from 2015-01-01


class ReadMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position in one channel: every message up to `last` is stored."""

    last: int
    guild: str = ""
    parent: str = ""

    @property
    def channel(self) -> DiscordChannel:
        """The channel without its name, which the mark does not keep."""
        return DiscordChannel(self.guild, self.parent)


class ReadMarks:
    """Marks of the channels in use, least recently used first; `dirty` if changed since `dump`."""

    def __init__(self, marks: dict[str, ReadMark] | None = None) -> None:
        self._marks: OrderedDict[str, ReadMark] = OrderedDict(marks or {})
        self.dirty = False

    def __contains__(self, channel: str) -> bool:
        return channel in self._marks

    def get(self, channel: str) -> ReadMark | None:
        """Return the mark of a channel, or None if the channel is not in use."""
        return self._marks.get(channel)

    def channels(self) -> dict[str, ReadMark]:
        """Return a copy of all marks."""
        return dict(self._marks)

    def start(self, channel: str, room: DiscordChannel, first: int) -> bool:
        """Put a channel in use from message `first` on; return False if it already is in use."""
        if channel in self._marks:
            return False
        self._marks[channel] = ReadMark(first - 1, room.guild, room.parent)
        if len(self._marks) > MAX_CHANNELS:
            self._marks.popitem(last=False)
        self.dirty = True
        return True

    def mark_read(self, channel: str, message: int) -> None:
        """Advance the mark to a stored message; does nothing for a channel not in use."""
        mark = self._marks.get(channel)
        if mark and message > mark.last:
            self._marks[channel] = msgspec.structs.replace(mark, last=message)
            self._marks.move_to_end(channel)
            self.dirty = True

    def is_read(self, channel: str, message: int) -> bool:
        """Return whether a message is already stored."""
        mark = self._marks.get(channel)
        return mark is not None and message <= mark.last

    def forget(self, channel: str) -> None:
        """Drop the mark of a channel that is deleted or no longer readable."""
        if self._marks.pop(channel, None):
            self.dirty = True

    def dump(self) -> str:
        """Return all marks as JSON for the shelf."""
        self.dirty = False
        return msgspec.json.encode(self._marks).decode()


def load_marks(text: str | None) -> ReadMarks:
    """Return the marks from the output of `ReadMarks.dump`."""
    return ReadMarks(msgspec.json.decode(text, type=dict[str, ReadMark]) if text else None)


def sent_at(message: int) -> int:
    """Return the creation time of an object from its id, in Unix milliseconds."""
    return (message >> 22) + _DISCORD_EPOCH_MS


def id_at(milliseconds: int) -> int:
    """Return the smallest id of an object created at a time."""
    return max(0, milliseconds - _DISCORD_EPOCH_MS) << 22
