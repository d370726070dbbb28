"""Sans-IO: counters, histograms and gauges, independent of the format in which they are exported.

Each metric has a limited number of label combinations. Further ones are counted under `other`, so
that label values from outside cannot fill the memory or the monitoring system.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

MAX_SERIES = 500
"""Label combinations per metric."""

OTHER = "other"

Labels = tuple[str, ...]


class CounterMetric:
    """A counter: a number per label combination that only grows."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self._values: dict[Labels, float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        """Increment the counter by 1 or by `amount`."""
        known = self._values.get(labels)
        if known is None:
            labels = _limit_labels(self._values, labels)
            known = self._values.get(labels, 0)
        self._values[labels] = known + amount

    def read(self) -> Iterator[tuple[Labels, float]]:
        """Return the values by labels."""
        return iter(tuple(self._values.items()))


class _Series:
    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.total = 0.0


class HistogramMetric:
    """A histogram of durations: counts per bucket, and the sum of all durations."""

    def __init__(
        self, name: str, description: str, *labels: str, bounds: tuple[float, ...]
    ) -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self.bounds = bounds
        self._series: dict[Labels, _Series] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        """Record one duration; negative values, as after a clock change, count as zero."""
        series = self._series.get(labels)
        if series is None:
            labels = _limit_labels(self._series, labels)
            series = self._series.setdefault(labels, _Series(len(self.bounds)))
        seconds = max(0.0, seconds)
        series.counts[bisect_left(self.bounds, seconds)] += 1
        series.total += seconds

    def read(self) -> Iterator[tuple[Labels, tuple[int, ...], float]]:
        """Return by labels: the count of each bucket (not cumulative), and the sum of seconds."""
        for labels, series in tuple(self._series.items()):
            yield labels, tuple(series.counts), series.total


class GaugeMetric:
    """A gauge: name and labels of a value that is read on request."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name = name
        self.description = description
        self.labels = labels


GaugeReadings = Iterable[tuple[GaugeMetric, Mapping[Labels, float]]]


def _limit_labels(known: Mapping[Labels, object], labels: Labels) -> Labels:
    if len(known) < MAX_SERIES:
        return labels
    return (OTHER,) * len(labels)
