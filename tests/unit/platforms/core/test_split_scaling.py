"""The work of cutting a text, in characters looked at, grows linearly with the text."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self, SupportsIndex, cast

import pytest

from platforms.core import split as split_module
from platforms.core.contract import Unit
from platforms.core.split import IncrementalSplitter, split_pieces

SHAPES = {
    "one long line": "word " * 400,
    "no border": "x" * 2000,
    "no border after a quote mark": "> " + "x" * 2000,
    "lines": "a line of text\n" * 130,
    "a table": "| a | b |\n|---|---|\n" + "| cell | cell |\n" * 120,
    "rows without a header": "| cell | cell |\n" * 130,
    "indented lines": "    indented\n" * 150,
    "an item with a long body": "- item\n" + "  body of the item\n" * 110,
    "deeper and deeper": "".join(" " * (1 + n % 40) + "- x\n" for n in range(90)),
    "empty quote lines": ">\n" * 1000,
    "quote marks": ">" * 2000,
    "flags": "🇩🇪" * 1000,
    "blank lines in code": "```\n" + "\n" * 2000 + "end\n```\n",
    "code blocks": "```\ncode\n```\n" * 150,
    "code blocks in quotes": "> ``` a`\n" * 220,
    "blanks": "x" + " " * 2000 + "|",
    "blank rows": ("| a" + " " * 900 + "|\n|" + " " * 900 + "x\n"),
}


class CountingText(str):
    """Text that counts the characters that searches and slices look at."""

    __slots__ = ("looked_at",)

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.looked_at = 0
        return made

    looked_at: int

    def replace(self, *_: Any) -> "CountingText":
        return self  # there are no carriage returns

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        self.looked_at += len(found)
        return found

    def find(self, sub: str, start: Any = 0, end: Any = None, /) -> int:
        stop = len(self) if end is None else min(end, len(self))
        found = super().find(sub, start, stop)
        self.looked_at += (found if found >= 0 else stop) - min(start, stop) + 1
        return found

    def rfind(self, sub: str, start: Any = 0, end: Any = None, /) -> int:
        stop = len(self) if end is None else min(end, len(self))
        found = super().rfind(sub, start, stop)
        self.looked_at += stop - (found if found >= 0 else min(start, stop)) + 1
        return found


@contextmanager
def _counted_lines() -> Iterator[list[int]]:
    """Count the executed lines of the module, which shows loops over other things than text."""
    count = [0]

    def trace(frame: FrameType, event: str, _given: object) -> Any:
        if frame.f_code.co_filename != split_module.__file__:
            return None
        count[0] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def _work(text: str, limit: int) -> int:
    counting = CountingText(text)
    with _counted_lines() as lines:
        IncrementalSplitter().split(cast(str, counting), limit, Unit.CHARACTERS)
    return counting.looked_at + 10 * lines[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_linearly_with_the_text(shape: str) -> None:
    once, thrice = (_work(SHAPES[shape] * times, 200) for times in (8, 24))
    assert thrice < 3.6 * once + 2000


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_linearly_where_only_the_middle_repeats(shape: str) -> None:
    first, middle, last = SHAPES[shape][:20], SHAPES[shape][20:-20], SHAPES[shape][-20:]
    once, thrice = (_work(first + middle * times + last, 200) for times in (8, 24))
    assert thrice < 3.6 * once + 2000


@pytest.mark.parametrize("shape", SHAPES)
def test_text_cut_while_it_grows_equals_text_cut_at_once(shape: str) -> None:
    text = SHAPES[shape] * 2
    growing = IncrementalSplitter()
    for end in range(0, len(text), 97):
        growing.split(text[:end], 200, Unit.CHARACTERS)
    assert growing.split(text, 200, Unit.CHARACTERS) == split_pieces(text, 200)


def test_a_table_header_is_repeated_however_far_above_it_is() -> None:
    table = "| a | b |\n|---|---|\n" + "| cell | cell |\n" * 5000
    pieces = split_pieces(table, 2000)
    assert all(piece.before == "| a | b |\n|---|---|\n" for piece in pieces[1:])
