"""Sans-IO: how long a request to a model may stay silent.

Three clocks: the wire (any byte), progress (something was said), and the request as a whole. Pings
and empty pieces move only the first, so they cannot keep a dead answer alive. An answer that drips
is given up by its rate. How long a connection may take to come about is the HTTP client's limit.
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

_PING_SILENCE_DIVISOR = (
    25  # a ping comes alone: the time for which bytes may stay away, divided by this
)
_PINGS_UNTIL_REGULAR = 3  # empty events that came alone until they count as regular signs of life
_LINGER_SECONDS = 2.0  # after the reason to stop, for token counts and the end mark
_MAX_FIRST_TOKEN_SECONDS = 300.0
_MAX_LEARNED_GAP_SECONDS = 300.0
_MAX_LEARNED_NOTICE_SECONDS = 60.0
_TOKENS_WITHOUT_EXTRA_TIME = 10_000
_SECONDS_PER_TOKEN = 1.5 / 1000
_LOCAL_FIRST_TOKEN_SECONDS = 900.0  # a machine of one's own may have to load the model first
_LOCAL_FACTOR = 3.0
_EFFORT_FIRST_TOKEN_SECONDS = {"high": 300.0, "xhigh": 600.0}
_RATE_BUCKETS = 8  # parts of the span over which the rate is taken
_NO_GAPS: Mapping[ProgressKind, float] = MappingProxyType({})


class TimeoutCause(enum.StrEnum):
    """Which clock ran out."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - a clock, not a password
    GAP_TEXT = "gap_text"
    GAP_REASONING = "gap_reasoning"
    GAP_TOOL = "gap_tool"
    WIRE_DEAD = "wire_dead"
    MIN_RATE = "min_rate"
    LIFETIME = "lifetime"
    LINGER = "linger"  # the answer is there, only the end of the connection is not


class Deadline(msgspec.Struct, frozen=True, order=True):
    """When to give up unless something happens before, and why."""

    when: float
    cause: TimeoutCause


class WatchdogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks of one request, in seconds."""

    first_token: float
    gaps: dict[ProgressKind, float]
    wire_dead: float
    lifetime: float
    min_rate: float  # characters a second; 0: however slow
    min_rate_window: float  # the span over which they are counted
    first_notice: float  # silence before the first sign after which the user is told
    notice_after: float  # the same inside an answer


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
    """Settle the clocks for one request; a configured value is taken as it is.

    `floor` is how long this model is known to be silent at times. `soft` and `gaps` were learned:
    how soon it usually begins, and how long its silences inside an answer usually are at most.
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
        # What was learned gives a model more time, never less.
        kind: max(usual, min(learned_gaps.get(kind, 0.0), _MAX_LEARNED_GAP_SECONDS))
        for kind, usual in base.items()
    }
    soft_notice = max(
        timeouts.notice_after, min(learned_first_token or 0.0, _MAX_LEARNED_NOTICE_SECONDS)
    )
    return WatchdogLimits(
        # A lifetime that is configured to be short must not be outlived by what adapts.
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
    """Tell whether a model service runs on this machine or in this house."""
    host = (urlsplit(base_url).hostname or "").lower()
    named = host == "localhost" or host.endswith((".local", ".internal", ".lan", ".localhost"))
    numbered = host == "::1" or host.startswith(("127.", "10.", "192.168.", "169.254."))
    return named or numbered or _is_private_172(host)


def _is_private_172(host: str) -> bool:
    first, _, rest = host.partition(".")
    second = rest.partition(".")[0]
    return first == "172" and second.isdigit() and 16 <= int(second) <= 31  # noqa: PLR2004 - RFC 1918


class _RateMeter:
    """Counts what comes, in parts of a span, and says when it became too little.

    The parts make it forgiving by an eighth of the span at most. Silence is not its business:
    after half a span of it the clock of the gap alone decides, and counting begins anew.
    """

    def __init__(self, min_rate: float, window: float) -> None:
        self._min_characters = min_rate * window
        self._window_seconds = window
        self._bucket_seconds = window / _RATE_BUCKETS
        self._buckets: deque[tuple[float, int]] = deque(
            maxlen=_RATE_BUCKETS + 1
        )  # (end, characters)
        self._last_at = self._began_at = self._bucket_ends_at = float("-inf")
        self._near_at = float("-inf")
        self._bucket_characters = 0  # characters of the part that ends at `_ends`

    def add(self, now: float, characters: int) -> bool:
        """Count; True when the moment at which it will have been too little is in sight."""
        if now >= self._bucket_ends_at:
            self._start_bucket(now)
        self._last_at = now
        self._bucket_characters += characters
        if now < self._near_at:
            return False
        self._near_at = self._due_at() - self._window_seconds / 2  # what follows only puts it off
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
        """Say when there will have been too little; None when the silence before it is too long."""
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
    """Watches one request: tell it what happens, ask it when to give up."""

    def __init__(self, limits: WatchdogLimits, sent_at: float) -> None:
        self._limits = limits
        self._sent_at = sent_at
        self._last_byte_at = sent_at
        self._has_regular_pings = (
            False  # the service sends signs of life between pieces of an answer
        )
        self._lone_pings = 0  # empty events that came after a while of silence
        self._last_progress_at = sent_at
        self._progress_kind: ProgressKind | None = None  # None: no progress yet
        self._rate = (
            _RateMeter(limits.min_rate, limits.min_rate_window) if limits.min_rate else None
        )
        self._finished_at: float | None = None

    def on_bytes(self, now: float, *, ping: bool, heartbeat: bool = False) -> bool:
        """Something came; `ping` when there was nothing in it. True when the deadline is nearer.

        Empty events in one go, as they stand at the head of an answer, are no regular signs of
        life. A `beat`, sent for nothing else, is one when it comes after a while of silence; other
        empty events only tell of the parts of an answer, so it takes several of them.
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
        """The model said something, `size` characters; True when the deadline may be nearer now.

        Where it says False, a timer that was set for the deadline before need not be set anew.
        """
        changed = kind is not self._progress_kind
        self._last_progress_at = now
        self._progress_kind = kind
        dripping = self._rate is not None and self._rate.add(now, characters)
        return changed or dripping

    def on_finish(self, now: float) -> None:
        """The service gave its reason to stop."""
        self._finished_at = now if self._finished_at is None else self._finished_at

    def silent_seconds(self, now: float) -> float:
        """Seconds since the model said something, or since it was asked."""
        return now - self._last_progress_at

    def notice_at(self) -> float | None:
        """Say when the user is to be told of the silence; None when nothing more is waited for."""
        if self._finished_at is not None:
            return None
        limits = self._limits
        return self._last_progress_at + (
            limits.notice_after if self._progress_kind else limits.first_notice
        )

    def seconds_until_deadline(self, now: float) -> float:
        """Seconds until the request is given up if the silence goes on."""
        return max(0.0, self.deadline().when - now)

    def deadline(self) -> Deadline:
        """Say when to give up if nothing happens before."""
        lifetime = Deadline(self._sent_at + self._limits.lifetime, TimeoutCause.LIFETIME)
        if self._finished_at is not None:
            return min(lifetime, Deadline(self._finished_at + _LINGER_SECONDS, TimeoutCause.LINGER))
        deadline = min(lifetime, self._silence_deadline())
        too_little_at = self._rate.too_slow_at() if self._rate and self._progress_kind else None
        if too_little_at is not None:
            deadline = min(deadline, Deadline(too_little_at, TimeoutCause.MIN_RATE))
        if self._has_regular_pings:
            # Where pings came, their absence tells of a dead connection before the answer is due.
            dead_at = self._last_byte_at + self._limits.wire_dead
            deadline = min(deadline, Deadline(dead_at, TimeoutCause.WIRE_DEAD))
        return deadline

    def _silence_deadline(self) -> Deadline:
        if self._progress_kind is None:
            return Deadline(self._sent_at + self._limits.first_token, TimeoutCause.FIRST_TOKEN)
        gap = self._limits.gaps[self._progress_kind]
        return Deadline(self._last_progress_at + gap, _GAP_CAUSE[self._progress_kind])
