"""Markdown as models write it: whole answers, texts made up from a seed, and samples that are nasty on purpose."""
# ruff: noqa: RUF001 - in all scripts

import random
import re
from pathlib import Path

PROSE = (
    *("the", "daemon", "answers", "every", "message", "once", "whatever", "dies", "in", "between"),
    *("naïve", "façade", "“quoted”", "it's", "3.14", "100%", "e.g.", "and/or", "x-axis", "C++"),
    *("snake_case_name", "user@example.org", "file.py", "#42", "$5", "~20", "A&B", "R&D", "5 > 3"),
    *(
        "日本語の文章",
        "你好，世界",
        "Привет",
        "Καλημέρα",
        "שלום",
        "مرحبا",
        "हिन्दी",
        "한국어",
        "ไทย",
    ),
    *(
        "e\u0301te\u0301",
        "Zu\u0308rich",
        "wait…",
        "–",
        "(see below)",
        "[sic]",
        "a=b",
        "2*3*4",
        "C:\\dir",
    ),
)
EMOJI = (
    *(
        "👍",
        "👍🏽",
        "👩\u200d🚀",
        "👨\u200d👩\u200d👧\u200d👦",
        "🇩🇪🇫🇷",
        "🏳️\u200d🌈",
        "❤️",
        "1️⃣",
        "🐕\u200d🦺",
    ),
    "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
)
MENTIONS = (
    *("@everyone", "@here", "<@123456789012345678>", "<@!42>", "<@&77>", "<!channel>", "<!here>"),
    *("@channel", "<!subteam^S123>", "<@U0123ABCD>", "<#C0123>", "@holdfast_bot"),
)
HTML_LIKE = (
    *("vector<int>", "<your-name>", "if a<b and c>d", "List<Map<String, int>>", "<div>", "</div>"),
    *("a < b", "x -> y", "y <- z", "<T>", "<br>", "AT&amp;T", "&lt;tag&gt;", "<!-- no comment -->"),
    *(
        "<b>bold</b>",
        "<i>x and y</i>",
        "H<sub>2</sub>O",
        "10<sup>6</sup>",
        "<u>under</u>",
        "<s>old</s>",
    ),
    *(
        "<code>a*b*c</code>",
        '<a href="https://example.org/a_b">here</a>',
        "<kbd>Ctrl</kbd>",
        "<b>open",
    ),
)
CODE = (
    *("x", "f(x)", "a | b", "vector<int>", "**not bold**", "npm i @scope/pkg", "$HOME", "a_b_c"),
    *("<tag>", "[0]", "~/.ssh", "#include", "'q'", "日本", "C:\\tmp\\", "||", "@everyone", "&amp;"),
)
URLS = (
    "https://example.org",
    "https://example.org/a_b_c/d-e?x=1&y=2#top",
    "https://en.wikipedia.org/wiki/Mercury_(planet)",
    "https://example.org/" + "long/" * 60 + "end",
    "http://localhost:8080/~user/*.txt",
    "mailto:ann@example.org",
)
FORMULAS = ("x^2", "a_1 + b_2", "\\frac{a}{b}", "E = mc^2", "\\sum_{i=0}^{n} i", "\\alpha")
LANGUAGES = (
    *("", "python", "py", "sh", "bash", "rust", "c++", "c#", "js", "json", "diff", "text", "yaml"),
    *('python title="a b.py" linenos', "js {1,3}", "ts src/app.ts", "console"),
)
CODE_LINES = (
    "def f(x: int) -> int:", "    return x + 1", "\treturn x;", "", "", "if (a < b && c > d) {", "}",
    "# a comment", "#### four", "- not a list", "> not a quote", "| not | a table |", "* * *", "---",
    "echo \"$HOME\" | grep '**'", "print('`x`')", "SELECT * FROM t WHERE a <> 'b';", "  two spaces",
    "        eight", "日本語 = '値'", 'x = "👩\u200d🚀"', "<html><body>&amp;</body></html>", "@everyone",
    "\\begin{align}", "a\\*b", "[link](https://example.org)", "1. one", "____", "~~~~~"[:2], "...",
)  # fmt: skip

LONG = 30_000
_POINT = re.compile(r"(?:[-*+]|\d+[.)]) ")


