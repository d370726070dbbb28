import re

import pytest
from hypothesis import example, given, settings

from platforms.core.markdown import close_open_marks, find_fences, find_open_mark, has_open_fence
from tests.unit.platforms.core.samples import SAMPLES
from tests.unit.platforms.core.test_split import markdown


@pytest.mark.parametrize(
    ("partial", "closed"),
    [
        ("plain words", "plain words"),
        ("**bold", "**bold**"),
        ("**bold ", "**bold**"),
        ("**bold*", "**bold**"),  # half of its closing mark
        ("**bold**", "**bold**"),
        ("now **", "now"),  # nothing is bold yet
        ("a `code", "a `code`"),
        ("a `", "a"),
        ("a ``b ` c", "a ``b ` c``"),
        ("`a` and `b`", "`a` and `b`"),
        ("**bold with `code", "**bold with `code`**"),
        ("~~gone ||and **all", "~~gone ||and **all**||~~"),
        ("~~gone **and~~ **back", "~~gone **and~~ **back**"),
        ("2 ** 3 ** 4", "2 ** 3 ** 4"),
        ("`**` is bold", "`**` is bold"),
        ("\\**not bold", "\\**not bold"),
        ("**x\\", "**x**"),
        ("first **open\n\nsecond", "first **open\n\nsecond"),  # marks end with their paragraph
        ("| a || b |", "| a || b |"),
        ("||secret", "||secret||"),
        ("```py\nx = 1", "```py\nx = 1\n```"),
        ("```py\nx = 1\n```\nand **so", "```py\nx = 1\n```\nand **so**"),
        ("text\n```pyth", "text\n"),  # the opening line is incomplete
        ("```\na\n```\n**b\n```c", "```\na\n```\n**b**"),
        ("~~~\n**x", "~~~\n**x\n~~~"),
        ("> ```py\n> x", "> ```py\n> x\n> ```"),
        ("- ```py\n  x", "- ```py\n  x\n```"),
        ("> ```\n> x\n\nand **so", "> ```\n> x\n\nand **so**"),  # the block ended with the quote
        ("| a | b |\n|--", "| a | b |"),
        ("see [the **docs**](https://e.or", "see the **docs**"),
        ("see [docs](", "see docs"),
        ("a ![chart](https://e.org/c.p", "a chart"),
        ("**see [docs](https://e", "**see docs**"),
        ("see [docs](<https://e.org/a b", "see docs"),
        ("see [docs](https://e.org/a_(b)", "see docs"),
        ("see [docs](https://e.org/a_(b))", "see [docs](https://e.org/a_(b))"),
        ("a [b] (c", "a [b] (c"),
        ("arr[0](x, y", "arr[0](x, y"),
        ("`a [b](c", "`a [b](c`"),
        ("\\[b](c", "\\[b](c"),
        ("| a | b |\n|---|---|\n| 1", "| a | b |\n|---|---|\n| 1"),
    ],
)
def test_open_marks_of_a_partial_text_are_closed(partial: str, closed: str) -> None:
    assert close_open_marks(partial) == closed


HALF_LINK = re.compile(r"!?\[((?:[^\[\]\n]|\[[^\[\]\n]*\])+)\]\((?!.*[^\\]\)\Z)(?:<.*|[^\s<>]*)\Z")


def _check(md: str) -> None:
    closed = close_open_marks(md)
    if (link := HALF_LINK.search(md)) and closed.startswith(md[: link.start()] + link[1][:3]):
        md = md[: link.start()] + link[1]
    assert not has_open_fence(closed)
    assert close_open_marks(closed) == closed
    # Only marks are added, and only marks and spaces at the end are held back.
    shared = 0
    while shared < min(len(md), len(closed)) and md[shared] == closed[shared]:
        shared += 1
    assert not closed[shared:].strip("`*~|\n")
    held_back = re.sub("(?:```|~~~)[^\n]*$", "", md[shared:])  # an incomplete opening line
    held_back = re.sub(r"\n\|[\s|:-]*$", "", held_back)  # the line below a table header
    assert not held_back.strip(" \t\r\n*~|`\\")


