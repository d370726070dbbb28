import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from platforms.core.contract import Unit
from platforms.core.markdown import has_open_fence
from platforms.core.split import IncrementalSplitter, split, split_pieces, text_length
from tests.unit.platforms.core.samples import SAMPLES

LIMITS = [50, 200, 2000, 12000]

_CHUNKS = st.sampled_from(
    [
        *("word ", "word", " ", "\n", "\n\n", "\t", "```", "```py\n", "\n```\n", "~~~", "\n~~~\n"),
        *("`", "**", "~~", "||", "\\", "    ", "- item\n", "| a | b |\n", "x" * 30, "y" * 70),
        *(
            "👨‍👩‍👧‍👦",
            "🇩🇪",
            "👍🏽",
            "e\u0301",
            "\r\n",
            "Zeile für Zeile ",
            "漢字" * 20,
            "\ud83d",
            "``` a ` b ",
        ),
    ]
)
markdown = st.lists(_CHUNKS, max_size=60).map("".join)


def _check(md: str, limit: int, unit: Unit) -> None:
    parts = split(md, limit, unit)
    assert all(text_length(part, unit) <= limit for part in parts)
    assert all(part.strip() for part in parts)
    assert not any(has_open_fence(part) for part in parts)
    # Only blank space and closing lines that are added anyway may be lost.
    found = split_pieces(md, limit, unit)
    assert all(not re.sub("```+|~~~+", "", piece.gap).strip() for piece in found)
    kept = "".join(piece.text + piece.gap for piece in found)
    md = md.replace("\r\n", "\n").replace("\r", "\n")
    assert md.endswith(kept)
    assert not md[: len(md) - len(kept)].strip()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_cut_within_the_limit_without_loss(
    name: str, unit: Unit, limit: int
) -> None:
    _check(SAMPLES[name], limit, unit)


@given(markdown, st.sampled_from(LIMITS), st.sampled_from(Unit))
@settings(max_examples=300, deadline=None)
@example("~~~ ~~\n" + "y" * 90, 50, Unit.CHARACTERS)
@example("```" + "x" * 40 + "\n```\n" + "y" * 60, 50, Unit.CHARACTERS)
def test_any_text_is_cut_within_the_limit_without_loss(md: str, limit: int, unit: Unit) -> None:
    _check(md, limit, unit)


@given(st.text(max_size=400), st.sampled_from(Unit))
@settings(max_examples=200, deadline=None)
def test_text_of_any_script_is_cut_within_the_limit(md: str, unit: Unit) -> None:
    _check(md, 50, unit)


def test_a_short_text_is_unchanged() -> None:
    assert split("Hello *you*\n\nand you", 2000) == ("Hello *you*\n\nand you",)


def test_a_blank_text_yields_no_message() -> None:
    assert split(" \n\t\n", 2000) == ()


def test_a_cut_is_made_between_paragraphs_rather_than_lines_or_words() -> None:
    first = "one two\nthree four five six seven eight nine"
    assert split(f"{first}\n\nten eleven\ntwelve", 60) == (first, "ten eleven\ntwelve")


def test_a_cut_is_made_between_lines_rather_than_words() -> None:
    assert split("a b c d e f g h i j k l m n o p\nq r s t u v w x y z 1 2 3 4 5 6", 50) == (
        "a b c d e f g h i j k l m n o p",
        "q r s t u v w x y z 1 2 3 4 5 6",
    )


def test_a_long_line_is_cut_between_words() -> None:
    assert split("alpha " * 20, 50) == (
        ("alpha " * 8).strip(),
        ("alpha " * 8).strip(),
        ("alpha " * 4).strip(),
    )


def test_a_cut_code_block_is_closed_and_opened_again_with_its_language() -> None:
    lines = [f"line {n:02}" for n in range(12)]
    parts = split("```python\n" + "\n".join(lines) + "\n```", 80)
    assert parts == (
        "```python\n" + "\n".join(lines[:8]) + "\n```",
        "```python\n" + "\n".join(lines[8:]) + "\n```",
    )


