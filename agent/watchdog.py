"""Sans-IO: timeouts of a request to a model.

Three clocks: the wire (any byte), progress (new content), and the request as a whole. Pings and
empty chunks reset only the first, so they cannot keep a dead answer alive. A minimum rate ends an
answer that drips. The connect timeout belongs to the HTTP client.
"""

import enum
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

import msgspec

from agent import settings
from agent.answer.accumulate import ProgressKind
from agent.settings import Timeouts

_PING_SILENCE_DIVISOR = 25  # a lone ping follows at least `wire_dead` / 25 of silence
_PINGS_UNTIL_REGULAR = 3  # lone empty events until they count as regular pings
_LINGER_SECONDS = 2.0  # wait for usage and the end marker after the finish reason
_MAX_FIRST_TOKEN_SECONDS = 300.0
_MAX_LEARNED_GAP_SECONDS = 300.0
_MAX_LEARNED_NOTICE_SECONDS = 60.0
_TOKENS_WITHOUT_EXTRA_TIME = 10_000
_SECONDS_PER_TOKEN = 1.5 / 1000
_LOCAL_FIRST_TOKEN_SECONDS = 900.0  # a local server may have to load the model first
_LOCAL_FACTOR = 3.0
_EFFORT_FIRST_TOKEN_SECONDS = {"high": 300.0, "xhigh": 600.0}
_RATE_BUCKETS = 8  # resolution of the rate window
_NO_GAPS: Mapping[ProgressKind, float] = MappingProxyType({})


class TimeoutCause(enum.StrEnum):
    """Expired timeout."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - a timeout, not a password
    GAP_TEXT = "gap_text"
    GAP_REASONING = "gap_reasoning"
    GAP_TOOL = "gap_tool"
    WIRE_DEAD = "wire_dead"
    MIN_RATE = "min_rate"
    LIFETIME = "lifetime"
    LINGER = "linger"  # the answer is complete, but the connection stays open


class Deadline(msgspec.Struct, frozen=True, order=True):
    """Time at which a request without progress ends, and the cause."""

    when: float
    cause: TimeoutCause


class WatchdogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of one request, in seconds."""

    first_token: float
    gaps: dict[ProgressKind, float]
    wire_dead: float
    lifetime: float
    min_rate: float  # characters per second; 0: no minimum
    min_rate_window: float
    first_notice: float  # silence before the first token until the user is notified
    notice_after: float  # silence inside an answer until the user is notified


_GAP_CAUSE = {
    ProgressKind.TEXT: TimeoutCause.GAP_TEXT,
    ProgressKind.REASONING: TimeoutCause.GAP_REASONING,
    ProgressKind.TOOL: TimeoutCause.GAP_TOOL,
}

_USUAL_GAPS = {
    ProgressKind.TEXT: settings.GAP_TEXT_SECONDS,
    ProgressKind.TOOL: settings.GAP_TOOL_SECONDS,
    ProgressKind.REASONING: settings.GAP_REASONING_SECONDS,
}


def compute_limits(
    timeouts: Timeouts,
    *,
    input_tokens: int,
    effort: str | None,
    base_url: str | None,
    min_silence: float = 0.0,
    learned_first_token: float | None = None,
    learned_gaps: Mapping[ProgressKind, float] = _NO_GAPS,
) -> WatchdogLimits:
    """Compute the timeouts of one request; configured values are used unchanged.

    `min_silence` is a known pause of this model, which the defaults must allow.
    `learned_first_token` and `learned_gaps` come from earlier requests to the model: a slow time to
    the first token, and the longest usual gaps inside an answer.
    """
    local = base_url is not None and is_local(base_url)
    first = timeouts.first_token or _first_token_seconds(
        input_tokens, effort, min_silence, local=local
    )
    base = {
        kind: max(usual * (_LOCAL_FACTOR if local else 1.0), min_silence)
        for kind, usual in _USUAL_GAPS.items()
    }
    adapted = {
        # Learned gaps extend the defaults, never shorten them.
        kind: max(usual, min(learned_gaps.get(kind, 0.0), _MAX_LEARNED_GAP_SECONDS))
        for kind, usual in base.items()
    }
    soft_notice = max(
        timeouts.notice_after, min(learned_first_token or 0.0, _MAX_LEARNED_NOTICE_SECONDS)
    )
    return WatchdogLimits(
        # A computed first-token timeout must not exceed a short configured lifetime.
        first_token=min(first, timeouts.lifetime),
        gaps={
            ProgressKind.TEXT: timeouts.gap_text or adapted[ProgressKind.TEXT],
            ProgressKind.TOOL: timeouts.gap_tool or adapted[ProgressKind.TOOL],
            ProgressKind.REASONING: timeouts.gap_reasoning or adapted[ProgressKind.REASONING],
        },
        wire_dead=timeouts.wire_dead,
        lifetime=timeouts.lifetime,
        min_rate=timeouts.min_rate,
        min_rate_window=timeouts.min_rate_window,
        first_notice=timeouts.first_token_soft or soft_notice,
        notice_after=timeouts.notice_after,
    )


