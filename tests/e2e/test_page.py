"""The page in a real browser.

Tests that take `place` ask only what holds for every Holdfast and can run against a whole daemon;
those that take `stage` tell the agent behind the page what to answer (see stage.py).
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Route,
    async_playwright,
    expect,
)

from tests.e2e.stage import Place, Stage, staged

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="chromium is not installed"),
    pytest.mark.timeout(60),  # the first start of a browser may be slow
]

expect.set_options(timeout=5_000)


@pytest.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture(loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
def place(stage: Stage) -> Place:
    return stage


class Complaints:
    """What the browser found wrong: failed scripts, blocked contents, foreign addresses."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.found: list[str] = []
        self._url = url
        context.on("console", self._console)
        context.on("weberror", lambda error: self.found.append(str(error.error)))
        context.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # That a request failed is the page's business; the tests that break things look at it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.found.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self._url, "data:", "blob:")):
            self.found.append(f"asked for {request.url}")


@pytest.fixture(loop_scope="module")
async def context(browser: Browser, place: Place) -> AsyncIterator[BrowserContext]:
    """A browser that is signed in."""
    context = await browser.new_context(viewport={"width": 1100, "height": 760}, locale="en-GB")
    complaints = Complaints(context, place.url)
    page = await context.new_page()
    await page.goto(await place.link())
    await page.close()
    yield context
    await context.close()
    assert complaints.found == []


@pytest.fixture(loop_scope="module")
async def page(context: BrowserContext, place: Place) -> Page:
    return await opened(context, place.url)


async def opened(context: BrowserContext, url: str) -> Page:
    page = await context.new_page()
    await page.goto(url)
    await ready(page)
    return page


async def ready(page: Page) -> None:
    """The page has everything that was said so far."""
    await expect(page.locator("#empty:visible, #log .row, #live .row").first).to_be_visible()


async def send(page: Page, text: str) -> None:
    box = page.get_by_label("Message", exact=True)
    await box.fill(text)
    await box.press("Enter")


def rows(page: Page, author: str = "") -> Any:
    return page.locator(f"#log .row{author and f'.{author}'}")


# --- coming in ---------------------------------------------------------------------------------


async def test_a_stranger_is_told_how_to_come_in_and_a_link_lets_in(
    browser: Browser, place: Place
) -> None:
    async with await browser.new_context() as context:
        page = await context.new_page()
        answer = await page.goto(place.url)
        assert answer is not None
        assert answer.status == 200
        await expect(page.locator("code")).to_have_text("holdfast link")
        await page.goto(await place.link())
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()
        assert "/enter/" not in page.url


async def test_a_used_link_says_so(browser: Browser, context: BrowserContext, place: Place) -> None:
    link = await place.link()
    page = await context.new_page()
    await page.goto(link)
    async with await browser.new_context() as stranger:
        late = await stranger.new_page()
        await late.goto(link)
        await expect(late.get_by_role("heading")).to_have_text("This link does not work any more")


async def test_who_signs_out_is_outside(page: Page) -> None:
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator("code")).to_have_text("holdfast link")


# --- a message and its answer ------------------------------------------------------------------


async def test_a_message_is_answered_once(place: Place, page: Page) -> None:
    await send(page, "hello there")
    await expect(rows(page, "user")).to_have_count(1)
    await expect(rows(page, "answer")).to_have_count(1)
    await expect(rows(page, "user")).to_contain_text("hello there")
    await page.reload()
    await ready(page)
    await expect(rows(page, "user")).to_have_count(1)
    await expect(rows(page, "answer")).to_have_count(1)


async def test_an_answer_grows_before_ones_eyes(stage: Stage, page: Page) -> None:
    await send(page, "half The first words of it, and then the **second** part")
    draft = page.locator("#live .row.draft")
    await expect(draft).to_contain_text("The first words")
    await expect(draft).not_to_contain_text("part")
    await expect(page).to_have_title(
        "✍ half The first words of it, and then the **second** part · Holdfast"
    )
    await draft.evaluate("(node) => { node.mark = 'the same element'; }")
    stage.go.set()
    answer = rows(page, "answer")
    await expect(answer).to_contain_text("and then the second part")
    await expect(answer.locator("strong")).to_have_text("second")
    await expect(draft).to_have_count(0)
    # The draft became the answer: nothing vanished and came again in between.
    assert await answer.evaluate("(node) => node.mark") == "the same element"
    await expect(page.locator("#announce")).to_contain_text("and then the")


