"""The Markdown renderer of the page, in a real browser, with difficult samples."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.e2e.page_kit import staged
from tests.faults.markdown_shared import SHARED
from tests.faults.markdown_texts import ANSWERS

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Every letter of these samples must be visible.
SAMPLES = {
    "plain": "Hello, world.\nSecond line.\n\nNew paragraph",
    "emphasis": "*a* **b** ***c*** ~~d~~ _e_ __f__ **g *h* i** *j **k** l* **m*n**o*",
    "broken emphasis": "**a *b** c* d** *e _f* g_ ~h~ ~~i ***j** k* l*** **",
    "snake_case": "a_b_c __init__ x_y * z*w 2*3*4 _(a)_ **(b)**c",
    "no spaces": "这是**“重点”**吗,日本語**強調**です",
    "headings": "# a\n## b ##\n###c\n#\n###### f\n####### g\n# h #i\ntext\n# j",
    "rules": "a\n---\nb\n***\n* * *\n- - -\n___\nc\n- d\n---\n",
    "lists": "- a\n- b\n  - c\n    - d\n      1. e\n         - f\n- g\n\n- h\n\n  i\n\nj",
    "list kinds": "* a\n+ b\n- c\n1. d\n2) e\n7. f\n\n10. g\n- \n-\n- h",
    "lazy lists": "- a\nb\n  c\n* d\n**e** f\n1. g\nh\n2. i\n   ```\n   j\n   ```\n   k",
    "tasks": "- [ ] a\n- [x] b\n- [X] c\n- [] d\n- [x]e\n  - [ ] f",
    "quotes": "> a\n> b\nc\n>> d\n> > e\n\n> - f\n>   g\n>\n> ```\n> h\n> ```\ni",
    "fences": "```\na\n```\nb\n~~~~\nc\n~~~\nd\n~~~~\n  ```\n  e\n ```\n````\n```\nf\n",
    "open fence": "a\n```\nb\n\n# c\n- d\n**e**",
    "fence in list": "1. a\n   ```\n   b\n\n   c\n   ```\n2. d\n\n       e",
    "indented": "    a\n    b\n\n    c\nd\n\te\n\n\tf",
    "tables": "| a | b |\n|---|:-:|\n| c | d | e |\n| f |\ng|h\n\ni | j\n--|--\nk\\|l | `m`\n",
    "broken tables": "|a|b|\n|---|\n|c|d|\n\n|e|\n|-|-|\n|\n||\n|f\n",
    "code spans": "`a` ``b ` c`` `d\ne` ``f` g ` h ``` i `` j",
    "escapes": "\\*a\\* \\`b\\` \\[c\\](d) \\\\e \\# f\\\ng \\",
    "brackets": "[a] [b [c] d] [e](f g) [](h) ![i] ]j[ [k](",
    "html": "<x>a</x> <br> <div onclick='c'> d < e > f <!-- g --> &copy h &#; i",
    "spaces": "  a  \n\tb\n   \n \u00a0c\u200bd\n\n\n\n  e",
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f466 *\U0001f44d\U0001f3fd* **\u00e9** `\U0001f1e9\U0001f1ea` - \U0001f642\n- \U0001f643 a",
    "halves": "a\ud83db\ude00c",
    "right to left": "שלום **עולם** `קוד`\n- פריט\n",
    "lists right to left": "1. **نص** أول\n2. second\n\n   فقرة\n3. - داخلي\n\n> - اقتباس\n\n- a\n- ب",
    "math": "a $e^{i\\pi} + 1 = 0$, \\(a_1 * b_2 * c\\), $5 or $6, $$\\sum_i x_i$$\n$$\n\\frac{a}{b} \\\\\n- c * d * e\n# f\n1. g\n$$\nh\n\\[ x = \\{ y \\} \\]\n",
    "broken math": "$$ is money\n\n$$\na\n- b\n\nc\n$$\n\\[ d\n\\(e $f$ \\[g$ $$h $i_j$k $$l_m\n\n\\begin{align}\nn &= o \\\\\n- p\n\\end{align}\n\\begin{cases} q",
    "deep quotes": ">" * 60 + " a\n" + "> " * 60 + "b",
    "deep lists": "".join("  " * depth + "- x\n" for depth in range(40)),
    "dashes": "- - - - a\n1. 1. 1. b\n> - > 1. c\n- > - d\n-\n  e\n-\n\n  f",
    "carriage returns": "a\r\nb\r\n\r\n- c\r\n- d\r\n",
}

# In these samples some letters are addresses or language names, shown elsewhere or not at all.
MORE = {
    "links": "[a](https://b.example/c_(d)) <https://e.example> https://f.example/g?h=1&i=2. (https://j.example/k) [l](<https://m.example/n o> 'p') **https://q.example** www.r.example",
    "languages": "".join(
        f"```{name}\n{code}\n```\n"
        for name, code in {
            "python": "@a\ndef b(c: int = 1) -> str:\n    '''d\n    e'''\n    return f\"{c}\" # g",
            "ts": "const a: Map<string, number> = new Map(); // b\n`c ${d}`; /* e",
            "json": '{"a": [1, -2.5e3, true, null], "b": "c\\"d"}',
            "bash": "# a\nfor b in \"$c\" ${d}; do echo 'e' | grep -v f; done",
            "html": "<!-- a --><div class=\"b\" id=c>d &amp; <br/></div><script>let e = '<f>';</script>",
            "css": "@media (a) { .b:hover, #c { color: #fff; margin: 1.5rem !important } } /* d",
            "sql": "SELECT a, count(*) FROM b WHERE c = 'd''e' -- f\nLIMIT 10;",
            "go": "func a(b []int) (c error) { return fmt.Errorf(`d %v`, 0x1F) }",
            "rust": "fn a<'b>(c: &'b str) -> Option<u8> { println!(\"d{}\", 'e'); None }",
            "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-c\n+d\n e",
            "yaml": "a: 1 # b\n- c: 'd'\n[e]\nf = \"g\"",
            "unknown": 'if (a) { b("c"); } # d // e\n\'f',
            "text": "a <b> 'c",
        }.items()
    ),
    "answer": "Sure! Here is **how**:\n\n1. Install it:\n   ```bash\n   pip install x\n   ```\n2. Use it:\n\n   | a | b |\n   |---|---|\n   | `c` | [d](https://e.example) |\n\n> Note: _careful_.\n\n---\n\n### Next\n- [x] done\n- [ ] open",
}

# Here addresses, tags and labels are not shown as they are written.
MORE |= {
    "tags": '<b>a *b* <i>c</i></b> H<sub>2</sub>O x<sup>n</sup> <u>d **e**</u> <code>f*g*h</code> <a href="https://e.example/i?j=1&amp;k">l <i>m</i> https://n.example</a> <b>o </i> <kbd>p</kbd> *q<b>r*</b> <a href=\'s.py\'>t</a> [u](https://v.example "w")',
    "details": "a\n<details>\n<summary>b **c**</summary>\n\n- d\n\n```\n</details>\n```\n<details>e</details> f\n</details>\ng\n</details>\n- h\n<details open><summary>i</summary>j",
    "references": "See [a], [b **c**][d] and ![e][F], not [g][h] or `[a]`.\n\n> [i][a]\n>\n> [j]: https://j.example\n\n[a]: https://a.example/b_c 'k'\n[d]: <https://d.example>\n[f]:\n  https://f.example\n[l]: https://l.example\n[a]: https://other.example\n\n- [j]\n\n[l]",
    "footnotes": "a[^1] b[^c] d[^e].\n\n[^1]: f **g**\n[^c]: h\n\n[^i]: j",
    "escaped brackets": "a \\[1\\] b\\[0\\] \\(c\\) \\[d\\](e) \\(f_1 + g\\) \\(h\\)\n\\(i\\)\n\\[j\\]",
}

# Grows a text letter by letter and compares each state with a fresh rendering.
GROW = """async (samples) => {
    const { MarkdownView, renderMarkdown } = await import("/web/static/markdown.js");
    const different = [];
    for (const [name, text] of Object.entries(samples)) {
        const grown = document.createElement("div");
        const view = new MarkdownView(grown);
        for (let end = 1; end <= text.length; end += 1) {
            view.update(text.slice(0, end), true);
            const whole = document.createElement("div");
            renderMarkdown(whole, text.slice(0, end));
            if (grown.innerHTML !== whole.innerHTML) {
                different.push([name, text.slice(0, end), grown.innerHTML, whole.innerHTML]);
                break;
            }
        }
    }
    return different;
}"""

LETTERS = """async (samples) => {
    const { renderMarkdown } = await import("/web/static/markdown.js");
    const letters = (text) => text.replace(/[^\\p{L}]/gu, "");
    const lost = [];
    for (const [name, text] of Object.entries(samples)) {
        for (let end = 1; end <= text.length; end += 1) {
            const node = document.createElement("div");
            renderMarkdown(node, text.slice(0, end));
            node.querySelectorAll(".code-head").forEach((head) => head.remove());
            node.querySelectorAll("math").forEach((math) => math.replaceWith(math.querySelector("annotation").textContent));
            // The x of a ticked box is a tick, and a br is a line break, as far as they are whole.
            const ticks = node.querySelectorAll("input[checked]").length;
            const source = text.slice(0, end).replace(/<br>/g, "");
            const [expected, shown] = [letters(source), letters(node.textContent)];
            if (expected.length !== shown.length + ticks || (!ticks && expected !== shown)) {
                lost.push([name, text.slice(0, end), shown]);
                break;
            }
        }
    }
    return lost;
}"""

RENDER = """async (text) => {
    const { renderMarkdown } = await import("/web/static/markdown.js");
    const node = document.createElement("div");
    renderMarkdown(node, text);
    return node.innerHTML;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sheet(browser: Browser) -> AsyncIterator[Page]:
    """An empty page of the same origin for rendering; shared, because tests do not change it."""
    async with staged() as stage, await browser.new_context() as context:
        page = await context.new_page()
        await page.goto(stage.url)
        yield page


async def test_a_growing_text_renders_like_a_complete_one_at_every_step(sheet: Page) -> None:
    assert await sheet.evaluate(GROW, {**SAMPLES, **MORE}) == []


async def test_shared_texts_and_answers_grow_alike(sheet: Page) -> None:
    shared = {name: md for name, (md, _) in SHARED.items()}
    assert await sheet.evaluate(GROW, {**shared, **ANSWERS}) == []


async def test_no_letter_is_lost_at_any_length(sheet: Page) -> None:
    assert await sheet.evaluate(LETTERS, SAMPLES) == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("# a", ['<h3 dir="auto" class="h1">a</h3>']),
        ("**a *b* c**", ["<strong>a <em>b</em> c</strong>"]),
        ("~~a~~ ~b~", ["<del>a</del> ~b~"]),
        ("snake_case_name", ["snake_case_name"]),
        ("这是**“重点”**吗", ["<strong>“重点”</strong>"]),
        ("a\nb", ["a<br>b"]),
        ("- a\n- b", ['<ul dir="ltr"><li>a</li><li>b</li></ul>']),
        ("1. a\n   - b", ['<ol dir="ltr"><li>a<ul dir="ltr"><li>b</li></ul></li></ol>']),
        ("1. **1** نص\n2. b", ['<ol dir="rtl"><li><strong>1</strong> نص</li><li>b</li></ol>']),
        ("- `a`\n\n- ب", ['<ul dir="rtl"><li><p dir="auto">']),
        ("3. a", ['<ol dir="ltr" start="3">']),
        ("- a\n\n- b", ['<li><p dir="auto">a</p></li>']),
        ("> - نص", ['<blockquote dir="rtl"><ul dir="rtl">']),
        ("|اسم|b|\n|-|-|", ['<div class="table" dir="rtl" tabindex="0"']),
        ("$\\fra{a}{b}$", ['<code class="math" dir="ltr">$\\fra{a}{b}$</code>']),
        ("\\(a_1*\\fra*\\) c", ['<code class="math" dir="ltr">\\(a_1*\\fra*\\)</code> c']),
        (
            "\\[ \\fra\\{x\\} \\]",
            ['<pre class="math" dir="ltr" tabindex="0">\\[ \\fra\\{x\\} \\]</pre>'],
        ),
        ("a\n$$\nb \\\\\n- c\n$$\nd", ["<p", '">$$\nb \\\\\n- c\n$$</pre><p']),
        ("\\begin{alig}\na\n\\end{alig}", ['">\\begin{alig}\na\n\\end{alig}</pre>']),
        (
            "a\n$$\nb_1\n$$",
            [
                '<div class="formula" dir="ltr" tabindex="0" role="region"',
                "<msub><mi>b</mi><mn>1</mn></msub>",
            ],
        ),
        ("so \\begin{cases} a \\end{cases} c", ["<mtd><mi>a</mi></mtd>", "</math> c"]),
        ("$5 to $6, US$a", ['<p dir="auto">$5 to $6, US$a</p>']),
        ("- [x] a", ['type="checkbox" disabled="" checked="" aria-label="done"']),
        ("> a\n> > b", ["<blockquote", '<p dir="auto">b</p></blockquote></blockquote>']),
        ("---", ["<hr>"]),
        ("a\n---", ['<p dir="auto">a</p><hr>']),
        ("|a|b|\n|-|-:|\n|c|d|", ['<th dir="auto">a</th>', '<td dir="auto" class="right">d</td>']),
        ("```js\nlet a\n```", ["<span>js</span>", '<span class="t-keyword">let</span> a']),
        ("```py\ndef grüße(): größe\n```", [' <span class="t-call">grüße</span>(): größe']),
        ("`a  b`", ["<code>a  b</code>"]),
        ("[a](https://b.example)", ['href="https://b.example/"', ">a</a>"]),
        ("[www.a.example](https://b.example)", [">https://b.example/</a>"]),
        ("[b.example/a](https://b.example)", [">b.example/a</a>"]),
        ("https://b.example/c).", ['href="https://b.example/c"', "</a>)."]),
        ("<a@b.example>", ['href="mailto:a@b.example"', ">a@b.example</a>"]),
        ("[a](src/b.py)", ["a (src/b.py)"]),
        ("![a](https://b.example/c.png)", ['href="https://b.example/c.png"', ">a</a>"]),
        ("&lt;&#65;&#x42;&amp;&nope;", ["&lt;AB&amp;&amp;nope;"]),
        ("\\*a\\*", ["*a*"]),
        ("<b>a *b*</b> <u>c</u>", ["<strong>a <em>b</em></strong> <u>c</u>"]),
        ("H<sub>2</sub>O x<SUP>n</sup>", ["H<sub>2</sub>O x<sup>n</sup>"]),
        ("<code>a*b*&lt;</code> <kbd>c</kbd>", ["<code>a*b*&lt;</code> <kbd>c</kbd>"]),
        ("<a href='https://b.example'>a</a>", ['href="https://b.example/"', ">a</a>"]),
        ("<a href='https://b.example'>https://c.example</a>", [">https://b.example/</a>"]),
        ("<a href='javascript:a'>b</a>", ['<p dir="auto">b (javascript:a)</p>']),
        ("a <b>c *d<i>e*</i> <a>f</a>", ["a &lt;b&gt;c *d<em>e*</em> &lt;a&gt;f&lt;/a&gt;"]),
        ("<img src=x onerror=alert(1)>", ["&lt;img src=x onerror=alert(1)&gt;"]),
        ("<b onclick='a'>c</b>", ["&lt;b onclick='a'&gt;c&lt;/b&gt;"]),
        (
            "<details>\n<summary>a *b*</summary>\n\n- c\n</details>\nd",
            [
                '<details dir="ltr"><summary dir="auto">a <em>b</em></summary><ul',
                "</ul></details><p",
            ],
        ),
        (
            "[a][r]\n\n[R]: https://b.example 'c'",
            ['href="https://b.example/"', ">a</a></p><!---->"],
        ),
        ("[r]\n\n[r]: src/b.py", ["r (src/b.py)"]),
        ("a\n\n[r]: https://b.example", ["[r]: <a", 'href="https://b.example/"']),
        ("a[^1]\n\n[^1]: b", ["a<sup>[1]</sup></p>", "[1]: b</p>"]),
        ("a[^1]", ["a[^1]"]),
        (
            "[a] x[^1]\n\n[^1]: b\n[a]: https://c.example",
            ['href="https://c.example/"', "[1]: b</p><!---->"],
        ),
        ("<details open>a</details>", ['<details dir="ltr" open="">']),
        ("See \\[1\\] \\(x\\) \\[a\\](b)", ["See [1] (x) [a](b)"]),
        ("\\(x\\)", ["<mi>x</mi>", ">\\(x\\)</annotation>"]),
        ("\\begin{cases}\na\n\\end{cases}", ["<mtd><mi>a</mi></mtd>"]),
    ],
)
async def test_markdown_renders_as_expected(sheet: Page, text: str, parts: list[str]) -> None:
    html = str(await sheet.evaluate(RENDER, text))
    for part in parts:
        assert part in html


