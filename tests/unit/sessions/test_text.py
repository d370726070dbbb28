"""Short texts for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.values.text import (
    blocks_of_lines,
    count_of,
    excerpt,
    format_minutes,
    format_seconds,
    format_span,
    format_time,
    shorten,
)


def test_a_number_comes_with_its_noun() -> None:
    assert [count_of(number, "running turn") for number in (0, 1, 2)] == [
        "0 running turns",
        "1 running turn",
        "2 running turns",
    ]


@pytest.mark.parametrize(
    ("text", "shortened", "on_one_line"),
    [
        ("", "", ""),
        ("words", "words", "words"),
        ("12345678", "12345678", "12345678"),
        ("123456789", "1234567…", "1234567…"),
        ("123456 89", "123456 …", "123456…"),
        ("a\nb  c", "a\nb  c", "a b c"),
        (" a   b   c ", " a   b …", "a b c"),
    ],
)
def test_a_long_text_ends_with_an_ellipsis(text: str, shortened: str, on_one_line: str) -> None:
    assert shorten(text, 8) == shortened
    assert excerpt(text, 8) == on_one_line


@given(st.text(), st.integers(1, 20))
def test_a_shortened_text_is_a_beginning_within_the_limit(text: str, limit: int) -> None:
    for shown, whole in (
        (shorten(text, limit), text),
        (excerpt(text, limit), " ".join(text.split())),
    ):
        assert len(shown) <= limit
        assert shown == whole or (whole.startswith(shown[:-1]) and shown[-1] == "…")
        assert (shown == whole) == (len(whole) <= limit) or whole.endswith("…")


def test_times_are_in_utc_to_the_second_or_minute() -> None:
    assert format_time(1_795_132_472_999) == "2026-11-19 23:54:32"
    assert format_time(1_795_132_472_999, seconds=False) == "2026-11-19 23:54"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.6, "1 s"),
        (119, "119 s"),
        (119.5, "2 min"),
        (120, "2 min"),
        (7_139, "119 min"),
        (7_199, "2 h"),
        (169_200, "47 h"),
        (172_800, "2 days"),
        (864_000, "10 days"),
    ],
)
def test_a_span_is_rounded_to_its_largest_unit(seconds: float, words: str) -> None:
    assert format_span(seconds) == words


def test_a_span_without_days_is_in_hours() -> None:
    assert format_span(172_800, days=False) == "48 h"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "less than a minute"),
        (59, "less than a minute"),
        (60, "1 min"),
        (3600, "1 h"),
        (12_000, "3 h 20 min"),
        (86_399, "23 h 59 min"),
    ],
)
def test_a_span_to_the_minute_has_hours_and_minutes(seconds: int, words: str) -> None:
    assert format_minutes(seconds) == words


@given(st.floats(0, 10**6))
def test_a_span_to_the_second_is_rounded_down(seconds: float) -> None:
    minutes, _, rest = format_seconds(seconds).rpartition(" min ")
    whole = int(minutes or 0) * 60 + int(rest.removesuffix(" s"))
    assert whole <= seconds < whole + 1


@given(st.text(alphabet="ab\n", max_size=60), st.integers(1, 10))
def test_blocks_of_lines_are_the_text_cut_after_line_breaks(text: str, size: int) -> None:
    blocks = list(blocks_of_lines(text, size))
    assert "".join(blocks) == text
    assert all(block.endswith("\n") for block in blocks[:-1])
    assert all(len(block) >= size for block in blocks[:-1])
    assert all("\n" not in block[size - 1 : -1] for block in blocks)
