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
from agent.answer.accumulate import Progress
from agent.settings import Timeouts

_PINGS_WITHIN = 25  # a ping comes alone: the time for which bytes may stay away, divided by this
_REGULAR = 3  # empty events that came alone until they count as regular signs of life
_LINGER = 2.0  # after the reason to stop, for token counts and the end mark
_MOST_FIRST_TOKEN = 300.0
_MOST_LEARNED_GAP = 300.0
_MOST_LEARNED_SOFT = 60.0
_TOKENS_FOR_FREE = 10_000
_SECONDS_PER_TOKEN = 1.5 / 1000
_LOCAL_FIRST_TOKEN = 900.0  # a machine of one's own may have to load the model first
_LOCAL_FACTOR = 3.0
_THINKS_LONG = {"high": 300.0, "xhigh": 600.0}
_BUCKETS = 8  # parts of the span over which the rate is taken
_NO_GAPS: Mapping[Progress, float] = MappingProxyType({})


class Cause(enum.StrEnum):
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
    cause: Cause


class Limits(msgspec.Struct, frozen=True):
    """The clocks of one request, in seconds."""

    first_token: float
    gaps: dict[Progress, float]
    wire_dead: float
    lifetime: float
    min_rate: float  # characters a second; 0: however slow
    min_rate_window: float  # the span over which they are counted
    first_notice: float  # silence before the first sign after which the user is told
    notice_after: float  # the same inside an answer


_GAP_CAUSE = {
    Progress.TEXT: Cause.GAP_TEXT,
    Progress.REASONING: Cause.GAP_REASONING,
    Progress.TOOL: Cause.GAP_TOOL,
}

_USUAL_GAPS = {
    Progress.TEXT: settings.GAP_TEXT,
    Progress.TOOL: settings.GAP_TOOL,
    Progress.REASONING: settings.GAP_REASONING,
}


def limits_for(
    timeouts: Timeouts,
    *,
    input_tokens: int,
    effort: str | None,
    base_url: str | None,
    floor: float = 0.0,
    soft: float | None = None,
    gaps: Mapping[Progress, float] = _NO_GAPS,
) -> Limits:
    """Settle the clocks for one request; a configured value is taken as it is.

    `floor` is how long this model is known to be silent at times. `soft` and `gaps` were learned:
    how soon it usually begins, and how long its silences inside an answer usually are at most.
    """
    local = base_url is not None and is_local(base_url)
    first = timeouts.first_token or _first_token(input_tokens, effort, floor, local=local)
    base = {
        kind: max(usual * (_LOCAL_FACTOR if local else 1.0), floor)
        for kind, usual in _USUAL_GAPS.items()
    }
    adapted = {
        # What was learned gives a model more time, never less.
        kind: max(usual, min(gaps.get(kind, 0.0), _MOST_LEARNED_GAP))
        for kind, usual in base.items()
    }
    soft_notice = max(timeouts.notice_after, min(soft or 0.0, _MOST_LEARNED_SOFT))
    return Limits(
        # A lifetime that is configured to be short must not be outlived by what adapts.
        first_token=min(first, timeouts.lifetime),
        gaps={
            Progress.TEXT: timeouts.gap_text or adapted[Progress.TEXT],
            Progress.TOOL: timeouts.gap_tool or adapted[Progress.TOOL],
            Progress.REASONING: timeouts.gap_reasoning or adapted[Progress.REASONING],
        },
        wire_dead=timeouts.wire_dead,
        lifetime=timeouts.lifetime,
        min_rate=timeouts.min_rate,
        min_rate_window=timeouts.min_rate_window,
        first_notice=timeouts.first_token_soft or soft_notice,
        notice_after=timeouts.notice_after,
    )


def _first_token(input_tokens: int, effort: str | None, floor: float, *, local: bool) -> float:
    extra = max(0, input_tokens - _TOKENS_FOR_FREE) * _SECONDS_PER_TOKEN
    by_size = min(settings.FIRST_TOKEN + extra, _MOST_FIRST_TOKEN)
    thinks = _THINKS_LONG.get(effort or "", 0.0)
    return max(by_size, thinks, floor, _LOCAL_FIRST_TOKEN if local else 0.0)


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