async def test_a_reload_in_the_middle_loses_and_doubles_nothing(stage: Stage, page: Page) -> None:
    await send(page, "half one two three four five six seven eight")
    await expect(page.locator("#live .row")).to_contain_text("one two")
    await page.reload()
    await expect(page.locator("#live .row")).to_contain_text("one two")
    stage.go.set()
    await expect(rows(page, "answer")).to_contain_text("one two three four five six seven eight")
    await expect(rows(page)).to_have_count(2)
    await expect(page.locator("#live .row")).to_have_count(0)


async def test_a_restart_in_the_middle_loses_and_doubles_nothing(stage: Stage, page: Page) -> None:
    await send(page, "half one two three four five six seven eight")
    await expect(page.locator("#live .row")).to_contain_text("one two")
    await stage.stop()
    await expect(page.locator("#link-state")).to_have_text("Reconnecting…")
    assert (await page.title()).startswith("Reconnecting…")
    await send(page, "say while nobody was there")
    await expect(page.locator("#unsent .row")).to_contain_text("cannot be reached")
    stage.go.set()
    await stage.start()
    await expect(page.locator("#link-state")).to_be_empty()
    await expect(rows(page, "answer")).to_have_text(
        ["one two three four five six seven eight", "while nobody was there"]
    )
    await expect(rows(page, "user")).to_have_count(2)
    await expect(page.locator("#unsent .row, #live .row")).to_have_count(0)


async def test_history_and_the_sign_in_survive_a_restart(place: Place, page: Page) -> None:
    await send(page, "before the restart")
    await expect(rows(page, "answer")).to_have_count(1)
    await place.restart()
    await send(page, "after the restart")
    await expect(rows(page, "user")).to_have_count(2)
    await expect(rows(page, "answer")).to_have_count(2)
    await page.reload()
    await ready(page)
    await expect(rows(page)).to_have_count(4)


async def test_a_message_whose_receipt_was_lost_is_stored_once(stage: Stage, page: Page) -> None:
    tries = []

    async def lose_first(route: Route) -> None:
        tries.append(route.request.post_data_json["id"])
        if len(tries) == 1:
            await route.fetch()  # it arrives, but the page never hears of it
            await route.abort()
        else:
            await route.continue_()

    # Without its stream the page cannot see the row either.
    await page.route("**/events*", lambda route: route.abort())
    await stage.restart()
    await page.route("**/messages", lose_first)
    await send(page, "say only once")
    await expect(page.locator("#unsent .row")).to_contain_text("Send again")
    await expect(page.locator("#unsent .row")).not_to_contain_text("Send again")
    assert len(tries) == 2
    assert tries[0] == tries[1]
    await page.unroute("**/events*")
    await page.reload()
    await expect(rows(page, "user")).to_have_count(1)
    await expect(rows(page, "answer")).to_have_text(["only once"])


async def test_what_could_not_be_stored_stays_and_can_be_sent_again(
    stage: Stage, page: Page
) -> None:
    stage.broken = True
    await send(page, "say important words")
    unsent = page.locator("#unsent .row")
    await expect(unsent).to_contain_text("could not be stored just now")
    await page.reload()  # even now nothing is forgotten
    await expect(unsent).to_contain_text("important words")
    await expect(unsent).to_contain_text("could not be stored just now")
    stage.broken = False
    await unsent.get_by_role("button", name="Send again").click()
    await expect(rows(page, "answer")).to_have_text(["important words"])
    await expect(unsent).to_have_count(0)
    assert (
        await page.evaluate("Object.keys(localStorage).filter((key) => /unsent/.test(key))") == []
    )


async def test_a_message_that_is_too_long_says_so_and_can_be_given_up(page: Page) -> None:
    await send(page, "x" * 1_100_000)
    unsent = page.locator("#unsent .row")
    await expect(unsent).to_contain_text("too long")
    await unsent.get_by_role("button", name="Discard").click()
    await expect(unsent).to_have_count(0)


async def test_ten_messages_at_once_are_answered_once_each_in_order(
    place: Place, page: Page
) -> None:
    words = [
        "alpha",
        "bravo",
        "carol",
        "delta",
        "eagle",
        "fable",
        "gamma",
        "hotel",
        "india",
        "joker",
    ]
    for word in words:
        await send(page, f"say {word}")
    await expect(rows(page, "answer")).to_have_count(10)
    await expect(rows(page, "user")).to_contain_text(words)
    await expect(rows(page, "user").get_by_text("Waiting")).to_have_count(0)
    await expect(page.locator("#unsent .row, #live .row")).to_have_count(0)
    await expect(rows(page)).to_have_count(20)


