"""Sans-IO: facts learned about a model service at run time, shared by all conversations.

They are not stored, so learning starts again after a restart. Each entry takes constant memory.
"""

import math
from collections import OrderedDict

from agent.model.breaker import CircuitBreaker

_MAX_TARGETS = 256

_UNMARKED_ENDS_UNTIL_TRUSTED = 2
_NO_STREAMING_SECONDS = 600.0

_FIRST_TOKEN_FACTOR = 2.0
_FIRST_TOKEN_QUANTILE = 0.95
_FIRST_TOKEN_SAMPLES = 5
_GAP_FACTOR = 8.0
_GAP_QUANTILE = 0.99
_GAP_SAMPLES = 50

_FIRST_BUCKET_SECONDS = 0.001  # upper end of the first bucket
_BUCKET_GROWTH = 1.15
_BUCKETS = 112  # the last bucket ends at about 90 minutes
_MAX_SAMPLES = 1000.0

_MIN_CORRECTION = 0.5
_MAX_CORRECTION = 2.0
_DECAY = 0.8


class DurationHistogram:
    """Histogram of durations; each bucket is 15 % wider than the one before.

    When it is full, all counts are halved, so that old samples lose weight.
    """

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0.0] * _BUCKETS
        self._total = 0.0

    @property
    def sample_count(self) -> float:
        """Weight of the remaining samples; lower than the number of samples after halving."""
        return self._total

    def add(self, seconds: float) -> None:
        """Record one duration."""
        bucket = 0
        if seconds > _FIRST_BUCKET_SECONDS:
            bucket = min(
                math.ceil(math.log(seconds / _FIRST_BUCKET_SECONDS, _BUCKET_GROWTH)), _BUCKETS - 1
            )
        self._counts[bucket] += 1
        self._total += 1
        if self._total >= _MAX_SAMPLES:
            self._counts = [count / 2 for count in self._counts]
            self._total /= 2

    def quantile(self, share: float) -> float:
        """Return an upper bound of the quantile, at most 15 % above it; 0 without samples."""
        wanted = self._total * share * (1 - 1e-12)  # tolerate rounding errors from halving
        below = 0.0
        for bucket, count in enumerate(self._counts):
            below += count
            if count and below >= wanted:
                return float(_FIRST_BUCKET_SECONDS * _BUCKET_GROWTH**bucket)
        return 0.0


class LearnedTarget:
    """Learned facts about one model at one address; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.breaker = CircuitBreaker()
        self.context_window: int | None = None  # tokens, from the service's overflow error
        self.ignores_prefill = False  # the service began a prefilled answer again
        self._unmarked_ends = 0
        self._no_stream_until: float | None = None
        self._first_token_times = DurationHistogram()
        self._gap_times: dict[str, DurationHistogram] = {}
        self._estimated_tokens = 0.0
        self._reported_tokens = 0.0

    @property
    def omits_end_marker(self) -> bool:
        """True if the service ends complete texts without a marker; does not apply to calls."""
        return self._unmarked_ends >= _UNMARKED_ENDS_UNTIL_TRUSTED

    def record_unmarked_end(self) -> None:
        """Record a text that ended without a marker and proved to be complete."""
        self._unmarked_ends += 1

    def record_end_marker(self) -> None:
        """Record an answer that ended with a marker."""
        self._unmarked_ends = 0

    def should_stream(self, now: float) -> bool:
        """Return True if the next request should ask for a stream."""
        return self._no_stream_until is None or now >= self._no_stream_until

    def record_no_streaming(self, now: float) -> None:
        """Record that the service did not stream; streaming is tried again after ten minutes."""
        self._no_stream_until = now + _NO_STREAMING_SECONDS

    def record_first_token(self, seconds: float) -> None:
        """Record the time to the first token."""
        self._first_token_times.add(seconds)

    def slow_first_token_seconds(self) -> float | None:
        """Return the time after which a missing first token is unusual; None if not known yet."""
        if self._first_token_times.sample_count < _FIRST_TOKEN_SAMPLES:
            return None
        return _FIRST_TOKEN_FACTOR * self._first_token_times.quantile(_FIRST_TOKEN_QUANTILE)

    def record_gap(self, kind: str, seconds: float) -> None:
        """Record a gap between two pieces of the same kind."""
        gaps = self._gap_times.get(kind)
        if gaps is None:
            gaps = self._gap_times[kind] = DurationHistogram()
        gaps.add(seconds)

    def longest_gap_seconds(self, kind: str) -> float | None:
        """Return a gap that this service almost never reaches; None if not known yet."""
        gaps = self._gap_times.get(kind)
        if gaps is None or gaps.sample_count < _GAP_SAMPLES:
            return None
        return _GAP_FACTOR * gaps.quantile(_GAP_QUANTILE)

    @property
    def token_correction(self) -> float:
        """Factor that corrects token estimates for this model."""
        if not self._estimated_tokens:
            return 1.0
        ratio = self._reported_tokens / self._estimated_tokens
        return min(max(ratio, _MIN_CORRECTION), _MAX_CORRECTION)

    def record_token_count(self, estimated: int, reported: int) -> None:
        """Record estimated and reported input tokens; long requests weigh more than short ones.

        `estimated` is the estimate without correction.
        """
        if estimated > 0 and reported > 0:
            self._estimated_tokens = self._estimated_tokens * _DECAY + estimated
            self._reported_tokens = self._reported_tokens * _DECAY + reported


class LearnedTargets:
    """Learned facts about all targets; the least recently used ones are dropped."""

    def __init__(self) -> None:
        self._targets: OrderedDict[tuple[str, str, str], LearnedTarget] = OrderedDict()

    def get(self, provider: str, base_url: str, model: str) -> LearnedTarget:
        """Return the entry of one target, creating it if necessary."""
        key = (provider, base_url, model)
        learned = self._targets.get(key)
        if learned is None:
            learned = self._targets[key] = LearnedTarget()
        self._targets.move_to_end(key)
        if len(self._targets) > _MAX_TARGETS:
            self._targets.popitem(last=False)
        return learned

    def __len__(self) -> int:
        return len(self._targets)
