"""Judges of other people, as far as they are installed: the short form of a part of `make markdown`."""

import pytest

from platforms.core.document import parse
from platforms.telegram.format_entities import format_text
from tests.faults.markdown_causes import Shown, damaged_formulas, find_causes, formulas, meaning
from tests.faults.markdown_discord import agree, our_reading, read_html, read_runs
from tests.faults.markdown_judges import (
    Missing,
    cause,
    judge_discord,
    judge_slack,
    judge_telegram,
    shown_in_chats,
    texts,
    twin,
)
from tests.faults.markdown_texts import ANSWERS


def test_tdlib_reads_the_entities_that_we_send() -> None:
    try:
        tally = judge_telegram(texts(40).values())
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


def test_two_readers_read_our_messages_as_discord_does() -> None:
    try:
        tally, wrong = judge_discord(ANSWERS)
    except Missing as missing:
        pytest.skip(str(missing))
    assert tally["read alike by all"] > len(ANSWERS) // 2
    assert not wrong


def test_slack_takes_the_blocks_of_answers() -> None:
    try:
        tally = judge_slack(ANSWERS.values())
    except Missing as missing:
        pytest.skip(str(missing))
    assert tally["messages"] >= len(ANSWERS)
    assert not tally["refused"]
    assert not tally["blind"]


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_shown_in_chats_as_it_is_meant(name: str) -> None:
    md = ANSWERS[name]
    for surface, seen in shown_in_chats(md).items():
        causes = find_causes(md, meaning(md), seen)
        if surface == "Slack, stream":
            causes = [each for each in causes if each in {"LaTeX damaged", "words lost"}]
        assert not causes, surface


@pytest.mark.parametrize(
    ("md", "seen", "named"),
    [
        ("[a][r]\n\n[r]: https://e.org/b", "a", []),
        ("[a][r]\n\n[r]: https://e.org/b", "[a][r]", ["reference links"]),
        ("[r]\n\n[r]: https://e.org/b", "r\n[r]: https://e.org/b", ["reference links"]),
        ("[a]\n\n[r]: https://e.org/b", "[a]\n[r]: https://e.org/b", []),
        ("a[^1]\n\n[^1]: b", "a[^1]\n[^1]: b", ["footnotes"]),
        ("a[^1]\n\n[^1]: b", "a[1]\n[1]: b", []),
        ("<b>a</b>", "<b>a</b>", ["simple HTML"]),
        ("a<br>b", "a<br>b", ["simple HTML"]),
        ("`<b>a</b>`", "", ["words lost"]),
        ("**「a」**は", "**「a」**は", ["emphasis beside CJK"]),
        ("**「a」**は", "「a」は", []),
        ("see \\[1\\]", "see 1", ["escaped brackets"]),
        ("see \\(x\\)", "see (x)", []),
        ("a $x_1 \\\\ y$", "a x_1 \\ y", ["LaTeX damaged"]),
        ("a $x_1 \\\\ y$", "a x_1 \\\\ y", []),
        ("a b", "a", ["words lost"]),
    ],
)
def test_the_causes_are_found(md: str, seen: str, named: list[str]) -> None:
    assert find_causes(md, meaning(md), Shown(seen, seen)) == named


def test_formulas_are_found_in_all_spellings_but_not_in_code() -> None:
    md = "$a^b$ \\(c_d\\) $$e_f$$ \\[ g^h \\] `$i^j$` $5 and $6\n\\begin{align}\nk\n\\end{align}"
    assert [each.strip() for each in formulas(md)] == [
        *("a^b", "c_d", "e_f", "g^h", "\\begin{align}\nk\n\\end{align}"),
    ]
    assert damaged_formulas("$a\\,b$ $c_1$", "a,b c_1") == ["a\\,b"]


def test_the_readers_of_discord_are_compared_with_their_looks() -> None:
    message = "**a** b\\_c `d*`"
    runs = [("a", ["bold"]), (" b", []), ("_", []), ("c ", []), ("d*", ["code"])]
    html = "<strong>a</strong> b_c <code>d*</code>"
    assert agree(read_runs(runs), read_html(html))
    assert agree(read_runs(runs), our_reading(message))
    assert not agree(read_runs(runs), our_reading("**a** b_c d*"))
    assert not agree(read_runs(runs), read_html("a b_c <code>d*</code>"))
