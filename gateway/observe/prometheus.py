"""Rendering of the metrics in Prometheus text format.

This module is imported on the first request of `/metrics`, because most installations never use
the library.
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

from gateway.observe.metric_types import (
    CounterMetric,
    GaugeMetric,
    GaugeReadings,
    HistogramMetric,
    Labels,
)
from gateway.observe.metrics import Metrics


class PrometheusPage:
    """Renderer of the page with all metrics."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._process_registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(namespace="holdfast", registry=self._process_registry)

    def render(self, gauges: GaugeReadings) -> bytes:
        """Return the page with all metrics; `gauges` are the current readings."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_MetricsCollector(self._metrics, gauges))
        return generate_latest(registry) + generate_latest(self._process_registry)


class _MetricsCollector(Collector):
    def __init__(self, metrics: Metrics, gauges: GaugeReadings) -> None:
        self._metrics = metrics
        self._gauges = gauges

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from map(_counter_family, self._metrics.counters)
        yield from map(_histogram_family, self._metrics.histograms)
        for gauge, values in self._gauges:
            yield _gauge_family(gauge, values)


def _counter_family(counter: CounterMetric) -> Metric:
    family = CounterMetricFamily(counter.name, counter.description, labels=counter.labels)
    for labels, value in counter.read():
        family.add_metric(labels, value)
    return family


def _histogram_family(histogram: HistogramMetric) -> Metric:
    family = HistogramMetricFamily(histogram.name, histogram.description, labels=histogram.labels)
    for labels, numbers, total in histogram.read():
        family.add_metric(labels, list(_cumulative_buckets(histogram.bounds, numbers)), total)
    return family


def _cumulative_buckets(
    bounds: Iterable[float], counts: Iterable[int]
) -> Iterator[tuple[str, Any]]:
    """Yield the cumulative count of each bucket, as Prometheus expects."""
    total = 0
    for bound, number in zip((*map(float, bounds), "+Inf"), counts, strict=True):
        total += number
        yield str(bound), total


def _gauge_family(gauge: GaugeMetric, values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(gauge.name, gauge.description, labels=gauge.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