def _first_token_seconds(
    input_tokens: int, effort: str | None, min_silence: float, *, local: bool
) -> float:
    extra = max(0, input_tokens - _TOKENS_WITHOUT_EXTRA_TIME) * _SECONDS_PER_TOKEN
    by_size = min(settings.FIRST_TOKEN_SECONDS + extra, _MAX_FIRST_TOKEN_SECONDS)
    thinks = _EFFORT_FIRST_TOKEN_SECONDS.get(effort or "", 0.0)
    return max(by_size, thinks, min_silence, _LOCAL_FIRST_TOKEN_SECONDS if local else 0.0)


def is_local(base_url: str) -> bool:
    """Return True if a model service runs on this machine or in a private network."""
    host = (urlsplit(base_url).hostname or "").lower()
    named = host == "localhost" or host.endswith((".local", ".internal", ".lan", ".localhost"))
    numbered = host == "::1" or host.startswith(("127.", "10.", "192.168.", "169.254."))
    return named or numbered or _is_private_172(host)


def _is_private_172(host: str) -> bool:
    first, _, rest = host.partition(".")
    second = rest.partition(".")[0]
    return first == "172" and second.isdigit() and 16 <= int(second) <= 31  # noqa: PLR2004 - RFC 1918


class _RateMeter:
    """Sliding-window meter that computes the time at which an answer becomes too slow.

    The window consists of eight buckets, so the result is late by at most an eighth of the window.
    Silence is left to the gap timeout: after half a window without input, counting starts again.
    """

    def __init__(self, min_rate: float, window: float) -> None:
        self._min_characters = min_rate * window
        self._window_seconds = window
        self._bucket_seconds = window / _RATE_BUCKETS
        self._buckets: deque[tuple[float, int]] = deque(maxlen=_RATE_BUCKETS + 1)
        """Past buckets as (end, characters)."""

        self._last_at = self._began_at = self._bucket_ends_at = float("-inf")
        self._near_at = float("-inf")
        self._bucket_characters = 0  # characters in the current bucket

    def add(self, now: float, characters: int) -> bool:
        """Count characters; return True if the answer may soon become too slow."""
        if now >= self._bucket_ends_at:
            self._start_bucket(now)
        self._last_at = now
        self._bucket_characters += characters
        if now < self._near_at:
            return False
        self._near_at = self._due_at() - self._window_seconds / 2  # further input only delays it
        return now >= self._near_at

    def _start_bucket(self, now: float) -> None:
        silent = now - self._last_at > self._window_seconds / 2
        if silent and now > self._due_at():
            self._buckets.clear()
            self._began_at = now
        else:
            self._buckets.append((self._bucket_ends_at, self._bucket_characters))
        self._bucket_characters = 0
        self._bucket_ends_at = (
            now - (now - self._began_at) % self._bucket_seconds + self._bucket_seconds
        )

    def too_slow_at(self) -> float | None:
        """Return the time at which the answer becomes too slow; None if a long silence decides."""
        due = self._due_at()
        return due if self._last_at >= due - self._window_seconds / 2 else None

    def _due_at(self) -> float:
        size, end = self._bucket_characters, self._bucket_ends_at
        past = reversed(self._buckets)
        while size < self._min_characters:
            earlier = next(past, None)
            if earlier is None:
                return self._began_at + self._window_seconds
            end = earlier[0]
            size += earlier[1]
        return end + self._window_seconds


