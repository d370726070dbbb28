"""Texts that the parser of chats and the page read alike, each with its outline."""
# ruff: noqa: RUF001 - in all scripts

SHARED = {
    "a note of one paragraph": ("x[^1]\n\n[^1]: a", "<p>x[1]</p><p>[1]: a</p>"),
    "a note of several paragraphs": (
        "x[^a]\n\n[^a]: one\n\n    two **b**\n\n    - three\n\nfour",
        "<p>x[a]</p><p>[a]: one</p><p>two <b>b</b></p><ul><li>three¶</li></ul><p>four</p>",
    ),
    "a note with code": (
        "x[^a]\n\n[^a]: one\n\n    ```py\n    y\n    ```\n",
        "<p>x[a]</p><p>[a]: one</p><pre py>y</pre>",
    ),
    "a note that nothing refers to": (
        "[^a]: one\n\n    two",
        "<p>[^a]: one</p><p>two</p>",
    ),
    "indented code below a paragraph": ("a\n\n    b", "<p>a</p><pre >b</pre>"),
    "a section": (
        "<details>\n<summary>a *b*</summary>\n\nc\n</details>\nd",
        "<details><summary>a <i>b</i></summary><p>c</p></details><p>d</p>",
    ),
    "an open section": (
        "<details open>\n<summary>a</summary>\nb\n</details>",
        "<details><summary>a</summary><p>b</p></details>",
    ),
    "an open section without a title": (
        '<details open="">\n\nb\n</details>\nc',
        "<details><summary>…</summary><p>b</p></details><p>c</p>",
    ),
    "a section in capitals": (
        "<DETAILS>\n<SUMMARY>a</SUMMARY>b</DETAILS>",
        "<details><summary>a</summary><p>b</p></details>",
    ),
    "a section in a list": (
        "- <details>\n  <summary>a</summary>\n\n  b\n  </details>\n- c",
        "<ul><li><details><summary>a</summary><p>b</p></details></li><li>c¶</li></ul>",
    ),
    "a bar inside the code of a cell": (
        "a | b\n--|--\n`x | y` | `c \\| d`",
        (
            "<table><tr><th>a</th><th>b</th></tr><tr><td><code>x | y</code></td>"
            "<td><code>c | d</code></td></tr></table>"
        ),
    ),
    "a title above a line": ("a *b*\n===\nc", "<h1>a <i>b</i></h1><p>c</p>"),
    "emphasis beside CJK": ("**「a」**は*（b）*", "<p><b>「a」</b>は<i>（b）</i></p>"),
    "products": ("2*3*4 and 2 * 3 * 4", "<p>2*3*4 and 2 * 3 * 4</p>"),
    "names": ("__init__ and __two__ a_b_c", "<p>__init__ and <b>two</b> a_b_c</p>"),
    "a citation": (
        "a [[1]][1] b [[1]](https://e.org/c)\n\n[1]: https://e.org/d",
        "<p>a <a https://e.org/d>[1]</a> b <a https://e.org/c>[1]</a></p>",
    ),
    "a reference": (
        "[a][R] [r]\n\n[r]: https://e.org/b 'c'",
        "<p><a https://e.org/b>a</a> <a https://e.org/b>r</a></p>",
    ),
    "a definition above a line": (
        "[r]: https://e.org/b\n===\n[r]",
        "<p>===<br><a https://e.org/b>r</a></p>",
    ),
    "half a definition": (
        "[r]\n\n[r]: https://e.org/b_(",
        "<p>[r]</p><p>[r]: https://e.org/b_(</p>",
    ),
    "an unused definition": ("a\n\n[r]: https://e.org/b", "<p>a</p><p>[r]: https://e.org/b</p>"),
    "escaped brackets": (
        "a \\[1\\] \\(x\\) \\[b\\](c) \\(x_1\\)",
        "<p>a [1] (x) [b](c) <math>x_1</math></p>",
    ),
    "an environment in a line": (
        "a \\begin{cases} b \\\\ c \\end{cases} d",
        "<p>a <math>\\begin{cases} b \\\\ c \\end{cases}</math> d</p>",
    ),
    "formulas": (
        "$x^2$ \\(y_1\\) $5 and $6\n\n$$\n\\frac{a}{b}\n$$\n\n\\[ c \\]",
        "<p><math>x^2</math> <math>y_1</math> $5 and $6</p><math>\\frac{a}{b}</math><math>c</math>",
    ),
    "tabs in code": ("```make\na:\n\tb\n\t\tc\n```", "<pre make>a:\n\tb\n\t\tc</pre>"),
    "words behind a fence": ("``` one two\nx\n```", "<pre >one two\nx</pre>"),
    "a file name behind a fence": ("```py a.py\nx\n```", "<pre py>x</pre>"),
    "line ends of Windows": (
        "# a\r\n\r\n- b\r\n- c\r\n",
        "<h1>a</h1><ul><li>b¶</li><li>c¶</li></ul>",
    ),
    "spaces at the end of a line": ("a  \nb\\\nc", "<p>a<br>b<br>c</p>"),
    "entities": ("&copy; &hellip; &nope; &amp;lt;", "<p>© … &amp;nope; &amp;lt;</p>"),
    "a spoiler": ("a ||b *c*|| d || e || f", "<p>a <spoiler>b <i>c</i></spoiler> d || e || f</p>"),
    "tags": (
        "<b>a *b*</b> H<sub>2</sub>O <kbd>c</kbd> <a href='https://e.org/d'>e</a> <b>f",
        "<p><b>a <i>b</i></b> H<sub>2</sub>O <code>c</code> <a https://e.org/d>e</a> &lt;b&gt;f</p>",
    ),
    "tasks": ("- [ ] a\n- [x] **b**", "<ul><li ->a¶</li><li x><b>b</b>¶</li></ul>"),
    "a list with code": (
        "1. a\n   ```py\n   x\n   ```\n2. b",
        "<ol 1><li>a¶<pre py>x</pre></li><li>b¶</li></ol>",
    ),
    "a paragraph in a list": ("- a\n\n  b\n- c", "<ul><li>a¶b¶</li><li>c¶</li></ul>"),
}
"""Text and outline by name."""

DIFFERENT = {
    "headings": "`---` below a line is a rule on the page, as models mean it; chats follow CommonMark",
    "setext": "`---` below a line is a rule on the page, as models mean it; chats follow CommonMark",
}
"""Samples that the page reads otherwise, with the reason."""