async def test_two_tabs_show_the_same(place: Place, context: BrowserContext, page: Page) -> None:
    other = await opened(context, page.url)
    await send(page, "from the first tab")
    for tab in (page, other):
        await expect(rows(tab, "user")).to_have_count(1)
        await expect(rows(tab, "answer")).to_have_count(1)
    await send(other, "from the second tab")
    for tab in (page, other):
        await expect(rows(tab, "user")).to_contain_text(["first tab", "second tab"])
        await expect(rows(tab, "answer")).to_have_count(2)


async def test_edits_and_deletions_are_shown(stage: Stage, page: Page) -> None:
    item = await stage.post(chat_of(page), "first words")
    await expect(rows(page, "answer")).to_have_text(["first words"])
    await stage.edit(chat_of(page), item, "better words")
    await expect(rows(page, "answer")).to_have_text(["better words"])
    await stage.delete(chat_of(page), item)
    await expect(rows(page)).to_have_count(0)


async def test_states_of_messages_are_told(stage: Stage, page: Page) -> None:
    await send(page, "hang")
    await send(page, "say waiting")
    await expect(rows(page, "user").last).to_contain_text("Waiting for its turn")
    [_, waiting] = stage.archive.of(chat_of(page))
    for state, words in (("held", "Kept with the stopped"), ("refused", "Not taken")):
        stage.archive.change(chat_of(page), waiting.id, state=state)
        stage.adapter._hub.said(chat_of(page))
        await expect(rows(page, "user").last).to_contain_text(words)


# --- stop, retry, buttons ----------------------------------------------------------------------


async def test_the_stop_button_ends_an_answer(stage: Stage, page: Page) -> None:
    stop = page.get_by_role("button", name="Stop the answer")
    await expect(stop).to_be_hidden()
    await send(page, "hang")
    await expect(page.locator("#thinking")).to_be_visible()
    await stop.click()
    await expect(rows(page, "notice")).to_contain_text("Stopped")
    await expect(stop).to_be_hidden()
    await expect(page.locator("#thinking")).to_be_hidden()
    await expect(rows(page, "user")).to_contain_text(["hang", "/stop"])


async def test_a_draft_of_a_stopped_answer_goes_away(stage: Stage, page: Page) -> None:
    await send(page, "half this will never be finished, whatever happens")
    await expect(page.locator("#live .row")).to_be_visible()
    await page.get_by_role("button", name="Stop the answer").click()
    await expect(page.locator("#live .row")).to_have_count(0)


async def test_only_the_last_answer_can_be_tried_again(stage: Stage, page: Page) -> None:
    await send(page, "say one")
    await expect(rows(page, "answer")).to_have_count(1)
    await send(page, "say two")
    await expect(rows(page, "answer")).to_have_count(2)
    retry = page.get_by_role("button", name="Try again")
    await expect(retry).to_have_count(1)
    await retry.click()
    await expect(rows(page, "user")).to_contain_text(["say one", "say two", "/retry"])


async def test_buttons_of_a_notice_are_pressed_once(stage: Stage, page: Page) -> None:
    await send(page, "notice I was restarted.")
    await page.get_by_role("button", name="Continue").click()
    await expect(rows(page, "notice")).to_contain_text(["restarted", "You pressed /resume."])
    await expect(page.get_by_role("button", name="Start over")).to_be_disabled()


# --- several conversations ---------------------------------------------------------------------


async def test_conversations_are_listed_opened_and_linked_to(
    place: Place, context: BrowserContext, page: Page
) -> None:
    await send(page, "about apples")
    await expect(rows(page, "answer")).to_have_count(1)
    first = page.url
    await page.get_by_role("link", name="New conversation").click()
    await expect(page.locator("#empty")).to_be_visible()
    assert page.url != first
    await send(page, "about pears")
    await expect(rows(page, "answer")).to_have_count(1)
    await expect(rows(page, "user")).to_contain_text(["pears"])
    chats = page.get_by_role("navigation").locator("#chats a")
    await expect(chats).to_have_count(2)
    await chats.filter(has_text="apples").click()
    await expect(rows(page, "user")).to_contain_text(["apples"])
    await expect(page.get_by_role("heading", level=1)).to_contain_text("apples")
    assert page.url == first
    await page.go_back()
    await expect(rows(page, "user")).to_contain_text(["pears"])
    other = await opened(context, first)
    await expect(rows(other, "user")).to_contain_text(["apples"])


