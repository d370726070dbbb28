"""Markdown rewritten for a platform that draws a part of it."""
# ruff: noqa: RUF001 - in all scripts

import pytest

from platforms.core.document.rewrite import rewrite_markdown, without_unfinished_source


@pytest.mark.parametrize(
    ("md", "rewritten"),
    [
        ("<b>a *b*</b> <i>c</i>d <s>e</s> <u>f</u>", "**a *b*** *c*d ~~e~~ f"),
        ("H<sub>2</sub>O x<sup>n y</sup>", "H₂O x^(n y)"),
        ("<code>a*b&lt;</code> <kbd>Esc</kbd>", "`a*b<` `Esc`"),
        ("<a href='https://e.org/(x)'>a</a>", "[a](https://e.org/%28x%29)"),
        ("<a href='javascript:x'>a</a>", "a (javascript:x)"),
        ("a<br>b", "a\nb"),
        ("| a<br>b |", "| a b |"),
        ("- <br> a", "-  a"),
        ("<b>open, vector<int>, `<b>x</b>`", "<b>open, vector<int>, `<b>x</b>`"),
        ("```\n<b>a</b> $x^2$\n```", "```\n<b>a</b> $x^2$\n```"),
        ("<details>\n<summary>a **b**</summary>\nc\n</details>", "\n**a b**\n\n\nc\n"),
        ("so $x_1*y*z$ and \\(a_1*b\\), $5", "so `x_1*y*z` and `a_1*b`, $5"),
        ("$$\na*b_1\n$$", "```latex\na*b_1\n```"),
        ("\\[ a \\\\ b \\]", "```latex\na \\\\ b\n```"),
        ("> $$\n> x_1\n> $$", "> `x_1`"),
        (
            "\\begin{align}\na\\\\b\n\\end{align}",
            "```latex\n\\begin{align}\na\\\\b\n\\end{align}\n```",
        ),
        ("See \\[1\\] and \\(x\\)", "See \\[1\\] and \\(x\\)"),
        (
            "[a][r] [r] `[r]`\n\n[r]: https://e.org",
            "[a](https://e.org) [r](https://e.org) `[r]`\n\n",
        ),
        ("a\n\n[r]: https://e.org", "a\n\n[r]: https://e.org"),
        ("a[^1]\n\n[^1]: b", "a\\[1\\]\n\n\\[1\\]: b"),
        ("1. a\n   $$x\\,y$$\n2. b", "1. a\n   ```latex\n   x\\,y\n   ```\n2. b"),
        ("- a\n  \\[\n  x\\\\y\n  \\]", "- a\n  ```latex\n  x\\\\y\n  ```"),
        (
            "- a\n  \\begin{align}\n  a\\\\b\n  \\end{align}",
            "- a\n  ```latex\n  \\begin{align}\n  a\\\\b\n  \\end{align}\n  ```",
        ),
        (
            "so \\begin{cases} a \\\\ b \\end{cases} c",
            "so `\\begin{cases} a \\\\ b \\end{cases}` c",
        ),
        ("[[1]][r]\n\n[r]: https://e.org", "[[1]](https://e.org)\n\n"),
        ("**「a」**は `**「a」**は`", "**「a」**\u200aは `**「a」**は`"),
        ("これは**（a）**と*「b」*", "これは\u200a**（a）**\u200aと\u200a*「b」*"),
        ("**加粗。**后面", "**加粗。**\u200a后面"),
        ("## A\n[r]\n## B\n[r]: https://e.org", "## A\n[r](https://e.org)\n## B\n"),
        ("| `a || b` | `c \\| d` |", "| `a \\|\\| b` | `c \\| d` |"),
        ("a | `b | c`", "a | `b | c`"),
        ("**重点** (**a**)b, a**(b)** c", "**重点** (**a**)b, a**(b)** c"),
    ],
)
def test_what_the_platform_does_not_draw_is_rewritten(md: str, rewritten: str) -> None:
    assert rewrite_markdown(md) == rewritten


@pytest.mark.parametrize(
    "md",
    [
        "<b>bold *x*</b> H<sub>2</sub>O <a href='https://e.org'>a</a> and <i>b</i>\n\nend",
        "It costs $5, so $x_1*y$ and \\(a_1\\), \\[1\\]\n\n$$\na*b\n$$\n\n\\[ x \\]\n\nend",
        "\\begin{align}\na\\\\b\n\\end{align}\n\nend `a*b` end",
        "<details>\n<summary>a</summary>\n\nb\n</details>\n\nend",
        "<details open>\n<summary>a</summary>\n\nb\n</details>\n\nend",
        "A $\\theta$ and $\\frac{a}{b} \\, c$ and \\$5 or \\\\$x$\n\n$$\nx = \\frac{a}{2}\n$$\n\nend",
        "It is $$\\frac{a}{b}$$ or\n\n$$R = \\begin{cases} x & y \\\\ z \\end{cases}$$\n\nend",
        "It costs $5 or $4k, and $4\\pi r^2$, $10.\n\nend",
        "| a |\n|---|\n| $\\pi r^2$ | `a || b` |\n\nend",
    ],
)
def test_a_growing_text_only_grows(md: str) -> None:
    shown = ""
    for end in range(1, len(md) + 1):
        grown = rewrite_markdown(without_unfinished_source(md[:end]), references=False)
        assert grown.startswith(shown), md[:end]
        shown = grown
    assert shown == rewrite_markdown(md)


@pytest.mark.parametrize("md", ["<b>", "<b>x</b>", "$a", "\\(", "\\begin{a}\n", "[a]", "`<", "</"])
def test_long_texts_are_rewritten_quickly(md: str) -> None:
    assert rewrite_markdown(md * 5_000)
    without_unfinished_source(md * 5_000)
