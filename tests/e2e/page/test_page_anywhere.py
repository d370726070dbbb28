"""What holds for every Holdfast: these tests need only a `place` that serves the page."""

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.e2e.page.hands import opened, ready, rows, send
from tests.e2e.stage import Place

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]


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
    await (await context.new_page()).goto(link)
    async with await browser.new_context() as stranger:
        late = await stranger.new_page()
        await late.goto(link)
        await expect(late.get_by_role("heading")).to_have_text("This link does not work any more")


async def test_who_signs_out_is_outside(page: Page) -> None:
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator("code")).to_have_text("holdfast link")


async def test_a_message_is_answered_once(page: Page) -> None:
    await send(page, "hello there")
    await expect(rows(page, "answer")).to_have_count(1)
    await expect(rows(page, "user")).to_contain_text(["hello there"])
    await page.reload()
    await ready(page)
    await expect(rows(page, "answer")).to_have_count(1)
    await expect(rows(page, "user")).to_contain_text(["hello there"])


async def test_history_and_the_sign_in_survive_a_restart(place: Place, page: Page) -> None:
    await send(page, "before the restart")
    await expect(rows(page, "answer")).to_have_count(1)
    await place.restart()
    await send(page, "after the restart")
    await expect(rows(page, "user")).to_contain_text(["before", "after"], timeout=15_000)
    await expect(rows(page, "answer")).to_have_count(2)
    await page.reload()
    await ready(page)
    await expect(rows(page)).to_have_count(4)


async def test_ten_messages_at_once_are_answered_once_each_in_order(page: Page) -> None:
    words = ["alpha", "bravo", "carol", "delta", "eagle", "fable", "gamma", "hotel", "india", "joy"]
    for word in words:
        await send(page, f"say {word}")
    await expect(rows(page, "answer")).to_have_count(10, timeout=20_000)
    await expect(rows(page, "user")).to_contain_text(words)
    await expect(rows(page, "user").get_by_text("Waiting")).to_have_count(0)
    await expect(page.locator("#unsent .row, #live .row")).to_have_count(0)
    await expect(rows(page)).to_have_count(20)


async def test_two_tabs_show_the_same(context: BrowserContext, page: Page) -> None:
    await send(page, "from the first tab")
    other = await opened(context, page.url)
    await expect(rows(other, "answer")).to_have_count(1)
    await send(other, "from the second tab")
    for tab in (page, other):
        await expect(rows(tab, "user")).to_contain_text(["first tab", "second tab"])
        await expect(rows(tab, "answer")).to_have_count(2)
        await expect(rows(tab)).to_have_count(4)


async def test_conversations_are_listed_opened_and_linked_to(
    context: BrowserContext, page: Page
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
    await chats.filter(has_text="apples").click()
    await expect(rows(page, "user")).to_contain_text(["apples"])
    await expect(page.get_by_role("heading", level=1)).to_contain_text("apples")
    assert page.url == first
    await page.go_back()
    await expect(rows(page, "user")).to_contain_text(["pears"])
    other = await opened(context, first)
    await expect(rows(other, "user")).to_contain_text(["apples"])


async def test_words_not_yet_sent_wait_in_their_conversation(page: Page) -> None:
    box = page.get_by_label("Message", exact=True)
    await box.fill("half a thought")
    await page.get_by_role("link", name="New conversation").click()
    await expect(box).to_have_value("")
    await page.go_back()
    await expect(box).to_have_value("half a thought")
    await page.reload()
    await expect(box).to_have_value("half a thought")
