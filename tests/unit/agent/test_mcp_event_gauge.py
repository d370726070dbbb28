"""Measurement of event streams of MCP servers, which are read slowly if they contain garbage."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.mcp.http_client import EventGauge, event_pause_seconds

EVENTS = b'event: message\ndata: {"id":1}\n\n: ping\n\ndata:{"id":2}\n\ndata: rain\n\n'


@pytest.mark.parametrize(
    ("chunks", "lines", "useless"),
    [
        ([b'data: {"id":1}\n\n'], 2, 0),
        ([b'data:{"id":1}\n\n'], 2, 0),
        ([b"data: {" + b"x" * 1_000, b"y" * 1_000 + b"\n\n"], 2, 0),
        ([b"data: " + b"x" * 1_000, b"y" * 1_000 + b"\n\n"], 2, 2_006),
        ([b": ping\n\n"], 2, 6),
        ([b"data: {}\r\n\r\n"], 2, 1),
        ([b"data: {}\r\r"], 2, 0),
        ([b"\n\n\ndata: {}\n\n"], 5, 0),
    ],
)
def test_lines_and_useless_bytes_are_counted(chunks: list[bytes], lines: int, useless: int) -> None:
    gauge = EventGauge()
    counts = [gauge.measure(chunk) for chunk in chunks]
    assert (sum(each[0] for each in counts), sum(each[1] for each in counts)) == (lines, useless)


@given(st.lists(st.integers(0, len(EVENTS)), max_size=4))
def test_lines_are_counted_alike_however_they_are_cut(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(EVENTS)]
    gauge, whole = EventGauge(), EventGauge()
    pieces = [EVENTS[start:end] for start, end in pairwise(ends)]
    assert sum(gauge.measure(piece)[0] for piece in pieces) == whole.measure(EVENTS)[0]


@pytest.mark.parametrize(
    ("lines", "useless", "seconds"), [(0, 0, 0.0), (2_000, 10, 1.0), (2, 2 * 1024 * 1024, 2.0)]
)
def test_garbage_is_read_slowly(lines: int, useless: int, seconds: float) -> None:
    assert event_pause_seconds(lines, useless) == seconds