@pytest.mark.parametrize("name", SAMPLES)
def test_marks_of_every_prefix_can_be_closed(name: str) -> None:
    md = SAMPLES[name][:700]
    for length in range(len(md) + 1):
        _check(md[:length])


@given(markdown)
@settings(max_examples=300, deadline=None)
@example("``` a ` b\n```word ```")  # without the marks at its end, the line opens a block
def test_marks_of_any_text_can_be_closed(md: str) -> None:
    _check(md)


def test_a_complete_text_is_unchanged() -> None:
    for name in ("prose", "code", "two fences", "table", "spoiler"):
        assert close_open_marks(SAMPLES[name]) == SAMPLES[name]


def test_code_blocks_are_found_with_their_language_and_end() -> None:
    md = "a\n```python title=x\nb\n```\n~~~~\n~~~\nc\n~~~~ \nd\n  ```\ne"
    assert [(md[f.start : f.after], f.opening, f.closed) for f in find_fences(md)] == [
        ("```python title=x\nb\n```", "```python", True),
        ("~~~~\n~~~\nc\n~~~~", "~~~~", True),
        ("  ```\ne", "```", False),
    ]


def test_inline_code_is_no_code_block() -> None:
    assert find_fences("```x``` and\n``` a ` b\ntext") == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("some **bold and", 5),
        ("some **bold** and", None),
        ("some *it **bold*", None),
        ("a `code and", 2),
        ("a `code` and ~~st", 13),
        ("a [link to", 2),
        ("a ![pic](https://e.org/x_(y", 2),
        ("a [link](https://e.org) and", None),
        ("a [sic] and", None),
        ("snake_case and 2 * 3 and \\*", None),
        ("||it and _so", 0),
        ("**a *b", 0),
    ],
)
def test_the_first_open_mark_at_the_end_is_found(text: str, place: int | None) -> None:
    assert find_open_mark(text, -1) == place


def test_marks_opened_before_the_lower_bound_do_not_count() -> None:
    assert find_open_mark("**a and [b", 3) == 8


@pytest.mark.parametrize(
    ("md", "opening", "closing", "after"),
    [
        ("> ```py\n> x\n> ```\ny", "> ```py", "> ```", "\ny"),
        (">> ~~~\n>> x\n\ny", ">> ~~~", ">> ~~~", "\n\ny"),
        ("1. ```sh\n   x\n   ```\ny", "```sh", "```", "\ny"),
        ("> - ```sh\n>   x\n>   ```\ny", "> ```sh", "> ```", "\ny"),
    ],
    ids=["quote", "end of a quote", "list item", "list item in a quote"],
)
def test_code_blocks_are_found_in_quotes_and_list_items(
    md: str, opening: str, closing: str, after: str
) -> None:
    (fence,) = find_fences(md)
    assert (fence.opening, fence.closing, md[fence.after :]) == (opening, closing, after)


@pytest.mark.parametrize(
    ("md", "closed"),
    [
        ("a <b>c", "a <b>c</b>"),
        ("a <b>c **d", "a <b>c **d**</b>"),
        ("a <b>c</", "a <b>c</b>"),
        ("<a href='https://e.org'>c", "<a href='https://e.org'>c</a>"),
        ("a <b>c</b> d", "a <b>c</b> d"),
        ("if a<b", "if a<b"),
        ("`<b>` c", "`<b>` c"),
    ],
)
def test_html_tags_of_a_growing_text_are_closed(md: str, closed: str) -> None:
    assert close_open_marks(md) == closed


def test_many_open_tags_are_closed_quickly() -> None:
    assert close_open_marks("<b>" * 20_000 + "</i>" * 20_000)


def test_a_cut_splits_no_pair_of_html_tags() -> None:
    assert find_open_mark("aaa <b>ccc dddd", 2) == 4
    assert find_open_mark("aaa <b>ccc</b> dddd", 2) is None