async def test_news_in_another_conversation_is_marked(stage: Stage, page: Page) -> None:
    await send(page, "say one")
    await expect(rows(page, "answer")).to_have_count(1)
    chat = chat_of(page)
    await expect(page.locator("#chats a")).to_have_count(1)
    await page.get_by_role("link", name="New conversation").click()
    await expect(page.locator("#empty")).to_be_visible()
    await stage.post(chat, "a reminder")
    await expect(page.locator("#chats a.fresh")).to_have_count(1)
    await expect(page).to_have_title("(1) New conversation · Holdfast")
    await page.locator("#chats a").click()
    await expect(rows(page, "answer")).to_contain_text(["one", "a reminder"])
    await expect(page.locator("#chats a.fresh")).to_have_count(0)


async def test_words_not_yet_sent_wait_in_their_conversation(page: Page) -> None:
    box = page.get_by_label("Message", exact=True)
    await box.fill("half a thought")
    await page.get_by_role("link", name="New conversation").click()
    await expect(box).to_have_value("")
    await page.go_back()
    await expect(box).to_have_value("half a thought")
    await page.reload()
    await expect(box).to_have_value("half a thought")


# --- what an answer may contain ----------------------------------------------------------------

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
    '[a](https://ok.example/" onclick="window.hacked=1)',
    "<svg/onload=window.hacked=1>",
    '<a href="javascript:window.hacked=1">x</a>',
    "```html\n<img src=x onerror=window.hacked=1>\n```",
    '```"><img src=x onerror=window.hacked=1>\ncode\n```',
    "`<img src=x onerror=window.hacked=1>`",
    "| <img src=x onerror=window.hacked=1> |\n|---|\n| <script>window.hacked=1</script> |",
    "# <iframe src=javascript:window.hacked=1>",
    "&lt;img src=x onerror=window.hacked=1&gt;",
]
ALLOWED = {
    "a": {"href", "target", "rel", "title"},
    "button": {"type", "class", "data-copy", "aria-label"},
    "div": {"class", "tabindex", "role", "aria-label"},
    "input": {"type", "disabled", "checked", "aria-label"},
    "li": {"dir", "class"},
    "ol": {"start"},
    "pre": {"tabindex", "dir"},
    "svg": {"aria-hidden"},
    "td": {"dir", "class"},
    "th": {"dir", "class"},
    "use": {"href"},
    **{name: {"dir", "class"} for name in ("p", "h3", "h4", "h5", "h6", "blockquote")},
    **{name: {"class"} for name in ("span",)},
    **{name: set() for name in ("br", "code", "del", "em", "hr", "strong", "ul")},
    **{name: set() for name in ("table", "thead", "tbody", "tr")},
}


async def test_no_words_become_more_than_words(stage: Stage, page: Page) -> None:
    for attack in ATTACKS:
        await send(page, f"say {attack}")
        await stage.post(chat_of(page), attack, "notice")
    await expect(rows(page)).to_have_count(3 * len(ATTACKS))
    found = await page.evaluate(
        """() => [...document.querySelectorAll("#log .body *")].map((node) => ({
            tag: node.localName,
            attributes: node.getAttributeNames(),
            href: node.localName === "a" ? node.href : "",
        }))"""
    )
    for node in found:
        allowed = ALLOWED[node["tag"]] | (
            {"class", "dir", "type", "data-do"} if node["tag"] in {"div", "button"} else set()
        )
        assert set(node["attributes"]) <= allowed, node
        assert node["href"].startswith(("", "https://ok.example/")), node
        if node["tag"] == "a":
            assert node["href"].startswith("https://"), node
    # Pressing every link runs nothing either.
    await page.evaluate("""() => document.querySelectorAll("#log a").forEach((link) => {
        link.addEventListener("click", (event) => event.preventDefault());
        link.click();
    })""")
    assert await page.evaluate("window.hacked") is None
    await expect(rows(page, "user").first).to_contain_text(ATTACKS[0])
    await expect(rows(page, "answer").first).to_contain_text(ATTACKS[0])


async def test_code_is_coloured_and_can_be_copied(
    stage: Stage, context: BrowserContext, page: Page
) -> None:
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = 'def add(a, b):\n    """Add."""\n    return a + 41  # nearly\n'
    await send(page, f"say Look:\n\n```python\n{code}```\n")
    block = rows(page, "answer").locator(".code")
    await expect(block.locator(".t-keyword")).to_have_text(["def", "return"])
    await expect(block.locator(".t-string")).to_have_text('"""Add."""')
    await expect(block.locator(".t-number")).to_have_text("41")
    await expect(block.locator(".t-comment")).to_have_text("# nearly")
    await expect(block.locator(".t-call")).to_have_text("add")
    await block.get_by_role("button", name="Copy this code").click()
    await expect(page.locator("#announce")).to_have_text("Copied.")
    assert await page.evaluate("navigator.clipboard.readText()") == code.rstrip("\n")
    await rows(page, "answer").get_by_role("button", name="Copy", exact=True).click()
    assert "```python" in await page.evaluate("navigator.clipboard.readText()")


