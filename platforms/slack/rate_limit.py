"""Sans-IO: how often each of Slack's methods may be called.

Slack counts per method over the whole workspace, so chats share these budgets, whatever each of
them has left of its own. Live updates leave room for the calls that will close live messages, and
come evenly; who may go next is decided by `platforms.slack.send`. When more messages end at once
than there is room for, the last of them wait for some seconds, rather than for Slack's Retry-After.
"""

import math
from collections import OrderedDict, deque

import msgspec

WINDOW_SECONDS = 61.0  # seconds; a minute, and a little for the way there
START_STREAM, APPEND_STREAM, UPDATE_MESSAGE = "chat.startStream", "chat.appendStream", "chat.update"
STOP_STREAM = "chat.stopStream"
SET_SESSION_STATUS = "agents.sessions.setStatus"

PER_MINUTE = {
    START_STREAM: 20,
    STOP_STREAM: 20,
    UPDATE_MESSAGE: 50,
    APPEND_STREAM: 100,
    SET_SESSION_STATUS: 50,
    "reactions.add": 50,
    "reactions.remove": 50,
    "reactions.get": 50,
    "conversations.history": 50,
    "conversations.replies": 50,
    "users.info": 100,
}
"""Documented, as "20+", "50+" and "100+"; the others of Slack's limits are beyond our needs."""

POST_BURST, POSTS_PER_SECOND = 5.0, 1.0
"""In each channel; Slack speaks of one a second and of short bursts."""

_MAX_CHANNELS = 1_000
_LIVE_SHARE = 0.95
_MAX_RESERVED_EDITS = 10  # for which room is kept at most: more messages seldom end at once
_MAX_LIVE_EDITS = 25  # messages at a time
_BURST_SHARE = 0.25
_PER_CHANNEL = {"chat.postMessage"}  # counted in each channel apart


_UNRECORDED_SECONDS = 5.0  # seconds before the end of a process whose calls it may not have noted


class RateLimitState(msgspec.Struct, frozen=True):
    """What the next process must know: Slack counts on while none of ours runs."""

    at: int  # milliseconds since 1970
    calls: dict[str, tuple[float, ...]] = {}  # of the last minute: how many seconds ago
    blocked: tuple[tuple[str, str, float], ...] = ()  # method, channel, seconds left


class SlackRateLimit:
    """What was called lately, and what Slack has forbidden for a while."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[float]] = {method: deque() for method in PER_MINUTE}
        self._blocked: dict[tuple[str, str], float] = {}
        self._posts: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.open_streams = 0
        self.open_updates = 0
        self.open_sessions = 0

    def record_call(self, method: str, now: float) -> None:
        """Count a call that goes now."""
        if method in self._calls:
            self._calls[method].append(now)

    def dump(self, now: float, at: int) -> RateLimitState:
        """Write down how it stands; `at` is the same moment for every process."""
        calls = {
            method: tuple(round(now - moment, 1) for moment in moments)
            for method, moments in self._calls.items()
            if self._recent_calls(method, now)
        }
        blocked = ((*key, until - now) for key, until in self._blocked.items() if until > now)
        return RateLimitState(at, calls, tuple(blocked))

    def restore(self, state: RateLimitState, now: float, at: int) -> None:
        """Take over what an earlier process has noted, and what it may have called after that."""
        ago = max(0.0, (at - state.at) / 1000)
        for method, ages in state.calls.items():
            if method in self._calls:
                unseen = [0.0] * math.ceil(PER_MINUTE[method] * _UNRECORDED_SECONDS / 60)
                self._calls[method].extend(now - ago - age for age in (*ages, *unseen))
        for method, channel, seconds in state.blocked:
            self.block(method, channel, now - ago + seconds)

    def block(self, method: str, channel: str, until: float) -> None:
        """Keep a Retry-After."""
        self._blocked[_key(method, channel)] = until

    def blocked_seconds(self, method: str, channel: str, now: float) -> float:
        """Seconds for which Slack has forbidden this call."""
        until = self._blocked.get(_key(method, channel), 0.0)
        if until <= now:
            self._blocked.pop(_key(method, channel), None)
            return 0.0
        return until - now

    def take_post(self, channel: str, now: float) -> float:
        """Count a post that goes now, or give the seconds until it may."""
        left, at = self._posts.pop(channel, (POST_BURST, now))
        left = min(POST_BURST, left + (now - at) * POSTS_PER_SECOND)
        goes = left >= 1.0
        self._posts[channel] = (left - 1.0 if goes else left, now)
        if len(self._posts) > _MAX_CHANNELS:
            self._posts.popitem(last=False)
        return 0.0 if goes else (1.0 - left) / POSTS_PER_SECOND

    def can_start_stream(self, now: float) -> bool:
        """Whether another stream can be started, and stopped later."""
        return (
            self._recent_calls(START_STREAM, now) < PER_MINUTE[START_STREAM]
            and self.open_streams + self._recent_calls(STOP_STREAM, now) < PER_MINUTE[STOP_STREAM]
            and not self.blocked_seconds(START_STREAM, "", now)
        )

    def can_start_session(self, now: float) -> bool:
        """Whether a thread can show that we are at work, and later that we are not."""
        calls = (
            self._recent_calls(SET_SESSION_STATUS, now) + self.open_sessions + 2
        )  # this one's two, too
        return calls <= PER_MINUTE[SET_SESSION_STATUS] and not self.blocked_seconds(
            SET_SESSION_STATUS, "", now
        )

    def seconds_until_free(self, method: str, now: float) -> float:
        """Seconds until a method can be called again; 0 when it can be called now."""
        most = PER_MINUTE.get(method, 0)
        if not most or self._recent_calls(method, now) < most:
            return 0.0
        return max(0.0, self._calls[method][-most] + WINDOW_SECONDS - now)

    def can_start_edited(self, now: float) -> bool:
        """Whether another message can be begun that is edited later."""
        return (
            self.open_updates < _MAX_LIVE_EDITS
            and self._recent_calls(UPDATE_MESSAGE, now) < self._live_update_limit()
            and not self.blocked_seconds(UPDATE_MESSAGE, "", now)
        )

    def can_append(self, now: float) -> bool:
        """Whether one of the streams may grow now."""
        return self._can_call_live(APPEND_STREAM, PER_MINUTE[APPEND_STREAM] * _LIVE_SHARE, now)

    def can_update(self, now: float) -> bool:
        """Whether one of the messages that are edited may show a new state now."""
        return self._can_call_live(UPDATE_MESSAGE, self._live_update_limit(), now)

    def _live_update_limit(self) -> int:
        return PER_MINUTE[UPDATE_MESSAGE] - min(self.open_updates, _MAX_RESERVED_EDITS)

    def _can_call_live(self, method: str, room: float, now: float) -> bool:
        """A part of the minute's room is there at once, the rest comes evenly."""
        calls = self._recent_calls(method, now)
        if calls >= room or self.blocked_seconds(method, "", now):
            return False
        return calls < room * _BURST_SHARE or now >= self._calls[method][-1] + 60.0 / room

    def _recent_calls(self, method: str, now: float) -> int:
        calls = self._calls[method]
        while calls and calls[0] <= now - WINDOW_SECONDS:
            calls.popleft()
        return len(calls)


def _key(method: str, channel: str) -> tuple[str, str]:
    return method, channel if method in _PER_CHANNEL else ""
