"""Sans-IO: numbers that grow while the daemon works, and what each of them means.

Nothing here knows who reads them. Each name takes a limited number of labels: what comes after
that is counted under `other`, so that no stranger can fill the memory or a monitoring system.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping

MAX_SERIES = 500
"""Combinations of labels of one name."""

OTHER = "other"

Labels = tuple[str, ...]


class CounterMetric:
    """Something that only grows."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self._values: dict[Labels, float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        """It happened once more, or so many times."""
        known = self._values.get(labels)
        if known is None:
            labels = _limit_labels(self._values, labels)
            known = self._values.get(labels, 0)
        self._values[labels] = known + amount

    def read(self) -> Iterator[tuple[Labels, float]]:
        """List how often it happened, by labels."""
        return iter(tuple(self._values.items()))


class _Series:
    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.total = 0.0


class HistogramMetric:
    """How long something took: how often up to each of some bounds, and all together."""

    def __init__(
        self, name: str, description: str, *labels: str, bounds: tuple[float, ...]
    ) -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self.bounds = bounds
        self._series: dict[Labels, _Series] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        """It took so long once more; a clock that was set back makes no time negative."""
        series = self._series.get(labels)
        if series is None:
            labels = _limit_labels(self._series, labels)
            series = self._series.setdefault(labels, _Series(len(self.bounds)))
        seconds = max(0.0, seconds)
        series.counts[bisect_left(self.bounds, seconds)] += 1
        series.total += seconds

    def read(self) -> Iterator[tuple[Labels, tuple[int, ...], float]]:
        """List by labels: how often up to each bound but not the one before, and all seconds."""
        for labels, series in tuple(self._series.items()):
            yield labels, tuple(series.counts), series.total


class GaugeMetric:
    """Something that is read when somebody asks."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name = name
        self.description = description
        self.labels = labels


def _limit_labels(known: Mapping[Labels, object], labels: Labels) -> Labels:
    if len(known) < MAX_SERIES:
        return labels
    return (OTHER,) * len(labels)