async def test_a_long_message_and_a_long_answer_are_whole(stage: Stage, page: Page) -> None:
    words = " ".join(f"word{number}" for number in range(6_000))  # about 55 KB
    await send(page, f"say {words}")
    await expect(rows(page, "answer")).to_have_text([words])
    await rows(page, "user").get_by_role("button", name="Show all of it").click()
    await expect(rows(page, "user").locator(".words")).to_have_text(f"say {words}")
    assert await overflow(page) == 0


async def test_a_thousand_rows_can_be_looked_back_on(stage: Stage, page: Page) -> None:
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
    await expect(rows(page, "answer").last).to_have_text("still quick")
    await expect(rows(page, "answer").last).to_be_in_viewport()


async def test_the_reader_who_scrolls_up_is_left_in_peace(stage: Stage, page: Page) -> None:
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


# --- looks and hands ---------------------------------------------------------------------------


async def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(await page.evaluate("document.documentElement.scrollWidth - innerWidth"))


async def test_everything_can_be_done_from_the_keyboard(stage: Stage, page: Page) -> None:
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
    await expect(rows(page, "notice")).to_contain_text("Stopped")
    await page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(30):
        await page.keyboard.press("Tab")
        reached.append(
            await page.evaluate(
                "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent || document.activeElement.id"
            )
        )
    reachable = " ".join(reached)
    for name in ("Skip to", "New conversation", "Theme", "Sign out", "Copy", "Try again"):
        assert name in reachable, reachable


async def test_every_button_and_link_has_a_name(stage: Stage, page: Page) -> None:
    await send(page, "say ```python\ncode\n``` and more")
    await expect(rows(page, "answer")).to_have_count(1)
    nameless = await page.evaluate(
        """() => [...document.querySelectorAll("button, a, textarea, input")].filter((node) =>
            !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length)
        ).map((node) => node.outerHTML)"""
    )
    assert nameless == []


async def test_on_a_phone_the_list_is_a_drawer_and_nothing_sticks_out(
    stage: Stage, page: Page
) -> None:
    wide = "| " + " | ".join(["column"] * 12) + " |\n" + "|---" * 12 + "|\n"
    await page.set_viewport_size({"width": 360, "height": 740})
    await send(page, f"say {'x' * 400}\n\n{wide}\n```\n{'y' * 400}\n```\n`{'z' * 300}`")
    await expect(rows(page, "answer")).to_have_count(1)
    assert await overflow(page) == 0
    drawer = page.get_by_role("navigation", name="Conversations")
    await expect(drawer).to_be_hidden()
    await page.get_by_role("button", name="Conversations").click()
    await expect(drawer).to_be_visible()
    await expect(page.get_by_role("link", name="New conversation")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(drawer).to_be_hidden()
    await page.get_by_role("button", name="Conversations").click()
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
async def test_every_text_can_be_read(stage: Stage, page: Page, scheme: Any) -> None:
    await page.emulate_media(color_scheme=scheme)
    code = '# note\n@mark\ndef f(x: Int) -> str:\n    return "text" + 12\n'
    await send(page, f"say [link](https://x.example) `code`\n\n> quote\n\n```py\n{code}```")
    await send(page, "notice something with `code`")
    await send(page, "/help")
    await expect(rows(page)).to_have_count(6)
    weak = await page.evaluate(CONTRAST)
    assert weak == []


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
        for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
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
    for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
        if (!own || !node.checkVisibility({ opacityProperty: false }) || node.closest(":disabled, noscript, .toast")) continue;
        const below = ground(node);
        const [a, b] = [light(over(parse(getComputedStyle(node).color), below)), light(below)];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) weak.push(`${node.localName}.${node.className} ${node.textContent.slice(0, 20)}: ${ratio.toFixed(2)}`);
    }
    return weak;
}"""


async def test_right_to_left_words_run_right_to_left(stage: Stage, page: Page) -> None:
    await send(page, "say שלום עולם\n\nand English")
    paragraphs = rows(page, "answer").locator("p")
    await expect(paragraphs).to_have_count(2)
    directions = await paragraphs.evaluate_all(
        "(nodes) => nodes.map((node) => getComputedStyle(node).direction)"
    )
    assert directions == ["rtl", "ltr"]


def chat_of(page: Page) -> str:
    return page.url.rpartition("/")[2]
