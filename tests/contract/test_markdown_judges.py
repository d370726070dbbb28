"""Judges of other people, as far as they are installed: the short form of a part of `make markdown`."""

import pytest

from platforms.core.document import parse
from platforms.telegram.format_entities import format_text
from tests.faults.markdown_judges import Missing, cause, judge_telegram, texts, twin


def test_tdlib_reads_the_entities_that_we_send() -> None:
    try:
        tally = judge_telegram(texts(40))
    except Missing as missing:
        pytest.skip(str(missing))
    assert tally["texts"]
    for wrong in ("refused", "other text", "other entities", "automatic entity across code"):
        assert not tally[wrong], tally


def test_a_text_with_entities_is_written_as_html() -> None:
    shown = format_text(parse("👍 **a *b*** `c<` [d](https://e.org)"))
    assert twin(shown) == '👍 <b>a <i>b</i></b> <code>c&lt;</code> <a href="https://e.org">d</a>'


@pytest.mark.parametrize(
    ("md", "meant", "shown", "named"),
    [
        ("*a*", "a", "a", ""),
        ("[a](b)", "a", "a (b)", "relative address shown"),
        ("[a][b]\n\n[b]: c", "a", "[a][b]", "reference links"),
        ("a\n\n[b]: c", "a", "a\n\n[b]: c", "unused definition shown"),
        ("<b>a</b>", "a", "<b>a</b>", "simple HTML"),
        ("<div>a</div>", "a", "<div>a</div>", "other HTML and autolinks"),
        (r"\[1\] a", "[1] a", "a", "LaTeX brackets"),
    ],
)
def test_the_cause_of_a_difference_is_named(md: str, meant: str, shown: str, named: str) -> None:
    assert cause(md, meant, shown) == named
