"""Content of answers: text is never more than text, and all of it is shown."""

import re

import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.e2e.page.actions import chat_of, overflow, rows, send, words
from tests.e2e.page_kit import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

SPOKEN = """# Result

The **first** part has `code` and [a link](https://example.org/x).

1. one
2. two

```python
print("hi")
```

| a | b |
|---|---|
| c | d |"""
WATCH = """() => {
    const region = document.querySelector("#announce");
    window.spoken = [];
    const watcher = new MutationObserver(() => window.spoken.push(region.textContent));
    watcher.observe(region, { childList: true, characterData: true, subtree: true });
}"""


async def test_the_live_region_speaks_the_text_of_a_finished_answer_once(
    stage: Stage, page: Page
) -> None:
    await page.evaluate(WATCH)
    await send(page, f"say {SPOKEN}")
    await expect(rows(page, "answer")).to_have_count(1)
    assert await page.evaluate("window.spoken") == [
        'Result\nThe first part has code and a link.\none\ntwo\nprint("hi")\na b\nc d'
    ]
    await stage.post(chat_of(page), "word " * 400)
    await expect(page.locator("#announce")).to_have_text(re.compile(r"^(word )+…$"))
    assert len(await page.locator("#announce").inner_text()) <= 1_002


ATTACKS = [
    '<img src=x onerror="window.hacked = 1">',
    "<script>window.hacked = 1</script>",
    "[click](javascript:window.hacked=1)",
    "[click](JaVaScRiPt:window.hacked=1)",
    "[click](java\nscript:window.hacked=1)",
    "[click](&#106;avascript:window.hacked=1)",
    "[click](data:text/html,<script>parent.hacked=1</script>)",
    "[click](vbscript:x)",
    "[click](//evil.example/x)",
    "<javascript:window.hacked=1>",
    "![x](https://evil.example/track.png)",
    '![x" onerror="window.hacked=1](x)',
    '[a](https://ok.example/"onclick="window.hacked=1)',
    "<svg/onload=window.hacked=1>",
    '<a href="javascript:window.hacked=1">x</a>',
    "```html\n<img src=x onerror=window.hacked=1>\n```",
    '```"><img src=x onerror=window.hacked=1>\ncode\n```',
    "`<img src=x onerror=window.hacked=1>`",
    "| <img src=x onerror=window.hacked=1> |\n|---|\n| <script>window.hacked=1</script> |",
    "# <iframe src=javascript:window.hacked=1>",
    "&lt;img src=x onerror=window.hacked=1&gt;",
]

_TEXT = {"dir", "class"}
ALLOWED = {
    "a": {"href", "target", "rel", "title"},
    "button": {"type", "class", "data-copy", "data-do", "aria-label"},
    "div": {"class", "dir", "tabindex", "role", "aria-label"},
    "input": {"type", "disabled", "checked", "aria-label"},
    "ol": {"start", "dir"},
    "pre": {"tabindex", "dir", "class"},
    "span": {"class"},
    "svg": {"aria-hidden"},
    "use": {"href"},
    **dict.fromkeys(("p", "h3", "h4", "h5", "h6", "blockquote", "li", "td", "th"), _TEXT),
    **{name: set[str]() for name in ("br", "code", "del", "em", "hr", "strong", "ul")},
    "ul": {"dir"},
    **{name: set[str]() for name in ("table", "thead", "tbody", "tr")},
}

ELEMENTS = """() => [...document.querySelectorAll("#log .body *")].map((node) => ({
    tag: node.localName,
    attributes: node.getAttributeNames(),
    href: node.getAttribute("href"),
}))"""


async def test_text_never_becomes_active_content(stage: Stage, page: Page) -> None:
    for attack in ATTACKS:
        await send(page, f"say {attack}")
        await stage.post(chat_of(page), attack, "notice")
    await expect(rows(page)).to_have_count(3 * len(ATTACKS))
    links = 0
    for node in await page.evaluate(ELEMENTS):
        assert set(node["attributes"]) <= ALLOWED[node["tag"]], node
        if node["tag"] == "a":
            links += 1
            assert node["href"].startswith(("https://ok.example/", "https://evil.example/")), node
        if node["tag"] == "use":
            assert node["href"].startswith("#i-"), node
    assert links
    # Clicking every link runs nothing either.
    await page.evaluate("""() => document.querySelectorAll("#log a").forEach((link) => {
        link.addEventListener("click", (event) => event.preventDefault());
        link.click();
    })""")
    assert await page.evaluate("window.hacked") is None
    await expect(words(page, "user").first).to_have_text(f"say {ATTACKS[0]}")
    await expect(words(page, "answer").first).to_have_text(ATTACKS[0])