class Writer:
    """Writes one text; the same seed gives the same text."""

    def __init__(self, seed: str) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - to be repeated

    def text(self) -> str:
        """Write an answer of a usual length, now and then a very long one, or only its beginning."""
        dice = self._dice
        length = (
            LONG if dice.random() < 0.01 else dice.choice((80, 300, 800, 800, 1500, 3000, 6000))
        )
        blocks: list[str] = []
        while sum(map(len, blocks)) < length:
            block = "\n".join(self._block(0))
            if blocks and _POINT.match(blocks[-1]) and _POINT.match(block):
                blocks.append("\n".join(self._paragraph(0)))  # or they would be one list
            blocks.append(block)
        text = "\n\n".join(blocks)
        if dice.random() < 0.1:
            text = text[: dice.randrange(1, len(text) + 1)]
        return self._spoilt(text)

    def _spoilt(self, text: str) -> str:
        """Do what no good text has, to a few: odd line ends, signs that nobody sees."""
        dice = self._dice
        chance = dice.random()
        if chance < 0.05:
            return text.replace("\n", "\r\n")
        if chance < 0.08:
            return "".join(dice.choice(("\n", "\r\n")) if char == "\n" else char for char in text)
        if chance < 0.12:
            for _ in range(dice.randrange(1, 6)):
                # In words: beside a mark nobody could say what is meant.
                at = dice.randrange(len(text) + 1)
                if not text[max(0, at - 1) : at + 1].isalpha():
                    continue
                sign = dice.choice("\0\x07\x1b\x7f\u200b\u2060\ufeff\u00ad\u200e\u202e")
                text = text[:at] + sign + text[at:]
        return text

    # --- blocks

    def _block(self, depth: int) -> list[str]:
        makers = (
            *(self._paragraph,) * 8,
            *(self._heading,) * 3,
            *(self._list,) * 5,
            *(self._fence,) * 3,
            *(self._quote,) * 2,
            self._rule,
            self._display,
            *((self._table,) * 3 if depth == 0 else ()),
            *((self._footnote, self._odd, self._indented) if depth == 0 else ()),
        )
        made: list[str] = self._dice.choice(makers)(depth)
        return made

    def _paragraph(self, _depth: int) -> list[str]:
        return [self.line(self._dice.randrange(3, 30)) for _ in range(self._lines())]

    def _lines(self) -> int:
        return self._dice.choice((1, 1, 1, 2, 3))

    def _heading(self, _depth: int) -> list[str]:
        title = self.line(self._dice.randrange(1, 6), heading=True)
        if self._dice.random() < 0.1:
            return [title, self._dice.choice("=-") * max(3, len(title) % 30)]
        closing = " ##" if self._dice.random() < 0.05 else ""
        return ["#" * self._dice.choice((1, 2, 2, 3, 3, 4, 5, 6)) + f" {title}{closing}"]

    def _list(self, depth: int) -> list[str]:
        dice = self._dice
        kind = dice.choice("-*+") if dice.random() < 0.6 else dice.choice(("1.", "1.", "1)", "7."))
        kind = "1." if depth and kind == "7." else kind  # no such list begins inside a paragraph
        tasks, loose = dice.random() < 0.2, dice.random() < 0.15
        out: list[str] = []
        number = int(kind[:-1]) if kind[0].isdigit() else 0
        for _ in range(dice.randrange(1, 7)):
            mark = f"{number}{kind[-1]}" if number else kind
            number += bool(number)
            box = dice.choice(("[ ] ", "[x] ", "[X] ")) if tasks else ""
            out.append(f"{mark} {box}{self.line(dice.randrange(2, 14))}")
            pad = " " * (len(mark) + 1)
            if depth < 3 and dice.random() < 0.25:
                inner = dice.choice((self._list, self._list, self._list, self._fence, self._quote))
                out += [pad + line if line else "" for line in inner(depth + 1)]
            if loose:
                if dice.random() < 0.4:
                    out += ["", pad + self.line(5)]
                out.append("")
        return out[:-1] if loose else out

    def _fence(self, _depth: int) -> list[str]:
        dice = self._dice
        mark = dice.choice(("```", "```", "```", "~~~", "````"))
        length = 200 if dice.random() < 0.03 else dice.randrange(1, 14)
        body = [dice.choice(CODE_LINES) for _ in range(length)]
        if mark == "````":
            body += ["```sh", "ls -l", "```"]
        if dice.random() < 0.02:
            body.append("x" * 5000)
        if not any(line.strip() for line in body):
            body.append("pass")
        return [mark + dice.choice(LANGUAGES), *body, mark]

    def _quote(self, depth: int) -> list[str]:
        inner = self._block(depth + 1) if depth < 2 else self._paragraph(depth)
        if self._dice.random() < 0.3:
            inner = [*inner, "", *self._paragraph(depth)]
        return [f"> {line}".rstrip() if line.strip() else ">" for line in inner]

    def _table(self, _depth: int) -> list[str]:
        dice = self._dice
        width = dice.choice((2, 2, 3, 3, 4, 6, 12))
        rows = dice.choice((1, 2, 4, 8, 30))
        border = dice.random() < 0.9
        lines = [[self._cell() for _ in range(width)] for _ in range(rows + 1)]
        lines.insert(1, [dice.choice(("---", ":--", "--:", ":-:", "-----")) for _ in range(width)])
        return [f"| {' | '.join(row)} |" if border else " | ".join(row) for row in lines]

    def _cell(self) -> str:
        dice = self._dice
        match dice.randrange(12):
            case 0:
                return f"`{dice.choice(('x', 'f(x)', 'a_b_c', '<tag>', '**n**'))}`"
            case 1:
                return "a \\| b"
            case 2:
                return f"**{dice.choice(PROSE[:10])}**"
            case 3:
                return dice.choice(EMOJI)
            case 4:
                return f"[{dice.choice(PROSE[:10])}]({dice.choice(URLS[:3])})"
            case 5:
                return dice.choice(("one<br>two", "vector<int>", "~~old~~", "*new*"))
            case _:
                return " ".join(dice.choice(PROSE[:28]) for _ in range(dice.randrange(1, 5)))

    def _rule(self, _depth: int) -> list[str]:
        return [self._dice.choice(("---", "***", "___", "* * *", "-----"))]

    def _display(self, _depth: int) -> list[str]:
        tex = self._dice.choice(FORMULAS)
        return self._dice.choice((["$$", tex, "$$"], [f"$${tex}$$"], [f"\\[{tex}\\]"]))

    def _footnote(self, _depth: int) -> list[str]:
        return [f"{self.line(4)} with a note[^1].", "", f"[^1]: {self.line(5)}"]

    def _odd(self, _depth: int) -> list[str]:
        """What models rarely write, and never should."""
        dice = self._dice
        return [
            dice.choice(
                (
                    "x" * dice.choice((60, 500, 5000)),
                    "漢" * dice.choice((60, 2500)),
                    " ".join(dice.choice(PROSE) for _ in range(1500)),
                    "\\*escaped\\* \\_marks\\_ \\`and\\` \\# \\[more\\] \\\\ \\~~",
                    "a ** b ** c, 2 * 3, ~~ no ~~, a || b || c, __init__.py and `` `tick` ``",
                    "<details><summary>More</summary>hidden</details>",
                    "<details>\n<summary>More</summary>\n\n- one\n- **two**\n\n</details>",
                    f"half **bold and `code and [link]({dice.choice(URLS)}",
                )
            )
        ]

    def _indented(self, _depth: int) -> list[str]:
        lines = [self._dice.choice(CODE_LINES[:2]) for _ in range(3)]
        return ["Indented code:", "", *(f"    {line}" for line in lines)]

    # --- inside a line

    def line(self, words: int, *, heading: bool = False) -> str:
        """Write some words, some of them marked."""
        out = [self._span(0) for _ in range(words)]
        first = out[0]
        if first.startswith(("-", "+", "*  ", "#", ">", "~", "|", "=", "–")) or first[0].isdigit():
            out[0] = f"so {first}"
        return " ".join(word for word in out if not (heading and "\n" in word))

    def _words(self) -> str:
        return " ".join(self._dice.choice(PROSE[:20]) for _ in range(self._dice.randrange(1, 5)))

    def _span(self, depth: int) -> str:
        dice = self._dice
        if depth > 2 or dice.random() < 0.72:
            return dice.choice(PROSE)
        inner = self._words() if dice.random() < 0.7 else self._inner(depth + 1)
        match dice.randrange(24):
            case 0 | 1 | 2 | 3 | 4:
                return f"**{inner}**"
            case 5 | 6:
                return f"*{self._words()}*"
            case 7:
                return f"_{self._words()}_"
            case 8:
                return f"***{self._words()}***"
            case 9:
                return f"~~{inner}~~"
            case 10 | 11 | 12 | 13:
                return f"`{dice.choice(CODE)}`"
            case 14:
                return dice.choice(("`` a `tick` b ``", "``x``", "`a` and `b`"))
            case 15 | 16:
                return f"[{self._label()}]({dice.choice(URLS)})"
            case 17:
                return dice.choice(
                    (f"<{dice.choice(URLS)}>", dice.choice(URLS[:3]), "<ann@example.org>")
                )
            case 18:
                return dice.choice((f"![a picture]({URLS[0]}/c.png)", "[a file](docs/a_b.md)"))
            case 19:
                return dice.choice(HTML_LIKE)
            case 20:
                return dice.choice(MENTIONS)
            case 21:
                return dice.choice(EMOJI)
            case 22:
                tex = dice.choice(FORMULAS)
                return dice.choice((f"${tex}$", f"\\({tex}\\)"))
            case _:
                return dice.choice((f"||{self._words()}||", f"__{self._words()} it__", "__init__"))

    def _inner(self, depth: int) -> str:
        """Words that hold another mark in the middle."""
        return f"{self._words()} {self._span(depth)} {self._words()}"

    def _label(self) -> str:
        dice = self._dice
        return dice.choice(
            (self._words(), self._words(), f"**{self._words()}**", "`f(x)`", "see [1]")
        )