class _Rate:
    """Counts what comes, in parts of a span, and says when it became too little.

    The parts make it forgiving by an eighth of the span at most. Silence is not its business:
    after half a span of it the clock of the gap alone decides, and counting begins anew.
    """

    def __init__(self, rate: float, window: float) -> None:
        self._least = rate * window
        self._window = window
        self._width = window / _BUCKETS
        self._past: deque[tuple[float, int]] = deque(maxlen=_BUCKETS + 1)  # (end, characters)
        self._last = self._began = self._ends = float("-inf")
        self._in_sight_at = float("-inf")
        self._size = 0  # characters of the part that ends at `_ends`

    def add(self, now: float, size: int) -> bool:
        """Count; True when the moment at which it will have been too little is in sight."""
        if now >= self._ends:
            self._turn(now)
        self._last = now
        self._size += size
        if now < self._in_sight_at:
            return False
        self._in_sight_at = self._due() - self._window / 2  # what follows only puts it off
        return now >= self._in_sight_at

    def _turn(self, now: float) -> None:
        silent = now - self._last > self._window / 2
        if silent and now > self._due():
            self._past.clear()
            self._began = now
        else:
            self._past.append((self._ends, self._size))
        self._size = 0
        self._ends = now - (now - self._began) % self._width + self._width

    def too_little_at(self) -> float | None:
        """Say when there will have been too little; None when the silence before it is too long."""
        due = self._due()
        return due if self._last >= due - self._window / 2 else None

    def _due(self) -> float:
        size, end = self._size, self._ends
        past = reversed(self._past)
        while size < self._least:
            earlier = next(past, None)
            if earlier is None:
                return self._began + self._window
            end = earlier[0]
            size += earlier[1]
        return end + self._window


class Watchdog:
    """Watches one request: tell it what happens, ask it when to give up."""

    def __init__(self, limits: Limits, sent_at: float) -> None:
        self._limits = limits
        self._sent_at = sent_at
        self._wire_at = sent_at
        self._pings = False  # the service sends signs of life between pieces of an answer
        self._alone = 0  # empty events that came after a while of silence
        self._progress_at = sent_at
        self._kind: Progress | None = None  # None: no progress yet
        self._rate = _Rate(limits.min_rate, limits.min_rate_window) if limits.min_rate else None
        self._ended_at: float | None = None

    def wire(self, now: float, *, ping: bool, beat: bool = False) -> bool:
        """Something came; `ping` when there was nothing in it. True when the deadline is nearer.

        Empty events in one go, as they stand at the head of an answer, are no regular signs of
        life. A `beat`, sent for nothing else, is one when it comes after a while of silence; other
        empty events only tell of the parts of an answer, so it takes several of them.
        """
        silent, self._wire_at = now - self._wire_at, now
        if self._pings or not ping or silent < self._limits.wire_dead / _PINGS_WITHIN:
            return False
        self._alone += 1
        self._pings = beat or self._alone >= _REGULAR
        return self._pings

    def progress(self, now: float, kind: Progress, size: int = 1) -> bool:
        """The model said something, `size` characters; True when the deadline may be nearer now.

        Where it says False, a timer that was set for the deadline before need not be set anew.
        """
        changed = kind is not self._kind
        self._progress_at = now
        self._kind = kind
        dripping = self._rate is not None and self._rate.add(now, size)
        return changed or dripping

    def ended(self, now: float) -> None:
        """The service gave its reason to stop."""
        self._ended_at = now if self._ended_at is None else self._ended_at

    def silence(self, now: float) -> float:
        """Seconds since the model said something, or since it was asked."""
        return now - self._progress_at

    def notice_at(self) -> float | None:
        """Say when the user is to be told of the silence; None when nothing more is waited for."""
        if self._ended_at is not None:
            return None
        limits = self._limits
        return self._progress_at + (limits.notice_after if self._kind else limits.first_notice)

    def reconnects_in(self, now: float) -> float:
        """Seconds until the request is given up if the silence goes on."""
        return max(0.0, self.deadline().when - now)

    def deadline(self) -> Deadline:
        """Say when to give up if nothing happens before."""
        lifetime = Deadline(self._sent_at + self._limits.lifetime, Cause.LIFETIME)
        if self._ended_at is not None:
            return min(lifetime, Deadline(self._ended_at + _LINGER, Cause.LINGER))
        deadline = min(lifetime, self._silent_until())
        too_little_at = self._rate.too_little_at() if self._rate and self._kind else None
        if too_little_at is not None:
            deadline = min(deadline, Deadline(too_little_at, Cause.MIN_RATE))
        if self._pings:
            # Where pings came, their absence tells of a dead connection before the answer is due.
            dead_at = self._wire_at + self._limits.wire_dead
            deadline = min(deadline, Deadline(dead_at, Cause.WIRE_DEAD))
        return deadline

    def _silent_until(self) -> Deadline:
        if self._kind is None:
            return Deadline(self._sent_at + self._limits.first_token, Cause.FIRST_TOKEN)
        gap = self._limits.gaps[self._kind]
        return Deadline(self._progress_at + gap, _GAP_CAUSE[self._kind])
