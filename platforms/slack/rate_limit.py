"""Sans-IO: how often each of Slack's methods may be called.

Slack counts per method over the whole workspace, so chats share these budgets, whatever each of
them has left of its own. Live updates leave room for the calls that will close live messages, and
come evenly; who may go next is decided by `platforms.slack.send`. When more messages end at once
than there is room for, the last of them wait for some seconds, rather than for Slack's Retry-After.
"""

import math
from collections import OrderedDict, deque

import msgspec

WINDOW = 61.0  # seconds; a minute, and a little for the way there
STREAMS, APPENDS, UPDATES = "chat.startStream", "chat.appendStream", "chat.update"
STOPS = "chat.stopStream"
SESSIONS = "agents.sessions.setStatus"

PER_MINUTE = {
    STREAMS: 20,
    STOPS: 20,
    UPDATES: 50,
    APPENDS: 100,
    SESSIONS: 50,
    "reactions.add": 50,
    "reactions.remove": 50,
    "reactions.get": 50,
    "conversations.history": 50,
    "conversations.replies": 50,
    "users.info": 100,
}
"""Documented, as "20+", "50+" and "100+"; the others of Slack's limits are beyond our needs."""

POSTS_AT_ONCE, POSTS_PER_SECOND = 5.0, 1.0
"""In each channel; Slack speaks of one a second and of short bursts."""

_MOST_CHANNELS = 1_000
_LIVE_SHARE = 0.95
_LAST_EDITS = 10  # for which room is kept at most: more messages seldom end at once
_MOST_EDITED = 25  # messages at a time
_AT_ONCE = 0.25
_PER_CHANNEL = {"chat.postMessage"}  # counted in each channel apart


_UNSEEN = 5.0  # seconds before the end of a process whose calls it may not have noted


class Noted(msgspec.Struct, frozen=True):
    """What the next process must know: Slack counts on while none of ours runs."""

    at: int  # milliseconds since 1970
    calls: dict[str, tuple[float, ...]] = {}  # of the last minute: how many seconds ago
    blocked: tuple[tuple[str, str, float], ...] = ()  # method, channel, seconds left


class Budget:
    """What was called lately, and what Slack has forbidden for a while."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[float]] = {method: deque() for method in PER_MINUTE}
        self._blocked: dict[tuple[str, str], float] = {}
        self._posts: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.open_streams = 0
        self.open_updates = 0
        self.open_sessions = 0

    def took(self, method: str, now: float) -> None:
        """Count a call that goes now."""
        if method in self._calls:
            self._calls[method].append(now)

    def noted(self, now: float, at: int) -> Noted:
        """Write down how it stands; `at` is the same moment for every process."""
        calls = {
            method: tuple(round(now - moment, 1) for moment in moments)
            for method, moments in self._calls.items()
            if self._lately(method, now)
        }
        blocked = ((*key, until - now) for key, until in self._blocked.items() if until > now)
        return Noted(at, calls, tuple(blocked))

    def go_on(self, noted: Noted, now: float, at: int) -> None:
        """Take over what an earlier process has noted, and what it may have called after that."""
        ago = max(0.0, (at - noted.at) / 1000)
        for method, ages in noted.calls.items():
            if method in self._calls:
                unseen = [0.0] * math.ceil(PER_MINUTE[method] * _UNSEEN / 60)
                self._calls[method].extend(now - ago - age for age in (*ages, *unseen))
        for method, channel, seconds in noted.blocked:
            self.block(method, channel, now - ago + seconds)

    def block(self, method: str, channel: str, until: float) -> None:
        """Keep a Retry-After."""
        self._blocked[_key(method, channel)] = until

    def wait(self, method: str, channel: str, now: float) -> float:
        """Seconds for which Slack has forbidden this call."""
        until = self._blocked.get(_key(method, channel), 0.0)
        if until <= now:
            self._blocked.pop(_key(method, channel), None)
            return 0.0
        return until - now

    def post(self, channel: str, now: float) -> float:
        """Count a post that goes now, or give the seconds until it may."""
        left, at = self._posts.pop(channel, (POSTS_AT_ONCE, now))
        left = min(POSTS_AT_ONCE, left + (now - at) * POSTS_PER_SECOND)
        goes = left >= 1.0
        self._posts[channel] = (left - 1.0 if goes else left, now)
        if len(self._posts) > _MOST_CHANNELS:
            self._posts.popitem(last=False)
        return 0.0 if goes else (1.0 - left) / POSTS_PER_SECOND

    def may_stream(self, now: float) -> bool:
        """Whether another stream can be started, and stopped later."""
        return (
            self._lately(STREAMS, now) < PER_MINUTE[STREAMS]
            and self.open_streams + self._lately(STOPS, now) < PER_MINUTE[STOPS]
            and not self.wait(STREAMS, "", now)
        )

    def may_begin_session(self, now: float) -> bool:
        """Whether a thread can show that we are at work, and later that we are not."""
        calls = self._lately(SESSIONS, now) + self.open_sessions + 2  # this one's two, too
        return calls <= PER_MINUTE[SESSIONS] and not self.wait(SESSIONS, "", now)

    def full(self, method: str, now: float) -> float:
        """Seconds until a method can be called again; 0 when it can be called now."""
        most = PER_MINUTE.get(method, 0)
        if not most or self._lately(method, now) < most:
            return 0.0
        return max(0.0, self._calls[method][-most] + WINDOW - now)

    def may_edit_another(self, now: float) -> bool:
        """Whether another message can be begun that is edited later."""
        return (
            self.open_updates < _MOST_EDITED
            and self._lately(UPDATES, now) < self._live_updates()
            and not self.wait(UPDATES, "", now)
        )

    def may_append(self, now: float) -> bool:
        """Whether one of the streams may grow now."""
        return self._has_turn(APPENDS, PER_MINUTE[APPENDS] * _LIVE_SHARE, now)

    def may_update(self, now: float) -> bool:
        """Whether one of the messages that are edited may show a new state now."""
        return self._has_turn(UPDATES, self._live_updates(), now)

    def _live_updates(self) -> int:
        return PER_MINUTE[UPDATES] - min(self.open_updates, _LAST_EDITS)

    def _has_turn(self, method: str, room: float, now: float) -> bool:
        """A part of the minute's room is there at once, the rest comes evenly."""
        calls = self._lately(method, now)
        if calls >= room or self.wait(method, "", now):
            return False
        return calls < room * _AT_ONCE or now >= self._calls[method][-1] + 60.0 / room

    def _lately(self, method: str, now: float) -> int:
        calls = self._calls[method]
        while calls and calls[0] <= now - WINDOW:
            calls.popleft()
        return len(calls)


def _key(method: str, channel: str) -> tuple[str, str]:
    return method, channel if method in _PER_CHANNEL else ""
