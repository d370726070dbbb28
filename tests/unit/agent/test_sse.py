import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.providers.transport.sse import EventTooLong, SseComment, SseEvent, SseReader


def read(*pieces: bytes) -> list[SseEvent | SseComment]:
    reader = SseReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


def data(*texts: str) -> list[SseEvent]:
    return [SseEvent("", text.encode()) for text in texts]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", data("a", "b"), id="two events"),
        pytest.param(b"data:a\n\n", data("a"), id="no space after the colon"),
        pytest.param(b"data:  a\n\n", data(" a"), id="only one space is dropped"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", data("a", "b"), id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", data("a", "b"), id="CR alone"),
        pytest.param(b"data: a\ndata: b\n\n", data("a\nb"), id="data over two lines"),
        pytest.param(b"data\ndata: b\n\n", data("\nb"), id="a field without colon is empty"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", data("a"), id="byte order mark"),
        pytest.param(b"data: a", data("a"), id="the end without any line end"),
        pytest.param(b"data: a\n", data("a"), id="the end without a blank line"),
        pytest.param(b"\n\n\ndata: a\n\n\n\n", data("a"), id="blank lines without an event"),
        pytest.param(b": ping\n\ndata: a\n\n", [SseComment(), *data("a")], id="comment"),
        pytest.param(
            b"event: x\n\n", [SseComment()], id="an event without data counts as a comment"
        ),
        pytest.param(b"event: error\ndata: a\n\n", [SseEvent("error", b"a")], id="named"),
        pytest.param(
            b"event: x\ndata: a\n\ndata: b\n\n",
            [SseEvent("x", b"a"), SseEvent("", b"b")],
            id="a name applies to one event",
        ),
        pytest.param(b"id: 7\nretry: 9\ndata: a\n\n", data("a"), id="other fields are ignored"),
        pytest.param("data: ä€\n\n".encode(), data("ä€"), id="multi-byte characters"),
        pytest.param(
            "data: a\u2028b\x0bc\n\n".encode(),
            data("a\u2028b\x0bc"),
            id="other line separators do not end a line",
        ),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_a_stream_is_parsed(stream: bytes, events: list[SseEvent | SseComment]) -> None:
    assert read(stream) == events


STREAM = (
    '\ufeffdata: {"a": "äö€"}\r\n\r\n: ping\n\nevent: error\ndata:x\ndata: y\n\n'
    "data: last\rdata: more\r\r\n\n: c\r\ndata: torn"
).encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_events_do_not_depend_on_how_the_stream_is_split(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert read(*pieces) == read(STREAM)


def test_byte_by_byte_gives_the_same_events() -> None:
    assert read(*(bytes([byte]) for byte in STREAM)) == read(STREAM)


def test_a_line_of_a_megabyte_in_small_reads_is_one_event() -> None:
    line = b"x" * 1_000_000
    stream = b"data: " + line + b"\n\n"
    pieces = [stream[at : at + 100] for at in range(0, len(stream), 100)]
    assert read(*pieces) == [SseEvent("", line)]


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(EventTooLong):
        read(*[b"x" * 8_000_000] * 6)


def test_the_size_limit_applies_to_single_events() -> None:
    reader = SseReader()
    event = b"data: " + b"x" * 8_000_000 + b"\n\n"
    assert sum(len(reader.feed(event)) for _ in range(6)) == 6
