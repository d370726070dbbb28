"""Keyboard, phone and colours: everything is visible and reachable."""

from typing import Literal

import pytest
from playwright.async_api import Page, expect

from tests.e2e.page.actions import chat_of, overflow, rows, send
from tests.e2e.page_kit import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOCUSED = """() => {
    const node = document.activeElement;
    return node.getAttribute("aria-label") || node.labels?.[0]?.textContent || node.textContent;
}"""

NAMELESS = """() => [...document.querySelectorAll("button, a, textarea, input")].filter((node) =>
    !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length)
).map((node) => node.outerHTML)"""

# The contrast between the text of every element and its background.
CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const parse = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
    const ground = (node) => {
        const layers = [];
        for (let at = node; at; at = at.parentElement) {
            layers.push(parse(getComputedStyle(at).backgroundColor));
        }
        return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
    };
    const light = (color) => {
        const [r, g, b] = color.map((value) => {
            const part = value / 255;
            return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const weak = [];
    let seen = 0;
    for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
        if (!own || !node.checkVisibility({ visibilityProperty: true })) continue;
        if (node.closest(":disabled, noscript, .toast")) continue;
        seen += 1;
        const below = ground(node);
        const color = over(parse(getComputedStyle(node).color), below);
        const [a, b] = [light(color), light(below)];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) weak.push(`${node.localName}.${node.className}: ${ratio.toFixed(2)}`);
    }
    return { seen, weak };
}"""


async def test_scrolling_up_stops_following(stage: Stage, page: Page) -> None:
    for number in range(60):
        stage.archive.put(chat_of(page), f"old{number}", f"row {number}")
    await page.reload()
    await expect(rows(page).last).to_be_in_viewport()
    await page.locator("#scroll").evaluate("(box) => { box.scrollTop = 0; }")
    newest = page.get_by_role("button", name="Newest")
    await expect(newest).to_be_visible()
    await stage.post(chat_of(page), "something new")
    await expect(rows(page)).to_have_count(61)
    await expect(rows(page).first).to_be_in_viewport()
    await newest.click()
    await expect(rows(page).last).to_be_in_viewport()
    await expect(newest).to_be_hidden()


async def test_growing_text_is_not_mistaken_for_scrolling_up(stage: Stage, page: Page) -> None:
    for number in range(60):
        stage.archive.put(chat_of(page), f"old{number}", f"row {number}")
    await page.reload()
    await expect(rows(page).last).to_be_in_viewport()
    await page.evaluate(
        """() => {
          const tall = document.createElement("div");
          tall.style.height = "3000px";
          document.querySelector("#log").append(tall);
          document.querySelector("#scroll").dispatchEvent(new Event("scroll"));
        }"""
    )
    await stage.post(chat_of(page), "something new")
    await expect(rows(page).last).to_contain_text("something new")
    await expect(rows(page).last).to_be_in_viewport()
    await expect(page.get_by_role("button", name="Newest")).to_be_hidden()


async def test_writing_and_stopping_work_with_the_keyboard(page: Page) -> None:
    box = page.get_by_label("Message", exact=True)
    await expect(box).to_be_focused()
    await page.keyboard.type("first line")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("second line")
    await expect(box).to_have_value("first line\nsecond line")
    assert await box.evaluate("(node) => node.rows") == 2
    await page.keyboard.press("Enter")
    await expect(box).to_have_value("")
    await expect(rows(page, "answer")).to_have_count(1)
    await page.keyboard.type("hang")
    await page.keyboard.press("Enter")
    stop = page.get_by_role("button", name="Stop the answer")
    await expect(stop).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(stop).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(rows(page, "notice")).to_contain_text(["Stopped"])
    await page.keyboard.press("Escape")
    await expect(box).to_be_focused()


async def test_the_tab_key_reaches_everything_in_order(page: Page) -> None:
    await send(page, "say ```python\ncode\n``` and [a link](https://x.example)")
    await expect(rows(page, "answer")).to_have_count(1)
    await page.reload()
    await expect(rows(page, "answer")).to_have_count(1)
    await page.get_by_role("link", name="Skip to the message box").focus()
    reached = []
    for _ in range(14):
        await page.keyboard.press("Tab")
        reached.append(str(await page.evaluate(FOCUSED)).strip())
    order = iter(reached)
    for name in ("New conversation", "Theme", "Sign out", "Copy this code", "Try again", "Message"):
        assert any(name in reached for reached in order), (name, reached)


async def test_every_button_and_link_has_a_name(page: Page) -> None:
    await send(page, "say ```python\ncode\n```\n- [x] done")
    await expect(rows(page, "answer")).to_have_count(1)
    assert await page.evaluate(NAMELESS) == []


async def test_on_a_phone_the_list_is_a_drawer_and_nothing_overflows(page: Page) -> None:
    wide = "| " + " | ".join(["column"] * 12) + " |\n" + "|---" * 12 + "|\n"
    await page.set_viewport_size({"width": 360, "height": 740})
    await send(page, f"say {'x' * 400}\n\n{wide}\n```\n{'y' * 400}\n```\n`{'z' * 300}`")
    await expect(rows(page, "answer")).to_have_count(1)
    assert await overflow(page) == 0
    drawer = page.get_by_role("navigation", name="Conversations")
    menu = page.get_by_role("button", name="Conversations")
    await expect(drawer).to_be_hidden()
    await menu.click()
    await expect(drawer).to_be_visible()
    await expect(page.get_by_role("link", name="New conversation")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(drawer).to_be_hidden()
    await expect(menu).to_be_focused()
    await menu.click()
    await page.get_by_role("link", name="New conversation").click()
    await expect(drawer).to_be_hidden()
    await expect(page.locator("#empty")).to_be_visible()


async def test_the_theme_follows_the_system_or_the_choice(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(ground)
    await page.emulate_media(color_scheme="dark")
    dark = await page.evaluate(ground)
    assert dark != light
    button = page.get_by_role("button", name="Theme")
    await button.click()
    await expect(button).to_have_text("Theme: light")
    assert await page.evaluate(ground) == light
    await page.reload()
    assert await page.evaluate(ground) == light
    await button.click()
    await expect(button).to_have_text("Theme: dark")
    assert await page.evaluate(ground) == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_has_enough_contrast(page: Page, scheme: Literal["light", "dark"]) -> None:
    await page.emulate_media(color_scheme=scheme)
    code = '# note\n@mark\ndef f(x: Int) -> str:\n    return g("text" + 12)\n'
    diff = "```diff\n+ new\n- old\n@@ place\n```"
    await send(page, f"say [link](https://x.example) `code`\n\n> quote\n\n```py\n{code}```\n{diff}")
    await send(page, "notice something with `code`")
    await send(page, "/help")
    await expect(rows(page)).to_have_count(6)
    found = await page.evaluate(CONTRAST)
    assert found["seen"] > 30
    assert found["weak"] == []


async def test_a_question_is_completely_visible_on_a_phone(stage: Stage, page: Page) -> None:
    await page.set_viewport_size({"width": 360, "height": 700})
    command = "make tea --strong " * 8 + "x" * 200 + "; rm -rf /"
    await stage.post(chat_of(page), f"🔐 May I use **run**?\n```\n{command}\n```", "notice")
    code = rows(page, "notice").locator("pre")
    await expect(code).to_contain_text("rm -rf /")
    assert await code.evaluate("(node) => node.scrollWidth - node.clientWidth") == 0


@pytest.mark.parametrize("text", ["1. نص **أول**\n2. item", "- نص\n\n- نص"])
async def test_the_marks_of_an_arabic_list_stand_inside_the_column(
    stage: Stage, page: Page, text: str
) -> None:
    await stage.post(chat_of(page), text)
    item = rows(page, "answer").locator("li").first
    margins = await item.evaluate(
        """(item) => {
            const [own, list] = [item, item.parentElement].map((node) => node.getBoundingClientRect());
            return [getComputedStyle(item).direction, own.left - list.left, list.right - own.right];
        }"""
    )
    assert margins[:2] == ["rtl", 0]
    assert margins[2] >= 20  # room for the mark, which is at the right of the item
