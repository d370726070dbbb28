"""Sans-IO: which conversations are in use, what was last seen there, and who spoke.

A thread in which we were addressed needs no further mention. What is kept here survives a restart,
so that what was said meanwhile can be read from where we left off.
"""

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

MAX_PLACES = 500


class SlackPlace(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A channel, or a thread in one."""

    channel: str
    thread: str = ""
    seen: str = "0"  # the timestamp of the last message
    user: str = ""  # who spoke last
    team: str = ""  # the workspace of that person
    missed: str = ""  # from this message on something may not have reached us
    waits: int = 0  # to be read again, since this moment


class SlackPlaces:
    """The conversations in use, the last used at the end."""

    def __init__(self, kept: str | None = None) -> None:
        places = msgspec.json.decode(kept, type=list[SlackPlace]) if kept else []
        self._places = OrderedDict(((place.channel, place.thread), place) for place in places)
        self._gaps = 0
        self.changed = False

    def __iter__(self) -> Iterator[SlackPlace]:
        """Go through all of them, the last used first."""
        return iter(list(reversed(self._places.values())))

    def mark_gap(self, now: int, since: int) -> None:
        """Something may not have reached us where anything was said `since` then."""
        self._gaps += 1
        for key, place in self._places.items():
            if timestamp_ms(place.seen) > since and not place.missed:
                self._places[key] = msgspec.structs.replace(place, missed=place.seen, waits=now)
                self.changed = True

    def with_gaps(self) -> Iterator[tuple[SlackPlace, int]]:
        """Go through the places with a gap, each with what `complete` is to be told of it.

        First those that wait longest, so that one restart after the other puts off nobody for ever;
        of those that wait equally long the last used.
        """
        for place in sorted((each for each in self if each.missed), key=lambda each: each.waits):
            yield place, self._gaps

    def close_gap(self, place: SlackPlace, gaps: int) -> None:
        """Everything said in a place was read, unless there was a gap since that was begun."""
        key = (place.channel, place.thread)
        now = self._places.get(key)
        if now and gaps == self._gaps:
            self._places[key] = msgspec.structs.replace(now, missed="", waits=0)
            self.changed = True

    def find(self, channel: str, thread: str) -> SlackPlace | None:
        """Find a place that is in use."""
        return self._places.get((channel, thread))

    def update(self, channel: str, thread: str, ts: str, user: str = "", team: str = "") -> None:
        """Note that something was said there."""
        key = (channel, thread)
        last = self._places.get(key) or SlackPlace(channel=channel, thread=thread)
        seen = max(last.seen, ts, key=parse_timestamp)
        self._places[key] = msgspec.structs.replace(
            last, seen=seen, user=user or last.user, team=team or last.team
        )
        self._places.move_to_end(key)
        while len(self._places) > MAX_PLACES:
            self._places.popitem(last=False)
        self.changed = True

    def forget(self, channel: str, thread: str) -> None:
        """A place that is not there any more, or is none of ours."""
        self._places.pop((channel, thread), None)
        self.changed = True

    def last_thread(self, channel: str, user: str) -> str:
        """Name the thread of a channel in which somebody spoke last."""
        for place in self:
            if place.channel == channel and place.thread and place.user == user:
                return place.thread
        return ""

    def dump(self) -> str:
        """Write down everything."""
        self.changed = False
        return msgspec.json.encode(list(self._places.values())).decode()


def is_dm(channel: str) -> bool:
    """Tell by its id whether a channel is a conversation with one person."""
    return channel.startswith("D")


def is_user(channel: str) -> bool:
    """Tell by its id whether what stands for a channel is a person, who can be written to."""
    return channel.startswith(("U", "W"))


def parse_timestamp(ts: str) -> tuple[int, int]:
    """Read a timestamp of Slack, exactly."""
    seconds, _, rest = ts.partition(".")
    try:
        return int(seconds or 0), int(rest.ljust(6, "0")[:6] or 0)
    except ValueError:
        return 0, 0


def timestamp_ms(ts: str) -> int:
    """Give a timestamp of Slack as every record of ours has it."""
    seconds, micros = parse_timestamp(ts)
    return seconds * 1000 + micros // 1000