def text_of(seed: int) -> str:
    """Write the text of a number."""
    return Writer(f"markdown {seed}").text()


NASTY = {
    "html": "vector<int> a; if a<b and c>d say <your-name> &amp; <script>alert(1)</script> &lt;b&gt;",
    "emphasis": "**bold *and italic* `code` more** ~~gone~~ ||secret|| ***both*** **_nested_** *a **b** c*",
    "stars": "2 * 3 ** 4 and 2*3*4, a*b*c, ** no **, **yes**, \\*no\\*, *not closed **either `nor this",
    "names": "snake_case_name, __init__ and __main__.py, __two words__, _one_ two_three_",
    "table": "Before\n\n| a | b \\| c | 日本 |\n|---|:-:|--:|\n| 1 | `x` | 👩\u200d🚀 |\n| <b> | **2** | שלום |\n\nAfter",
    "wide table": "|" + "|".join(f" column {n} " for n in range(24)) + "|\n|" + "---|" * 24 + "\n|"
    + "|".join(f" `v{n}` " for n in range(24)) + "|\n",
    "table of links": "| site | what |\n|---|---|\n| [one](https://e.org/a_(b)) | *new* |\n| ~~two~~ | a<br>b |",
    "lists": "1. one\n   - two\n     - three\n       1. deep\n2. four\n\n- [ ] open\n- [x] done\n* star\n+ plus\n",
    "list with code": "1. Do this:\n   ```sh\n   make run\n   ```\n2. And **that**\n   - deeper\n\n     more words\n3. end",
    "code on the line of a point": "- ```py\n  x = 1\n  ```\n- next **bold**\n\nafter *it*",
    "quotes": "> quoted **bold**\n> > deeper\n> > > deepest\n>\n> ```py\n> # x = 1\n> #### y\n> ```\n> - point\n\nafter",
    "headings": "# One\n## Two ##\n### Three\n#### Four **bold**\n##### Five `code`\n###### Six\nText\n\nSetext\n---\nTop\n===\nMore",
    "links": "[a](https://e.org/x_(y)) ![p](https://e.org/p.png) [bad](javascript:alert) [tg](tg://user?id=1) <https://e.org/a_b_c> [`f`](https://e.org) https://e.org/__x__/y [**b** c](<https://e.org/a b>)",
    "fences": "```python\ndef f():\n    return '**x**'\n```\n~~~yaml\ntilde: `x`\n~~~\n````md\n```\ninner\n```\n````\n```\n\n```\n",
    "tabs in code": "all: x\n\n```make\nall:\n\tgcc -o x\n\n\t\t@echo done\n```\n",
    "code first": "```\n    indented first\nthen not\n```",
    "unclosed": 'Here it comes:\n```rust\nfn main() {\n    println!("``");\n',
    "long info": '```python title="a b.py" linenos {1,3}\nx = 1\n```\n\n``` one two three four five six seven\ny\n```',
    "backticks": "use `` `a` `` or ``` x ``` inline, ` alone, ```` four ``` three ```` and `a``b`",
    "mentions": "@everyone @here <@123> <@!4> <@&5> <!channel> <!here|x> <!subteam^S1> @channel <@U123> `@everyone` **@here**\n```\n@everyone <!channel>\n```",
    "math": "Costs $5 and $10, but $x^2$ and \\(y_1\\) and\n\n$$\nE = mc^2\n$$\n\n\\[\n\\frac{a}{b}\n\\]\nend",
    "emoji": "👨\u200d👩\u200d👧 **family 👍🏽** 🇩🇪🇫🇷 `🎉` [🎈](https://e.org) ~~❤️~~ e\u0301 *Zu\u0308* 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "scripts": "**你好，世界** 和 *日本語*、مرحبا **بالعالم** שלום `קוד` हिन्दी **क्षि** ไทย\n\n- **項目**：説明\n",
    "invisible": "zero\u200bwidth \u2060joiner \ufeffmark so\u00adft \u202eturned\u202c nul\0led \x07bell **b\x1bold** \x7f",
    "line ends": "one\r\ntwo\r\n\r\n# Title\r\n\r\n- a\r\n- **b**\r\n\r\n```c\r\nint x;\r\n```\r\nend\n\nmixed\r\n",
    "breaks": "line one\nline two  \nline three\\\nline four<br>line five\n\n\n\n\nfar\n\n***\n\nend",
    "footnotes": "A claim[^1] and [^two].\n\n[^1]: The **source**.\n[^two]: https://e.org/a_b\n",
    "references": "See [docs], [the **manual**][man] and ![a picture][pic], not [this][one] or `[docs]`.\n\n"
    "> [quoted][docs]\n\n[docs]: https://e.org/a_b 'Title'\n[man]: <https://e.org/man>\n"
    "[pic]:\n  https://e.org/p.png\n\nend",
    "tags": "<b>bold *and* <i>both</i></b> H<sub>2</sub>O, x<sup>n</sup>, <u>under **it**</u> and <code>a*b*c</code>, "
    '<a href="https://e.org/a_b">a <i>link</i></a> <b>open, </i> no end, <kbd>Ctrl</kbd> <s>old</s> <B>B</B>',
    "details": "Before\n\n<details>\n<summary>More **here**</summary>\n\n- one\n- two\n\n```py\nx = 1\n```\n\n"
    "</details>\n\nafter\n<details><summary>Short</summary>hidden</details>\n\n</details>\nend",
    "brackets": "See \\[1\\], a\\[0\\], \\(optional\\), \\[no link\\](x), \\(x_1 + y\\) and \\[ a = b \\] end",
    "unused definitions": "Words.\n\n[1]: https://e.org/a_b_c\n[2]: https://e.org/*\n\nSee [two][2].",
    "escapes": "\\# no heading\n\n\\- no point\n\n1\\. no number\n\n\\> no quote, C:\\dir\\*.txt, \\`no code\\`, \\[no](link), a\\|b",
    "half": "**bold\n\n*italic\n\n`code\n\n[link](https://e.org\n\n| a | b |\n|--\n\n- [ \n\n~~gone ||secret",
    "no border": "**" + "x" * 60 + "** " + "y" * 70 + " `" + "z" * 60 + "`",
    "many marks": " ".join(f"**b{n}** `c{n}`" for n in range(60)),
    "a point in words": "We need\n1. one\n2. two\nand\n- three\nthen 1986. And so on - not a list",
}  # fmt: skip
"""Each beginning of each of these is shown too, as in the middle of an answer."""


def _answers() -> dict[str, str]:
    """Read the answers; a line with three percent signs and a name begins each."""
    text = (Path(__file__).parent / "markdown_answers.txt").read_text(encoding="utf-8")
    parts = re.split(r"^%%% (.+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (part.rstrip("\n") for part in parts[1::2]), strict=True))


ANSWERS = _answers()
"""Whole answers by name, with everything that models put into them."""

SAMPLES = NASTY | ANSWERS
