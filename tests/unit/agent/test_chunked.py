"""The decoder for plain chunks, with h11 as the HTTP client for the rest of a body."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.providers.transport.chunked import ChunkedDecoder

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

datas = st.binary(min_size=1, max_size=40)
plain = datas.map(lambda data: b"%x\r\n%b\r\n" % (len(data), data))
odd = st.sampled_from(
    [
        *(b"A\r\n0123456789\r\n", b"003\r\nabc\r\n", b"3;name=value\r\nabc\r\n", b"3 \r\nabc\r\n"),
        *(
            b"3\r\nabcX",
            b"3\r\nabc\n",
            b"3\nabc\n",
            b"\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"0x3\r\nabc\r\n",
        ),
        *(
            b"0\r\n\r\n",
            b"0\r\na: b\r\n\r\n",
            b"00\r\n\r\n",
            b"f" * 30 + b"\r\n",
            b"ffffffffffffffff",
        ),
    ]
)
wires = st.lists(plain | odd, max_size=8).map(b"".join)


def by_the_client(pieces: Iterable[bytes], *, over: bool) -> tuple[bytes, str]:
    """Return the body as h11 decodes it, and its end."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "model")]))
    client.send(h11.EndOfMessage())
    client.receive_data(HEAD)
    body = b""
    coming = iter([*pieces, *([b""] if over else [])])
    try:
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                if (piece := next(coming, None)) is None:
                    return body, "more to come"
                client.receive_data(piece)
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.Response):
                return body, "whole"
    except h11.RemoteProtocolError:
        return body, "broken"


def by_us(pieces: Sequence[bytes], *, over: bool) -> tuple[bytes, str]:
    """Return the same when h11 gets only the part that the decoder leaves to it."""
    chunks, body = ChunkedDecoder(), b""
    for number, piece in enumerate(pieces):
        body += chunks.feed(piece)
        if chunks.rest is not None:
            rest, how = by_the_client([chunks.rest, *pieces[number + 1 :]], over=over)
            return body + rest, how
    return body, "broken" if over else "more to come"


@given(wires, st.lists(st.integers(0, 200), max_size=6), st.booleans())
@example(wire=b"5\r\nhello\r\n0\r\n\r\n", cuts=[1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14], over=False)
def test_a_body_is_decoded_as_by_h11(wire: bytes, cuts: list[int], over: bool) -> None:
    places = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    pieces = [wire[start:end] for start, end in pairwise(places)]
    body, how = by_us(pieces, over=over)
    expected, expected_how = by_the_client([wire] if wire else [], over=over)
    assert how == expected_how
    assert body == expected


def test_chunks_in_one_read_are_joined_and_partial_chunks_are_returned_at_once() -> None:
    chunks = ChunkedDecoder()
    assert chunks.feed(b"5\r\nhello\r\n6\r\n world\r\n5\r\n, yo") == b"hello world, yo"
    assert chunks.feed(b"u\r\n") == b"u"
    assert chunks.feed(b"1") == chunks.feed(b"0\r") == chunks.feed(b"\n") == b""
    assert chunks.feed(b"x") == b"x"  # although the chunk is incomplete
    assert chunks.rest is None


@pytest.mark.parametrize("last", [b"0\r\n\r\n", b"0\r\na: b\r\n\r\n", b"3;a=b\r\nabc\r\n"])
def test_anything_but_a_plain_chunk_is_left_to_the_client(last: bytes) -> None:
    chunks = ChunkedDecoder()
    assert chunks.feed(b"2\r\nhi\r\n" + last + b"and more") == b"hi"
    assert chunks.rest == last + b"and more"
