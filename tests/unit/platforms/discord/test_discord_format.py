"""Tests of rendering Markdown for Discord."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platforms.core.markdown import close_open_marks
from platforms.core.split import split
from platforms.discord.format import MAX_CHARS, RULE_LINE, render
from tests.unit.platforms.core.samples import SAMPLES

_WORDS = re.compile(r"[^\W\d_]+")


def words(text: str) -> str:
    """Return the letters of a text in order, without markup and without list numbers."""
    plain = re.sub(r"\[([ xX])\](?=[ \t])", " ", text)  # rendered as ☐ and ☑
    plain = re.sub(r"<br\s*/?>", " ", plain, flags=re.IGNORECASE)
    plain = re.sub(r"^(\s*(?:`{3,}|~{3,})[^\s`]*)[^\n`]*$", r"\1", plain, flags=re.MULTILINE)
    return "".join(_WORDS.findall(plain))


def shows(shown: str, md: str) -> bool:
    """Return whether all letters of `md` are shown in order; URLs may be added in between."""
    left = iter(words(shown))
    return all(char in left for char in words(md))


@pytest.mark.parametrize(
    ("md", "shown"),
    [
        ("Hello *you*, **this** ~~is~~ `code`", "Hello *you*, **this** ~~is~~ `code`"),
        ("# One\n## Two\n### Three", "# One\n## Two\n### Three"),
        ("#### Four\n##### Five **x**", "**Four**\n**Five x**"),
        ("Title\n=====\nSub\n---", "# Title\n## Sub"),
        ("a\n\n---\n\n***\n", f"a\n\n{RULE_LINE}\n\n{RULE_LINE}"),
        ("- [ ] open\n- [x] done\n+ plus", "- ☐ open\n- ☑ done\n\n- plus"),
        ("> a\n>> b\n>>> c", "> a\n> \n> b\n> \n> c"),
        ("> # t\n> - [ ] x", "> # t\n> - ☐ x"),
        ("__two words__ and __init__", "**two words** and \\_\\_init\\_\\_"),
        ("\\[a\\](https://e.org/b) c", "[a]\\(https://e.org/b) c"),
        ("so \\begin{cases} a \\\\ b \\end{cases} c", "so `\\begin{cases} a \\\\ b \\end{cases}` c"),
        ("a_b_c at https://e.org/x_(y) `a_b`", "a\\_b\\_c at https://e.org/x_(y) `a_b`"),
        ("[a](<https://e.org/b c\ufeffd>)", "[a](https://e.org/b%20cd)"),
        ("a_b and `c_`", "a\\_b and `c_`"),
        ("\\`a and `b_c` d_e `f_`", "\\`a and `b_c` d\\_e `f_`"),
        ("a_b `c_d` e_f_g `h_`", "a_b `c_d` e\\_f\\_g `h_`"),
        ("a_b __c__ `d__e` `f_`", "a\\_b **c** `d__e` `f_`"),
        ("a_b and c_d", "a_b and c_d"),
        ("a_b and c_日", "a\\_b and c_日"),
        ("snake_case_name __not closed", "snake_case_name \\_\\_not closed"),
        ("`__x__ || [a](b)`", "`__x__ || [a](b)`"),
        ("**a***b*", "**a**\u200b*b*"),
        ("**a\nb**", "**a**\n**b**"),
        ("**a `**` b**", "**a** `**` **b**"),
        ("2*3*4 ** 5 ** 6", "2\\*3\\*4 \\*\\* 5 \\*\\* 6"),
        ("&lt;b&gt; &amp; C:\\dir", "<b> & C:\\dir"),
        ("@everyone <@123> `@here`", "\\@everyone \\<@123> `@here`"),
        ("so $x^2$", "so `x^2`"),
        ("\\# no title", "\\# no title"),
        ("1\\. no list", "1\\. no list"),
        ("# C#", "# C\\#"),
        ("## a *b <br> c* C#<br>d", "## a *b*\n## *c* C\\#\n## d"),
        ("# [a<br>b](https://e.org)<br>", "# [a b](https://e.org)"),
        ("- ## a", "- **a**"),
        ("- ```py\n  x\n  ```", "- \u200b\n```py\nx\n```"),
        ("if a || b || c", "if a \\|\\| b \\|\\| c"),
        ("It was ||the butler||", "It was ||the butler||"),
        ("[site](https://e.org/a_(b))", "[site](https://e.org/a_(b))"),
        ("![cat](https://e.org/c.png)", "[🖼 cat](https://e.org/c.png)"),
        ("![](https://e.org/c.png)", "🖼 https://e.org/c.png"),
        ("[file](docs/a.md)", "file (docs/a.md)"),
        ("[https://a.org](https://b.org)", "<https://b.org>"),
        ("https://x.org/__y__/z", "https://x.org/__y__/z"),
        ("~~~py\nx = 1\n~~~", "```py\nx = 1\n```"),
        ("````md\n```\ninner\n```\n````", "```md\n`\u200b``\ninner\n`\u200b``\n```"),
        ("a\n```sh\nls\n```\nb", "a\n```sh\nls\n```\nb"),
        ("1. x\n   ```\n   ls\n     -l\n   ```", "1. x\n```\nls\n  -l\n```"),
        ("```\n```", "```\n \n```"),
        ("| a | b |\n|---|---|\n| 1 | 22 |", "```\na  b\n─  ──\n1  22\n```"),
        ("a | b\n--|--\n`x|y` | [l](https://e.org)", "```\na    b\n───  ─────────────────\nx|y  l (https://e.org)\n```"),
        ("| 日本 | b |\n|---|---|\n| a | c |", "```\n日本  b\n────  ─\na     c\n```"),
        ("| 1 | 2 |\n| 3 | 4 |", "```\n1  2\n3  4\n```"),
        ("one\r\n\r\ntwo\r\n", "one\n\ntwo"),
        ("<b>a</b> <u>b</u> H<sub>2</sub>O <code>c*d*</code>", "**a** __b__ H₂O `c*d*`"),
        ("a<sup>b c</sup> d<sub>B</sub>", "a^(b c) d\\_(B)"),
        ("<a href='https://e.org'>c</a> <kbd>Esc</kbd>", "[c](https://e.org) `Esc`"),
        ("<details><summary>a</summary>\n\n- b\n</details>\nc", "> **a**\n> - b\n\nc"),
        ("@<b></b>everyone <<b></b>@1>", "\\@everyone \\<@1>"),
        ("<img src='https://e.org/x.png'>", "<img src='https://e.org/x.png'>"),
        ("See \\[1\\] and \\(x_1\\)", "See [1] and `x_1`"),
        ("", ""),
        ("####", "####"),
        ("#### ", "#### "),
    ],
)  # fmt: skip
def test_markdown_is_rendered_in_discords_dialect(md: str, shown: str) -> None:
    assert render(md) == shown


@pytest.mark.parametrize("name", SAMPLES)
def test_no_word_of_a_sample_is_lost_when_split(name: str) -> None:
    for piece in split(SAMPLES[name], MAX_CHARS):
        shown = render(piece)
        assert len(shown) <= MAX_CHARS
        assert shows(shown, piece)
        assert shown.count("```") % 2 == 0


@pytest.mark.parametrize("name", [name for name in SAMPLES if len(SAMPLES[name]) < 1500])
def test_no_word_of_any_prefix_of_a_sample_is_lost(name: str) -> None:
    md = SAMPLES[name]
    for end in range(len(md)):
        piece = close_open_marks(md[:end])
        shown = render(piece)
        assert len(shown) <= max(MAX_CHARS, len(piece))
        assert shows(shown, piece), piece


def test_a_table_too_wide_when_aligned_is_rendered_compact() -> None:
    wide = "| a | b |\n|---|---|\n" + "| " + "w" * 300 + " | x |\n" + "| x | y |\n" * 100
    (piece,) = split(wide, MAX_CHARS)
    shown = render(piece)
    assert len(shown) <= MAX_CHARS
    assert shows(shown, piece)
    assert shown.startswith("```\na | b\n")


def test_a_table_is_rendered_compact_if_only_escapes_make_it_too_long() -> None:
    md = f"a_b `@everyone_`\n\n| a | b |\n|---|---|\n| {'w' * 100} | x |\n" + "| x | y |\n" * 4
    aligned = len(render(md))
    assert render(md, aligned).startswith("a\\_b `@everyone_`\n```\na  ")
    assert render(md, aligned - 1).startswith("a\\_b `@everyone_`\n```\na | b\n")


def test_text_too_long_in_every_layout_is_sent_as_written() -> None:
    md = "a || b " * 285
    assert len(md) <= MAX_CHARS
    assert render(md) == md


_PIECES = st.lists(
    st.sampled_from(
        [
            "word", "**bold**", "*i*", "`c|d`", "__x y__", "~~s~~", "||", "|", "\n", "\n\n", "# ",
            "#### H\n", "- [ ] t\n", "1. one\n", "> ", ">> ", "```\n", "```py\n", "~~~\n", "---\n",
            "| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "[l](https://e.org/x_y)", "![i](u.png)",
            "<b>", "a<b", "@everyone", "<@1>", "\\*", " ", "    ", "\t", "é", "日", "👍", "===\n",
        ]
    ),
    max_size=40,
)  # fmt: skip


@pytest.mark.process
@settings(max_examples=1_500, deadline=None)
@given(_PIECES)
def test_no_word_of_random_markdown_is_lost(pieces: list[str]) -> None:
    md = "".join(pieces)
    shown = render(md)
    assert shows(shown, md)
    assert len(shown) <= max(MAX_CHARS, len(md))


@pytest.mark.process
def test_long_random_texts_are_rendered_quickly() -> None:
    rng = random.Random(7)  # noqa: S311 - a fixed seed keeps the texts the same
    signs = "`*_~|[]()#>-\\ \n a"
    for _ in range(300):
        render("".join(rng.choice(signs) for _ in range(MAX_CHARS)))