@pytest.mark.parametrize(
    "text",
    [
        "*a " * 20_000,
        "**a *b " * 8_000,
        "a*b_" * 15_000,
        "[" * 50_000,
        "[a](" * 12_000,
        "![" * 25_000,
        "]" * 50_000,
        "`a``b```" * 6_000,
        "".join("`" * length + " " for length in range(1, 300)),
        "> " * 25_000,
        "- " * 25_000,
        "a\n" * 25_000,
        "- a\n" * 12_000,
        "- a\nb\n" * 8_000,
        "|a" * 25_000 + "\n" + "|-" * 25_000,
        "<" * 50_000,
        "&#" * 25_000,
        "http://a" * 6_000,
        "https://a.example/" + ")" * 50_000,
        "\\" * 50_000,
        "# " + "#" * 50_000 + "x",
        "* " * 25_000 + "x",
        "```js\n" + "/*" * 9_000,
        "```html\n" + "<a '" * 4_900,
        "```python\n" + "'" * 19_000,
        "~~a" * 15_000,
        "$a" * 25_000,
        "$$a" * 16_000,
        "\\(a" * 16_000,
        "\\[a_" * 12_000,
        "$$\n" * 12_000,
        "$$\na\n\n" * 7_000,
        "<b>" * 16_000,
        "<b>" * 8_000 + "</i>" * 8_000,
        "<b><i>" * 4_000 + "</i></b>" * 4_000,
        "<a href='x' " * 4_000,
        "<details>\n" * 5_000,
        "[a][b] " * 3_500 + "\n\n[b]: c",
        "[a]: b\n" * 7_000,
        "".join(f"[{number}]: b\n" for number in range(4_000)),
        "[a]:" * 12_000,
        "[^1]" * 12_000 + "\n[^1]: a",
    ],
    ids=lambda text: json.dumps(f"{text[:12]}{text[-4:]}"),
)
async def test_a_text_of_50_kb_renders_quickly(sheet: Page, text: str) -> None:
    async with asyncio.timeout(5):
        assert await sheet.evaluate(RENDER, text)
