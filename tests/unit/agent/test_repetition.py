import base64
import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.repetition import RepetitionDetector

PARAGRAPH = (
    "Let me check the configuration once more. The timeout is read when the service starts, so "
    "the value in the file must be right. I will now look at the file again to be sure of it.\n\n"
)
INTRO = "# What went wrong\n\nThe service did not start because a key was missing"


def watched(text: str, size: int = 7) -> tuple[int | None, int]:
    """Feed a text in pieces; return the result and the number of characters fed by then."""
    watch = RepetitionDetector()
    for start in range(0, len(text), size):
        found = watch.feed(text[start : start + size])
        if found is not None:
            return found, start + size
    return None, len(text)


def words(count: int, seed: int = 1) -> str:
    chance = random.Random(seed)  # noqa: S311 - deterministic
    known = ["alpha", "beta", "gamma", "delta", "omega", "sigma", "theta", "kappa", "zeta"]
    return " ".join(chance.choice(known) for _ in range(count))


@pytest.mark.parametrize(
    ("before", "block", "noticed_at"),
    [
        pytest.param("", PARAGRAPH, 8192, id="at the beginning"),
        pytest.param(INTRO, PARAGRAPH, 12_288, id="after an introduction"),
        pytest.param(words(900), PARAGRAPH, 16_384, id="after a page"),
        pytest.param(words(40_000), PARAGRAPH, None, id="after a book"),
        pytest.param(INTRO, "x" * 59 + "y", 12_288, id="shortest block"),
        pytest.param(INTRO, words(300, 2)[:1500] + "|", 12_288, id="long block"),
        pytest.param(INTRO, words(700, 3)[:3275] + "|", 20_480, id="longest block"),
        pytest.param(INTRO, "=" * 100 + words(40), 12_288, id="block with a horizontal rule"),
        pytest.param(INTRO, words(40) + "=" * 200, 12_288, id="block ending in a horizontal rule"),
        pytest.param(INTRO, '{\\"path\\": \\"a/b\\"}\\n' + words(20), 12_288, id="in arguments"),
        pytest.param(INTRO, "🙂" * 3 + "é" + words(20), 12_288, id="non-ASCII block"),
    ],
)
def test_a_repeated_block_is_removed_including_its_first_occurrence(
    before: str, block: str, noticed_at: int | None
) -> None:
    found, fed = watched(before + block * (30_000 // len(block)))
    assert found == len(before)
    if noticed_at is not None:
        assert noticed_at <= fed < noticed_at + 7


@pytest.mark.parametrize("shift", [0, 1, 13, 100])
def test_a_loop_is_found_at_any_position_within_the_block(shift: int) -> None:
    text = (INTRO + PARAGRAPH * 200)[: 12_288 + shift]
    assert watched(text)[0] == len(INTRO)


def test_punctuation_before_the_loop_is_kept() -> None:
    assert watched(INTRO + ".\n\n" + PARAGRAPH * 100)[0] == len(INTRO + ".\n\n")


def test_a_repeated_block_of_punctuation_is_removed() -> None:
    block = "." * 40 + " " * 30 + "\n"
    assert watched(INTRO + block * 300)[0] == len(INTRO)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("ha " * 10_000, id="a short phrase"),
        pytest.param("=" * 50_000, id="horizontal rule"),
        pytest.param("| 0 | 0 | 0 |\n" * 3000, id="equal rows of a table"),
        pytest.param("x" * 58 + "\n", id="one short line"),
        pytest.param(("x" * 58 + "\n") * 1000, id="repeated lines just too short"),
        pytest.param(words(8000), id="words"),
        pytest.param(base64.b64encode(words(6000).encode()).decode(), id="base64"),
        pytest.param("".join(f"| {n:6} | {'ab' * 30} |\n" for n in range(600)), id="numbered rows"),
        pytest.param((PARAGRAPH * 40)[:8191], id="one character less than half a window"),
        pytest.param(words(3000) + PARAGRAPH * 20, id="loop shorter than the minimum"),
        pytest.param((words(900, 4)[:4000] + "|") * 20, id="too few blocks"),
        pytest.param((words(700, 3)[:3276] + "|") * 20, id="a block just too long"),
        pytest.param((PARAGRAPH * 40)[:8000] + words(6000), id="a loop that ended"),
    ],
)
def test_texts_without_a_loop_pass(text: str) -> None:
    assert watched(text)[0] is None


def test_a_detected_loop_stays_detected() -> None:
    watch = RepetitionDetector()
    assert watch.feed(PARAGRAPH * 100) == 0
    assert watch.feed(words(9000)) == 0


def smallest_period(text: str) -> int:
    """Reference implementation: the period from the longest border of every prefix."""
    borders = [0]
    for at in range(1, len(text)):
        border = borders[-1]
        while border and text[border] != text[at]:
            border = borders[border - 1]
        borders.append(border + (text[border] == text[at]))
    return len(text) - borders[-1]


@given(
    st.text("ab .", max_size=300),
    st.text("ab .", min_size=1, max_size=6),
    st.integers(1, 60),
    st.text("ab", min_size=1, max_size=100),
    st.integers(8192, 13_000),
)
def test_loops_are_found_exactly_where_they_exist(
    before: str, piece: str, times: int, rest: str, size: int
) -> None:
    block = piece * times + rest
    looped = (block * (size // len(block) + 1))[:size]
    period = smallest_period(looped)
    text = before + looped + looped[-period:] * (5000 // period + 1)
    found, _ = watched(text, 4096)
    if period < 60:
        assert found is None
    else:
        assert found is not None
        # The text before may match by chance, and punctuation before the loop is kept.
        assert len(before) - len(block) <= found <= len(before) + len(block)
        for start in (found, found + 1000):
            assert text[start : start + 3000] == text[start + period : start + period + 3000]


@given(st.lists(st.integers(0, 30_000), max_size=30), st.booleans())
def test_the_result_does_not_depend_on_how_the_text_is_split(cuts: list[int], loops: bool) -> None:
    text = INTRO + (PARAGRAPH * 120 if loops else words(4000))
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    watch = RepetitionDetector()
    found = None
    for start, end in itertools.pairwise(edges):
        found = watch.feed(text[start:end])
    assert found == (len(INTRO) if loops else None)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 5_000_000, id="one character"),
        pytest.param(("a" * 4095 + "b") * 1220, id="nearly one character"),
        pytest.param(("a" * 3000 + "b" + "a" * 2000 + "c") * 1000, id="nearly a period"),
        pytest.param(words(800_000), id="words"),
    ],
)
def test_megabytes_are_checked_faster_than_they_arrive(text: str) -> None:
    watch = RepetitionDetector()
    begun = time.process_time()
    for start in range(0, len(text), 40):
        assert watch.feed(text[start : start + 40]) is None
    assert time.process_time() - begun < 2.0