async def test_code_is_coloured_and_can_be_copied(context: BrowserContext, page: Page) -> None:
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = 'def add(a, b):\n    """Add."""\n    return a + 41  # nearly'
    await send(page, f"say Look:\n\n```python\n{code}\n```\n")
    block = rows(page, "answer").locator(".code")
    await expect(block.locator(".t-keyword")).to_have_text(["def", "return"])
    await expect(block.locator(".t-string")).to_have_text('"""Add."""')
    await expect(block.locator(".t-number")).to_have_text("41")
    await expect(block.locator(".t-comment")).to_have_text("# nearly")
    await expect(block.locator(".t-call")).to_have_text("add")
    await block.get_by_role("button", name="Copy this code").click()
    await expect(page.locator("#announce")).to_have_text("Copied.")
    assert await page.evaluate("navigator.clipboard.readText()") == code
    await rows(page, "answer").get_by_role("button", name="Copy", exact=True).click()
    await expect(rows(page, "answer").locator(".tool.copied")).to_have_count(1)
    assert "```python" in await page.evaluate("navigator.clipboard.readText()")


async def test_long_messages_and_answers_are_shown_completely(page: Page) -> None:
    many = " ".join(f"word{number}" for number in range(6_000))  # about 55 KB
    await send(page, f"say {many}")
    await expect(words(page, "answer")).to_have_text([many])
    await rows(page, "user").get_by_role("button", name="Show all").click()
    await expect(rows(page, "user").locator(".words")).to_have_text(f"say {many}")
    assert await overflow(page) == 0


async def test_a_thousand_older_rows_can_be_loaded(stage: Stage, page: Page) -> None:
    for number in range(1_000):
        stage.archive.put(chat_of(page), f"old{number}", f"**row** `{number}`")
    await page.reload()
    await expect(rows(page)).to_have_count(100)
    earlier = page.get_by_role("button", name="Show earlier messages")
    await earlier.click()
    await expect(rows(page)).to_have_count(400)
    await earlier.click()
    await expect(rows(page)).to_have_count(1_000)
    await expect(earlier).to_be_hidden()
    shown = await rows(page).locator("code").all_text_contents()
    assert shown == [str(number) for number in range(1_000)]
    await send(page, "say still quick")
    await expect(words(page, "answer").last).to_have_text("still quick")
    await expect(rows(page, "answer").last).to_be_in_viewport()


async def test_right_to_left_text_is_shown_right_to_left(page: Page) -> None:
    await send(page, "say שלום עולם\n\nand English")
    paragraphs = rows(page, "answer").locator("p")
    await expect(paragraphs).to_have_count(2)
    directions = await paragraphs.evaluate_all(
        "(nodes) => nodes.map((node) => getComputedStyle(node).direction)"
    )
    assert directions == ["rtl", "ltr"]


OBJECT_WORDS = (
    "constructor",
    "__proto__",
    "toString",
    "hasOwnProperty",
    "valueOf",
    "__defineGetter__",
)


async def test_a_code_block_in_a_language_named_like_an_object_property_is_shown(
    page: Page,
) -> None:
    for word in OBJECT_WORDS:
        await send(page, f"say ```{word}\nif ({word}) return 1\n```")
        await expect(words(page, "answer").last).to_contain_text(f"if ({word}) return 1")
    await page.reload()
    await expect(words(page, "answer")).to_have_count(len(OBJECT_WORDS))
    await expect(page.locator("#link-state")).to_be_empty()


async def test_a_row_that_cannot_be_drawn_is_plain_text_and_the_stream_continues(
    stage: Stage, page: Page
) -> None:
    await page.evaluate(
        """() => {
            const create = document.createElement.bind(document);
            document.createElement = (tag) => {
                if (tag === "table") throw new Error("no tables here");
                return create(tag);
            };
        }"""
    )
    await send(page, "say | a | b |\n|---|---|\n| c | d |")
    await expect(words(page, "answer").last).to_contain_text("| c | d |")
    await send(page, "say **next**")
    await expect(words(page, "answer").last.locator("strong")).to_have_text("next")
    await expect(page.locator("#link-state")).to_be_empty()
    await stage.post(chat_of(page), "| e |\n|---|\n| f |")
    await expect(words(page, "answer").last).to_contain_text("| f |")


async def test_an_event_that_cannot_be_read_does_not_end_the_stream(
    stage: Stage, page: Page
) -> None:
    await send(page, "say before")
    await expect(words(page, "answer").last).to_have_text("before")
    await page.evaluate(
        """() => {
            const parse = JSON.parse;
            JSON.parse = (text) => {
                if (String(text).includes("unreadable")) throw new SyntaxError("unreadable");
                return parse(text);
            };
        }"""
    )
    await stage.post(chat_of(page), "unreadable")
    await stage.post(chat_of(page), "after")
    await expect(words(page, "answer").last).to_have_text("after")
    await expect(page.locator("#link-state")).to_be_empty()
