"""Sans-IO: how long a request to a model may stay silent.

Three clocks: the wire (any byte), and progress (something was said), and the request as a whole.
Pings and empty pieces move only the first, so they cannot keep a dead answer alive. How long a
connection may take to come about is the HTTP client's own limit.
"""

import enum
from urllib.parse import urlsplit

import msgspec

from agent import settings
from agent.accumulate import Progress
from agent.settings import Timeouts

_LINGER = 2.0  # after the reason to stop, for token counts and the end mark
_MOST_FIRST_TOKEN = 300.0
_TOKENS_FOR_FREE = 10_000
_SECONDS_PER_TOKEN = 1.5 / 1000
_LOCAL_FIRST_TOKEN = 900.0  # a machine of one's own may have to load the model first
_LOCAL_FACTOR = 3.0
_THINKS_LONG = {"high": 300.0, "xhigh": 600.0}


class Cause(enum.StrEnum):
    """Which clock ran out."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - a clock, not a password
    GAP_TEXT = "gap_text"
    GAP_REASONING = "gap_reasoning"
    GAP_TOOL = "gap_tool"
    WIRE_DEAD = "wire_dead"
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


_GAP_CAUSE = {
    Progress.TEXT: Cause.GAP_TEXT,
    Progress.REASONING: Cause.GAP_REASONING,
    Progress.TOOL: Cause.GAP_TOOL,
}


def limits_for(
    timeouts: Timeouts, *, input_tokens: int, effort: str | None, base_url: str | None
) -> Limits:
    """Settle the clocks for one request; a configured value is taken as it is."""
    local = base_url is not None and is_local(base_url)
    factor = _LOCAL_FACTOR if local else 1.0
    extra = max(0, input_tokens - _TOKENS_FOR_FREE) * _SECONDS_PER_TOKEN
    first = min(settings.FIRST_TOKEN + extra, _MOST_FIRST_TOKEN)
    first = max(first, _THINKS_LONG.get(effort or "", 0.0), _LOCAL_FIRST_TOKEN if local else 0.0)
    return Limits(
        first_token=timeouts.first_token or first,
        gaps={
            Progress.TEXT: timeouts.gap_text or settings.GAP_TEXT * factor,
            Progress.TOOL: timeouts.gap_tool or settings.GAP_TOOL * factor,
            Progress.REASONING: timeouts.gap_reasoning or settings.GAP_REASONING * factor,
        },
        wire_dead=timeouts.wire_dead,
        lifetime=timeouts.lifetime,
    )


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


class Watchdog:
    """Watches one request: tell it what happens, ask it when to give up."""

    def __init__(self, limits: Limits, sent_at: float) -> None:
        self._limits = limits
        self._sent_at = sent_at
        self._wire_at = sent_at
        self._pings = False  # the service sends signs of life between pieces of an answer
        self._progress_at: float | None = None
        self._kind = Progress.TEXT
        self._ended_at: float | None = None

    def wire(self, now: float, *, ping: bool) -> None:
        """Something came; `ping` when there was nothing in it."""
        self._wire_at = now
        self._pings = self._pings or ping

    def progress(self, now: float, kind: Progress) -> None:
        """The model said something."""
        self._progress_at = now
        self._kind = kind

    def ended(self, now: float) -> None:
        """The service gave its reason to stop."""
        self._ended_at = now if self._ended_at is None else self._ended_at

    def deadline(self) -> Deadline:
        """Say when to give up if nothing happens before."""
        limits = self._limits
        lifetime = Deadline(self._sent_at + limits.lifetime, Cause.LIFETIME)
        if self._ended_at is not None:
            return min(lifetime, Deadline(self._ended_at + _LINGER, Cause.LINGER))
        if self._progress_at is None:
            silence = Deadline(self._sent_at + limits.first_token, Cause.FIRST_TOKEN)
        else:
            gap = limits.gaps[self._kind]
            silence = Deadline(self._progress_at + gap, _GAP_CAUSE[self._kind])
        if not self._pings:
            return min(lifetime, silence)
        # Where pings came, their absence tells of a dead connection before the answer is due.
        return min(lifetime, silence, Deadline(self._wire_at + limits.wire_dead, Cause.WIRE_DEAD))
