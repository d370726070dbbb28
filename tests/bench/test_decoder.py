"""Our decoding says what the SDKs' iterators say, and takes a part of their time."""

import pytest

from tests.bench.corpus import PIECES, Recording, as_received, recordings
from tests.bench.decoder import LIMITS, both_say, line, measure
from tests.fakes.dialects.steps import PROTOCOLS

ALL = [each for protocol in PROTOCOLS for each in recordings(protocol)]
IDS = [f"{each.protocol}-{each.name}" for each in ALL]
each_recording = pytest.mark.parametrize("recording", ALL, ids=IDS)


@each_recording
async def test_both_say_the_same_piece_by_piece(recording: Recording) -> None:
    ours, theirs = await both_say(recording)
    assert ours == theirs
    pieces, usage = ours
    assert len(pieces) > PIECES
    assert usage == (40, 900)


@each_recording
async def test_ours_takes_a_part_of_the_time(recording: Recording) -> None:
    measured = await measure(recording, rounds=2)
    if measured.ratio > LIMITS[recording.protocol]:  # a neighbour may have disturbed it
        measured = await measure(recording, rounds=9)
    assert measured.ratio <= LIMITS[recording.protocol], line(measured)


@each_recording
def test_the_reads_are_like_those_of_a_socket(recording: Recording) -> None:
    reads = as_received(recording.body)
    assert b"".join(reads) == recording.body
    assert any(not read.endswith(b"\n\n") for read in reads[:-1])
    assert any(read.count(b"\n\n") > 1 for read in reads)
    assert all(0 < len(read) <= 1448 for read in reads)
