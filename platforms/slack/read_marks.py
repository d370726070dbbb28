"""Sans-IO: the conversations in use, with the last message seen and the last speaker of each.

A thread in which the app was addressed needs no further mention. The places are stored, so that
after a restart missed messages can be read from the last one seen.
"""

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

MAX_PLACES = 500


class SlackPlace(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A channel, or a thread in one."""

    channel: str
    thread: str = ""
    seen: str = "0"  # timestamp of the last message
    user: str = ""  # the last speaker
    team: str = ""  # workspace of the last speaker
    missed: str = ""  # messages after this one may be missing
    waits: int = 0  # time since when `missed` is set, in milliseconds since 1970
    undecided: bool = False  # opened by a person whose access is not known yet


class SlackPlaces:
    """The conversations in use, in order of use."""

    def __init__(self, kept: str | None = None) -> None:
        places = msgspec.json.decode(kept, type=list[SlackPlace]) if kept else []
        self._places = OrderedDict(((place.channel, place.thread), place) for place in places)
        self._gaps = 0
        self.changed = False

    def __iter__(self) -> Iterator[SlackPlace]:
        """Iterate over the places, most recently used first."""
        return iter(list(reversed(self._places.values())))

    def mark_gap(self, now: int, since: int) -> None:
        """Mark places with messages later than `since` as having a gap."""
        self._gaps += 1
        for key, place in self._places.items():
            if timestamp_ms(place.seen) > since and not place.missed:
                self._places[key] = msgspec.structs.replace(place, missed=place.seen, waits=now)
                self.changed = True

    def with_gaps(self) -> Iterator[tuple[SlackPlace, int]]:
        """Iterate over the places with a gap, each with the token to pass to `close_gap`.

        Longest-waiting places come first, so that repeated restarts starve none; among equals the
        most recently used.
        """
        for place in sorted((each for each in self if each.missed), key=lambda each: each.waits):
            yield place, self._gaps

    def close_gap(self, place: SlackPlace, gaps: int) -> None:
        """Mark a place as complete, unless another gap opened since `gaps` was taken."""
        key = (place.channel, place.thread)
        now = self._places.get(key)
        if now and gaps == self._gaps:
            self._places[key] = msgspec.structs.replace(now, missed="", waits=0)
            self.changed = True

    def find(self, channel: str, thread: str) -> SlackPlace | None:
        """Return the place, or None for one not in use."""
        return self._places.get((channel, thread))

    def update(self, channel: str, thread: str, ts: str, user: str = "", team: str = "") -> None:
        """Record a message in a place."""
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

    def hold(self, channel: str, thread: str, ts: str, now: int, *, is_new: bool) -> None:
        """Have a place read again from an undecided message on; `is_new` if the message opened it.

        Only the message's position is kept, because the person may have no access.
        """
        self._gaps += 1
        key = (channel, thread)
        last = self._places.get(key) or SlackPlace(channel=channel, thread=thread)
        missed = min(last.missed or ts, ts, key=parse_timestamp)
        self._places[key] = msgspec.structs.replace(
            last, missed=missed, waits=last.waits or now, undecided=is_new
        )
        self.changed = True

    def open(self, channel: str, thread: str) -> None:
        """Record that a person with access speaks in a place."""
        key = (channel, thread)
        if (place := self._places.get(key)) and place.undecided:
            self._places[key] = msgspec.structs.replace(place, undecided=False)
            self.changed = True

    def forget(self, channel: str, thread: str) -> None:
        """Remove a place, because it no longer exists or the sender has no access."""
        self._places.pop((channel, thread), None)
        self.changed = True

    def last_thread(self, channel: str, user: str) -> str:
        """Return the thread of a channel in which a user spoke last, or an empty string."""
        for place in self:
            if place.channel == channel and place.thread and place.user == user:
                return place.thread
        return ""

    def dump(self) -> str:
        """Return all places as JSON, and reset `changed`."""
        self.changed = False
        return msgspec.json.encode(list(self._places.values())).decode()


def is_dm(channel: str) -> bool:
    """Return true for the id of a direct message channel."""
    return channel.startswith("D")


def is_user(channel: str) -> bool:
    """Return true for the id of a user, which can stand in place of their DM."""
    return channel.startswith(("U", "W"))


def parse_timestamp(ts: str) -> tuple[int, int]:
    """Parse a Slack timestamp into seconds and microseconds, without rounding."""
    seconds, _, rest = ts.partition(".")
    try:
        return int(seconds or 0), int(rest.ljust(6, "0")[:6] or 0)
    except ValueError:
        return 0, 0


def timestamp_ms(ts: str) -> int:
    """Convert a Slack timestamp to milliseconds since 1970."""
    seconds, micros = parse_timestamp(ts)
    return seconds * 1000 + micros // 1000