class Watchdog:
    """Clocks of one request: report its events, and ask for the current deadline."""

    def __init__(self, limits: WatchdogLimits, sent_at: float) -> None:
        self._limits = limits
        self._sent_at = sent_at
        self._last_byte_at = sent_at
        self._has_regular_pings = False  # the service sends keepalives during pauses
        self._lone_pings = 0  # empty events after a pause
        self._last_progress_at = sent_at
        self._progress_kind: ProgressKind | None = None  # None: no progress yet
        self._rate = (
            _RateMeter(limits.min_rate, limits.min_rate_window) if limits.min_rate else None
        )
        self._finished_at: float | None = None

    def on_bytes(self, now: float, *, ping: bool, heartbeat: bool = False) -> bool:
        """Record received bytes; return True if the deadline has moved closer.

        `ping` means that the event was empty. Empty events count as regular keepalives only after a
        pause, because several of them may precede an answer. One dedicated keepalive (`heartbeat`)
        is enough; other empty events may just separate parts of an answer, so three are needed.
        """
        silent, self._last_byte_at = now - self._last_byte_at, now
        if (
            self._has_regular_pings
            or not ping
            or silent < self._limits.wire_dead / _PING_SILENCE_DIVISOR
        ):
            return False
        self._lone_pings += 1
        self._has_regular_pings = heartbeat or self._lone_pings >= _PINGS_UNTIL_REGULAR
        return self._has_regular_pings

    def on_progress(self, now: float, kind: ProgressKind, characters: int = 1) -> bool:
        """Record new content; return True if the deadline may have moved closer.

        After False, a timer set for the previous deadline is still early enough.
        """
        changed = kind is not self._progress_kind
        self._last_progress_at = now
        self._progress_kind = kind
        dripping = self._rate is not None and self._rate.add(now, characters)
        return changed or dripping

    def on_finish(self, now: float) -> None:
        """Record the finish reason."""
        self._finished_at = now if self._finished_at is None else self._finished_at

    def silent_seconds(self, now: float) -> float:
        """Return the seconds since the last progress, or since the request was sent."""
        return now - self._last_progress_at

    def notice_at(self) -> float | None:
        """Return the time to notify the user of silence; None after the finish reason."""
        if self._finished_at is not None:
            return None
        limits = self._limits
        return self._last_progress_at + (
            limits.notice_after if self._progress_kind else limits.first_notice
        )

    def seconds_until_deadline(self, now: float) -> float:
        """Return the seconds until the timeout if the silence continues."""
        return max(0.0, self.deadline().when - now)

    def deadline(self) -> Deadline:
        """Return the earliest deadline of all clocks."""
        lifetime = Deadline(self._sent_at + self._limits.lifetime, TimeoutCause.LIFETIME)
        if self._finished_at is not None:
            return min(lifetime, Deadline(self._finished_at + _LINGER_SECONDS, TimeoutCause.LINGER))
        deadline = min(lifetime, self._silence_deadline())
        too_slow_at = self._rate.too_slow_at() if self._rate and self._progress_kind else None
        if too_slow_at is not None:
            deadline = min(deadline, Deadline(too_slow_at, TimeoutCause.MIN_RATE))
        if self._has_regular_pings:
            # Missing keepalives show a dead connection earlier than the gap timeout does.
            dead_at = self._last_byte_at + self._limits.wire_dead
            deadline = min(deadline, Deadline(dead_at, TimeoutCause.WIRE_DEAD))
        return deadline

    def _silence_deadline(self) -> Deadline:
        if self._progress_kind is None:
            return Deadline(self._sent_at + self._limits.first_token, TimeoutCause.FIRST_TOKEN)
        gap = self._limits.gaps[self._progress_kind]
        return Deadline(self._last_progress_at + gap, _GAP_CAUSE[self._progress_kind])