def test_a_code_block_that_fits_moves_to_the_next_message_uncut() -> None:
    intro, block = "Some words that stand before the block.", "```\n" + "code\n" * 6 + "```"
    assert split(f"{intro}\n{block}", 60) == (intro, block)


def test_a_closing_line_at_the_border_opens_no_empty_block() -> None:
    body = "\n".join("x" * 9 for _ in range(4))
    parts = split(f"```\n{body}\n```\nafterwards there is more text", 50)
    assert parts == (f"```\n{body}\n```", "afterwards there is more text")


def test_an_unclosed_code_block_is_closed_at_the_end() -> None:
    assert split("```js\nlet x = 1;\n", 2000) == ("```js\nlet x = 1;\n```",)


def test_indentation_and_blank_lines_of_code_are_kept_at_a_cut() -> None:
    block = "```\n" + "\n".join(["    a" * 4, "", "    b" * 4, "", "    c" * 4]) + "\n```"
    found = split_pieces(block, 60)
    assert len(found) == 2
    assert "".join(piece.text + piece.gap for piece in found) == block


def test_inline_marks_open_no_block_when_a_cut_moves_them_to_the_line_start() -> None:
    first, second = split("word " * 10 + "```not a block```", 50)
    assert (first, second) == (("word " * 10).strip(), "```not a block```")
    first, second = split("x" * 47 + " ~~~ and so on and on", 50)
    assert second.endswith("~~~ and so on and on")
    assert not has_open_fence(second)


def test_a_cut_line_does_not_become_a_block() -> None:
    md = "Words that stand in front of it.\n``` one two three four ` five six seven eight nine"
    assert split(md, 50) == (
        "Words that stand in front of it.",
        "``` one two three four ` five six seven eight nine",
    )
    assert not any(has_open_fence(part) for part in split(md.replace("four", "four " * 9), 60))


def test_an_opening_line_stays_with_its_fence() -> None:
    parts = split(
        "Words in front.\n```averylonglanguagenamethatneverends" + "x" * 20 + "\ncode\n```", 60
    )
    assert parts[0] == "Words in front."
    assert not any(has_open_fence(part) for part in parts)


