"""Writes what is counted in the form that Prometheus reads.

The library is imported when somebody asks for the first time: most installations are never asked.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from gateway.observe.metric_types import Count, Labels, Level, Spread
from gateway.observe.metrics import Ledger

CONTENT_TYPE = CONTENT_TYPE_LATEST

Levels = Iterable[tuple[Level, Mapping[Labels, float]]]


class Exposition:
    """The page of all figures."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(namespace="holdfast", registry=self._process)

    def write(self, levels: Levels) -> bytes:
        """Write everything; `levels` are what was read just now."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(self._ledger, levels))
        return generate_latest(registry) + generate_latest(self._process)


class _Collected(Collector):
    def __init__(self, ledger: Ledger, levels: Levels) -> None:
        self._ledger = ledger
        self._levels = levels

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from map(_count, self._ledger.counts)
        yield from map(_spread, self._ledger.spreads)
        for level, values in self._levels:
            yield _level(level, values)


def _count(count: Count) -> Metric:
    family = CounterMetricFamily(count.name, count.about, labels=count.labels)
    for labels, value in count.read():
        family.add_metric(labels, value)
    return family


def _spread(spread: Spread) -> Metric:
    family = HistogramMetricFamily(spread.name, spread.about, labels=spread.labels)
    for labels, numbers, total in spread.read():
        family.add_metric(labels, list(_buckets(spread.bounds, numbers)), total)
    return family


def _buckets(bounds: Iterable[float], numbers: Iterable[int]) -> Iterator[tuple[str, Any]]:
    """Each bucket counts all that is below it as well."""
    sofar = 0
    for bound, number in zip((*map(float, bounds), "+Inf"), numbers, strict=True):
        sofar += number
        yield str(bound), sofar


def _level(level: Level, values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(level.name, level.about, labels=level.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
