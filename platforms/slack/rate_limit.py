"""Sans-IO: rate limits of Slack's methods.

Slack counts calls per method over the whole workspace, so all chats share these limits. Live updates
are spread evenly and leave room for the calls that will close live messages; `platforms.slack.send`
decides which message is updated next. When more messages end at once than the limit allows, the last
ones wait for some seconds instead of running into Slack's Retry-After.
"""

import math
from collections import OrderedDict, deque

import msgspec

_WINDOW_SECONDS = 61.0  # a minute, and the latency of a call
START_STREAM, APPEND_STREAM, UPDATE_MESSAGE = "chat.startStream", "chat.appendStream", "chat.update"
STOP_STREAM = "chat.stopStream"
SET_SESSION_STATUS = "agents.sessions.setStatus"

_PER_MINUTE = {
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
"""Calls per minute, documented as "20+", "50+" and "100+"; other methods never reach their limit."""

_POST_BURST, _POSTS_PER_SECOND = 5.0, 1.0
"""Limits per channel; Slack documents one post a second and short bursts."""

_MAX_CHANNELS = 1_000
_LIVE_SHARE = 0.95
_MAX_RESERVED_EDITS = 10  # calls reserved for final edits; more messages rarely end at once
_MAX_LIVE_EDITS = 25  # messages edited live at the same time
_BURST_SHARE = 0.25
_PER_CHANNEL = {"chat.postMessage"}  # counted per channel

_UNRECORDED_SECONDS = 5.0  # the state may lack the last calls of a process


class RateLimitState(msgspec.Struct, frozen=True):
    """State for the next process, because Slack's limits continue across a restart."""

    at: int  # milliseconds since 1970
    calls: dict[str, tuple[float, ...]] = {}  # calls of the last minute, by age in seconds
    blocked: tuple[tuple[str, str, float], ...] = ()  # method, channel, seconds left


class SlackRateLimit:
    """Recent calls by method, and the methods for which Slack sent a Retry-After."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[float]] = {method: deque() for method in _PER_MINUTE}
        self._blocked: dict[tuple[str, str], float] = {}
        self._posts: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.open_streams = 0
        self.open_updates = 0
        self.open_sessions = 0

    def record_call(self, method: str, now: float) -> None:
        """Record a call made now."""
        if method in self._calls:
            self._calls[method].append(now)

    def dump(self, now: float, at: int) -> RateLimitState:
        """Return the state to store; `at` is `now` by the wall clock, in milliseconds since 1970."""
        calls = {
            method: tuple(round(now - moment, 1) for moment in moments)
            for method, moments in self._calls.items()
            if self._recent_calls(method, now)
        }
        blocked = ((*key, until - now) for key, until in self._blocked.items() if until > now)
        return RateLimitState(at, calls, tuple(blocked))

    def restore(self, state: RateLimitState, now: float, at: int) -> None:
        """Load the state of an earlier process, and assume some calls after the state was taken."""
        ago = max(0.0, (at - state.at) / 1000)
        for method, ages in state.calls.items():
            if method in self._calls:
                unseen = [0.0] * math.ceil(_PER_MINUTE[method] * _UNRECORDED_SECONDS / 60)
                self._calls[method].extend(now - ago - age for age in (*ages, *unseen))
        for method, channel, seconds in state.blocked:
            self.block(method, channel, now - ago + seconds)

    def block(self, method: str, channel: str, until: float) -> None:
        """Record a Retry-After."""
        self._blocked[_key(method, channel)] = until

    def blocked_seconds(self, method: str, channel: str, now: float) -> float:
        """Return the seconds until a Retry-After for this call has passed."""
        until = self._blocked.get(_key(method, channel), 0.0)
        if until <= now:
            self._blocked.pop(_key(method, channel), None)
            return 0.0
        return until - now

    def take_post(self, channel: str, now: float) -> float:
        """Record a post and return 0, or return the seconds until one is allowed."""
        left, at = self._posts.pop(channel, (_POST_BURST, now))
        left = min(_POST_BURST, left + (now - at) * _POSTS_PER_SECOND)
        goes = left >= 1.0
        self._posts[channel] = (left - 1.0 if goes else left, now)
        if len(self._posts) > _MAX_CHANNELS:
            self._posts.popitem(last=False)
        return 0.0 if goes else (1.0 - left) / _POSTS_PER_SECOND

    def can_start_stream(self, now: float) -> bool:
        """Return true if the limits allow starting a stream, and a later stop."""
        return (
            self._recent_calls(START_STREAM, now) < _PER_MINUTE[START_STREAM]
            and self.open_streams + self._recent_calls(STOP_STREAM, now) < _PER_MINUTE[STOP_STREAM]
            and not self.blocked_seconds(START_STREAM, "", now)
        )

    def can_start_session(self, now: float) -> bool:
        """Return true if the limits allow setting a session to processing, and back to active."""
        own = 2  # calls of the new session: to processing, and back
        calls = self._recent_calls(SET_SESSION_STATUS, now) + self.open_sessions + own
        return calls <= _PER_MINUTE[SET_SESSION_STATUS] and not self.blocked_seconds(
            SET_SESSION_STATUS, "", now
        )

    def seconds_until_free(self, method: str, now: float) -> float:
        """Return the seconds until a method can be called; 0 means now."""
        most = _PER_MINUTE.get(method, 0)
        if not most or self._recent_calls(method, now) < most:
            return 0.0
        return max(0.0, self._calls[method][-most] + _WINDOW_SECONDS - now)

    def can_start_edited(self, now: float) -> bool:
        """Return true if the limits allow another message with live edits."""
        return (
            self.open_updates < _MAX_LIVE_EDITS
            and self._recent_calls(UPDATE_MESSAGE, now) < self._live_update_limit()
            and not self.blocked_seconds(UPDATE_MESSAGE, "", now)
        )

    def can_append(self, now: float) -> bool:
        """Return true if one of the streams may be appended to now."""
        return self._can_call_live(APPEND_STREAM, _PER_MINUTE[APPEND_STREAM] * _LIVE_SHARE, now)

    def can_update(self, now: float) -> bool:
        """Return true if one of the live messages may be edited now."""
        return self._can_call_live(UPDATE_MESSAGE, self._live_update_limit(), now)

    def _live_update_limit(self) -> int:
        return _PER_MINUTE[UPDATE_MESSAGE] - min(self.open_updates, _MAX_RESERVED_EDITS)

    def _can_call_live(self, method: str, room: float, now: float) -> bool:
        """Allow part of a minute's calls as a burst and spread the rest evenly."""
        calls = self._recent_calls(method, now)
        if calls >= room or self.blocked_seconds(method, "", now):
            return False
        return calls < room * _BURST_SHARE or now >= self._calls[method][-1] + 60.0 / room

    def _recent_calls(self, method: str, now: float) -> int:
        calls = self._calls[method]
        while calls and calls[0] <= now - _WINDOW_SECONDS:
            calls.popleft()
        return len(calls)


def _key(method: str, channel: str) -> tuple[str, str]:
    return method, channel if method in _PER_CHANNEL else ""