@pytest.mark.parametrize("sign", ["👨‍👩‍👧‍👦", "🇩🇪", "👍🏽", "e\u0301"])
def test_no_grapheme_is_split(sign: str) -> None:
    for part in split(sign * 100, 50, Unit.UTF16):
        assert part == sign * (len(part) // len(sign))


@pytest.mark.parametrize(
    ("unit", "expected"), [(Unit.CHARACTERS, 3), (Unit.UTF16, 4), (Unit.BYTES, 7)]
)
def test_length_is_measured_in_the_unit_of_the_platform(unit: Unit, expected: int) -> None:
    assert text_length("aé😀", unit) == expected


@pytest.mark.parametrize("name", ["prose", "long code", "one long line", "no border", "table"])
def test_all_messages_but_the_last_stay_unchanged_while_the_text_grows(name: str) -> None:
    md = SAMPLES[name][:1500]
    whole = split(md, 200)
    for length in range(1, len(md), 7):
        settled = split(md[:length], 200)[:-1]
        assert settled == whole[: len(settled)]


@pytest.mark.process
@given(
    st.lists(markdown.filter(len), min_size=1, max_size=12),
    st.sampled_from(LIMITS[:2]),
    st.sampled_from(Unit),
)
@settings(max_examples=300, deadline=None)
@example(["```word " + "漢字" * 60, "漢字" * 20, "```"], 50, Unit.CHARACTERS)
@example(["```word word word " + "x" * 30 + "\n```\n```word " + "漢字" * 19, "```"], 50, Unit.BYTES)
def test_a_growing_text_is_cut_like_a_complete_one(news: list[str], limit: int, unit: Unit) -> None:
    growing, md = IncrementalSplitter(), ""
    for new in news:
        md += new
        assert growing.split(md, limit, unit) == split_pieces(md, limit, unit)


def test_a_limit_too_small_to_cut_well_is_refused() -> None:
    with pytest.raises(ValueError, match="give 50"):
        split("text", 49)


@pytest.mark.parametrize(
    ("md", "expected"),
    [
        (
            "|a|b|\n|-|-|\n| one one one one | 1 |\n| two two two two | 2 |\n| three | 3 |",
            (
                "|a|b|\n|-|-|\n| one one one one | 1 |",
                "|a|b|\n|-|-|\n| two two two two | 2 |\n| three | 3 |",
            ),
        ),
        (
            "Words above a table that is cut off.\n| a | b |\n|---|---|\n| 1 | 2 |",
            ("Words above a table that is cut off.", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ),
        (
            "1. " + "one " * 9 + "\n   - " + "in " * 12 + "\n   - " + "on " * 11 + "on\n2. two",
            (
                "1. " + ("one " * 9).strip(),
                "- " + ("in " * 12).strip(),
                "- " + ("on " * 12).strip() + "\n\n2. two",
            ),
        ),
        (
            "> " + "quoted " * 9,
            ("> " + ("quoted " * 7).strip(), "> " + ("quoted " * 2).strip()),
        ),
        (
            "> ```py\n> " + "a" * 30 + "\n> " + "b" * 30 + "\n> ```\n\nafter",
            ("> ```py\n> " + "a" * 30 + "\n> ```", "> ```py\n> " + "b" * 30 + "\n> ```", "after"),
        ),
        (
            "- ```py\n  " + "a" * 30 + "\n  " + "b" * 30 + "\n  ```\n- next",
            ("- ```py\n  " + "a" * 30 + "\n```", "```py\n" + "b" * 30 + "\n```", "- next"),
        ),
        (
            "Some words, and a [link to a page](https://example.org) here",
            ("Some words, and a", "[link to a page](https://example.org) here"),
        ),
        (
            "Some more words, and then **bold words that go on** here",
            ("Some more words, and then", "**bold words that go on** here"),
        ),
        (
            "Some more words here, and then `code that goes on for long`",
            ("Some more words here, and then", "`code that goes on for long`"),
        ),
        (
            "x" * 20 + " it is known that 17 is larger than 3 but 5 > 3 and on",
            ("x" * 20 + " it is known that 17 is larger", "than 3 but 5 > 3 and on"),
        ),
        (
            "- " + "one " * 5 + "one\n> Title of the text\n> --------\nand more",
            ("- " + "one " * 5 + "one", "> Title of the text\n> --------\nand more"),
        ),
        (
            "- a\n  - b\n    > " + "quoted " * 9 + "\n    > end",
            ("- a\n  - b\n    > " + ("quoted " * 5).strip(), "> " + "quoted " * 4 + "\n> end"),
        ),
        (
            "words\n\n    > " + "no quote " * 6,
            ("words\n\n    > " + ("no quote " * 4).strip(), "no quote no quote"),
        ),
        ("x" * 47 + " 5 > 3 and on", ("x" * 47 + " 5", "\u200b> 3 and on")),
        ("x" * 47 + " C # what is it", ("x" * 47 + " C", "\u200b# what is it")),
    ],
    ids=[
        *("table", "header", "list", "quote", "code in a quote", "code in a list item"),
        *("link", "bold", "code", "number", "underlined heading", "quote in a list"),
        *("indented code", "more than", "sharp"),
    ],
)
def test_cut_text_keeps_its_meaning(md: str, expected: tuple[str, ...]) -> None:
    assert split(md, 50) == expected


def test_a_list_continued_one_level_up_is_a_separate_list() -> None:
    md = "1. " + "one " * 15 + "\n   1. " + "in " * 18 + "\n   2. x\n2. two\n   - y"
    first, second = split(md, 90)
    assert first == "1. " + ("one " * 15).strip()
    assert second == "1. " + "in " * 18 + "\n2. x\n\n2) two\n   - y"
