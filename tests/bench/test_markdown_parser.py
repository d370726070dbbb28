"""Our Markdown parser takes a part of the CPU time of markdown-it-py."""

import pytest

from tests.bench.markdown import GROWN, LIMIT, SIZES, LastBlock, answers, contestant, line, whole


@pytest.mark.parametrize("size", SIZES)
def test_our_parser_takes_a_part_of_the_time(size: int) -> None:
    measured = whole(size, rounds=2)
    if measured.ratio > LIMIT:  # another process may have disturbed it
        measured = whole(size)
    assert measured.ratio <= LIMIT, line(measured)


def test_answers_have_the_given_size_and_differ() -> None:
    found = answers(GROWN)
    assert {len(each) for each in found} == {GROWN}
    assert len(set(found)) == len(found)


def test_the_last_block_of_a_growing_text_is_found() -> None:
    md = "one\n\n- two\n- three\n\nfour"
    follow = LastBlock(contestant())
    assert [follow(md[:end]) for end in (3, 10, 18, len(md))] == [
        "one",
        "- two",
        "- two\n- three",
        "four",
    ]
