"""Counters and histograms, and their limit on label combinations."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.metric_types import MAX_SERIES, OTHER, CounterMetric, HistogramMetric

BOUNDS = (0.1, 1, 10)


def test_counter_counts_by_labels() -> None:
    count = CounterMetric("holdfast_x_total", "", "platform", "result")
    count.add("slack", "sent")
    count.add("slack", "sent", amount=2.5)
    count.add("slack", "rejected")
    assert dict(count.read()) == {("slack", "sent"): 3.5, ("slack", "rejected"): 1}


def test_labels_beyond_the_limit_are_counted_as_other() -> None:
    count = CounterMetric("holdfast_x_total", "", "platform", "result")
    spread = HistogramMetric("holdfast_x_seconds", "", "platform", bounds=BOUNDS)
    for number in range(MAX_SERIES + 5):
        count.add(str(number), "sent")
        spread.observe(1, str(number))
    count.add("0", "sent")
    counted = dict(count.read())
    assert len(counted) == MAX_SERIES + 1
    assert counted[OTHER, OTHER] == 5
    assert counted["0", "sent"] == 2
    assert len(list(spread.read())) == MAX_SERIES + 1


@given(st.lists(st.floats(-5, 100) | st.sampled_from(BOUNDS)))
def test_durations_fall_into_the_right_bucket(times: list[float]) -> None:
    spread = HistogramMetric("holdfast_x_seconds", "", bounds=BOUNDS)
    for each in times:
        spread.observe(each)
    positive = [max(0.0, each) for each in times]
    found = list(spread.read())
    if not times:
        assert not found
        return
    ((labels, numbers, total),) = found
    edges = (float("-inf"), *BOUNDS, float("inf"))
    expected = [sum(low < each <= high for each in positive) for low, high in pairwise(edges)]
    assert (labels, list(numbers)) == ((), expected)
    assert abs(total - sum(positive)) < 1e-6
