"""Markdown as the page shows it, read in Chromium."""

from collections.abc import Iterable

from playwright.async_api import async_playwright

from tests.e2e.page_kit import staged
from tests.fakes.chromium import ARGUMENTS, CHROMIUM
from tests.faults.markdown_causes import Shown

VISIBLE = """async (texts) => {
    const { renderMarkdown } = await import("/web/static/markdown.js");
    const BLOCKS = "p, h1, h2, h3, h4, h5, h6, li, pre, blockquote, tr, td, th, details, summary, div, hr, br, ul, ol";
    const source = (node) => node.querySelector("annotation")?.textContent ?? node.textContent;
    return texts.map((text) => {
        const node = document.createElement("div");
        renderMarkdown(node, text);
        node.querySelectorAll(".code-head").forEach((head) => head.remove());
        node.querySelectorAll("input").forEach((box) => box.replaceWith(box.checked ? "☑" : "☐"));
        node.querySelectorAll("math").forEach((math) => {
            const code = document.createElement("code");
            code.textContent = source(math);
            math.replaceWith(code);
        });
        node.querySelectorAll("ol").forEach((list) =>
            [...list.children].forEach((item, index) => item.prepend(`${list.start + index}. `)));
        node.querySelectorAll(BLOCKS).forEach((block) => { block.before("\\n"); block.append("\\n"); });
        const whole = node.textContent;
        node.querySelectorAll("pre, code").forEach((code) => code.remove());
        return [node.textContent, whole];
    });
}"""


async def shown_on_page(texts: Iterable[str]) -> list[Shown]:
    """Return the visible text of each Markdown text, as the page renders it."""
    async with staged() as stage, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = await browser.new_page()
        await page.goto(stage.url)
        found = await page.evaluate(VISIBLE, list(texts))
        await browser.close()
    return [Shown(prose, whole) for prose, whole in found]
