"""Sans-IO: what is learned of a model service by using it, shared by all conversations.

Nothing of it is stored: after a restart it is learned anew. Each entry takes constant memory.
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

_FIRST_BUCKET_SECONDS = 0.001  # seconds; the first bucket ends here
_BUCKET_GROWTH = 1.15
_BUCKETS = 112  # the last one ends at about an hour and a half
_MAX_SAMPLES = 1000.0

_MIN_CORRECTION = 0.5
_MAX_CORRECTION = 2.0
_DECAY = 0.8


class DurationHistogram:
    """How long something takes, as a histogram whose buckets grow by 15 % each.

    When it is full all counts are halved, so that the past weighs less and less.
    """

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0.0] * _BUCKETS
        self._total = 0.0

    @property
    def sample_count(self) -> float:
        """How many there are, the forgotten ones not counted."""
        return self._total

    def add(self, seconds: float) -> None:
        """Note one duration."""
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
        """Give a time within which at least `share` of all lie: never less, up to 15 % more."""
        wanted = self._total * share * (1 - 1e-12)  # halves add up to a little less than their sum
        below = 0.0
        for bucket, count in enumerate(self._counts):
            below += count
            if count and below >= wanted:
                return float(_FIRST_BUCKET_SECONDS * _BUCKET_GROWTH**bucket)
        return 0.0


class LearnedTarget:
    """What is learned of one model at one address. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.breaker = CircuitBreaker()
        self.context_window: int | None = (
            None  # tokens, as the service said when there were too many
        )
        self._unmarked_ends = 0
        self._no_stream_until: float | None = None
        self._first_token_times = DurationHistogram()
        self._gap_times: dict[str, DurationHistogram] = {}
        self._estimated_tokens = 0.0
        self._reported_tokens = 0.0

    @property
    def omits_end_marker(self) -> bool:
        """The service ends its texts without saying that they are over; never holds for calls."""
        return self._unmarked_ends >= _UNMARKED_ENDS_UNTIL_TRUSTED

    def record_unmarked_end(self) -> None:
        """Note that a text which ended without any last word was found to be whole."""
        self._unmarked_ends += 1

    def record_end_marker(self) -> None:
        """Note that the service did say that an answer was over."""
        self._unmarked_ends = 0

    def should_stream(self, now: float) -> bool:
        """Tell whether to ask for a stream."""
        return self._no_stream_until is None or now >= self._no_stream_until

    def record_no_streaming(self, now: float) -> None:
        """Note that the service did not stream; after ten minutes it is tried again."""
        self._no_stream_until = now + _NO_STREAMING_SECONDS

    def record_first_token(self, seconds: float) -> None:
        """Note how long it took until the model said anything."""
        self._first_token_times.add(seconds)

    def slow_first_token_seconds(self) -> float | None:
        """Give the time after which silence at the beginning is unusual; None: not known yet."""
        if self._first_token_times.sample_count < _FIRST_TOKEN_SAMPLES:
            return None
        return _FIRST_TOKEN_FACTOR * self._first_token_times.quantile(_FIRST_TOKEN_QUANTILE)

    def record_gap(self, kind: str, seconds: float) -> None:
        """Note a silence between two pieces of one kind."""
        gaps = self._gap_times.get(kind)
        if gaps is None:
            gaps = self._gap_times[kind] = DurationHistogram()
        gaps.add(seconds)

    def longest_gap_seconds(self, kind: str) -> float | None:
        """Give a silence that this service hardly ever reaches; None: not known yet."""
        gaps = self._gap_times.get(kind)
        if gaps is None or gaps.sample_count < _GAP_SAMPLES:
            return None
        return _GAP_FACTOR * gaps.quantile(_GAP_QUANTILE)

    @property
    def token_correction(self) -> float:
        """What to multiply an estimate of tokens by."""
        if not self._estimated_tokens:
            return 1.0
        ratio = self._reported_tokens / self._estimated_tokens
        return min(max(ratio, _MIN_CORRECTION), _MAX_CORRECTION)

    def record_token_count(self, estimated: int, reported: int) -> None:
        """Note how many input tokens a request had; long requests weigh more than short ones.

        `estimated` is without correction.
        """
        if estimated > 0 and reported > 0:
            self._estimated_tokens = self._estimated_tokens * _DECAY + estimated
            self._reported_tokens = self._reported_tokens * _DECAY + reported


class LearnedTargets:
    """What is learned of all targets; those that were not asked for longest are forgotten."""

    def __init__(self) -> None:
        self._targets: OrderedDict[tuple[str, str, str], LearnedTarget] = OrderedDict()

    def get(self, provider: str, base_url: str, model: str) -> LearnedTarget:
        """Give what is learned of one target, to be read and added to."""
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
