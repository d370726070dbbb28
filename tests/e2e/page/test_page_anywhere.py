"""Behaviour of the page that needs only the demo model: on the stage and on a whole daemon."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.e2e.daemon import Daemon
from tests.e2e.page.actions import opened, ready, rows, send
from tests.e2e.page_kit import Place, staged

pytestmark = pytest.mark.asyncio(loop_scope="session")


class DaemonPlace:
    """A whole daemon as the server of the page."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    @property
    def url(self) -> str:
        return f"{self._daemon.url}/"

    async def link(self) -> str:
        return await self._daemon.link()

    async def restart(self) -> None:
        assert await self._daemon.stop() == 0
        await self._daemon.start()


@pytest_asyncio.fixture(params=["stage", "daemon"], loop_scope="session")
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "stage":
        async with staged() as stage:
            yield stage
    else:
        async with Daemon(tmp_path, warm=True) as daemon:
            yield DaemonPlace(daemon)


async def test_a_stranger_sees_instructions_and_a_link_signs_in(
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


async def test_a_used_link_explains_itself(
    browser: Browser, context: BrowserContext, place: Place
) -> None:
    link = await place.link()
    await (await context.new_page()).goto(link)
    async with await browser.new_context() as stranger:
        late = await stranger.new_page()
        await late.goto(link)
        await expect(late.get_by_role("heading")).to_have_text("This link no longer works")


async def test_signing_out_shows_the_instructions(page: Page) -> None:
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator("code")).to_have_text("holdfast link")


async def test_a_message_is_answered_once(page: Page) -> None:
    await send(page, "hello there")
    await expect(rows(page, "answer")).to_have_count(1, timeout=15_000)
    await expect(rows(page, "user")).to_contain_text(["hello there"])
    await page.reload()
    await ready(page)
    await expect(rows(page, "answer")).to_have_count(1, timeout=15_000)
    await expect(rows(page, "user")).to_contain_text(["hello there"])


async def test_history_and_sign_in_survive_a_restart(place: Place, page: Page) -> None:
    await send(page, "before the restart")
    await expect(rows(page, "answer")).to_have_count(1, timeout=15_000)
    await place.restart()
    await send(page, "after the restart")
    await expect(rows(page, "user")).to_contain_text(["before", "after"], timeout=15_000)
    await expect(rows(page, "answer")).to_have_count(2, timeout=15_000)
    await page.reload()
    await ready(page)
    await expect(rows(page)).to_have_count(4)


async def test_two_tabs_show_the_same(context: BrowserContext, page: Page) -> None:
    await send(page, "from the first tab")
    other = await opened(context, page.url)
    await expect(rows(other, "answer")).to_have_count(1)
    await send(other, "from the second tab")
    for tab in (page, other):
        await expect(rows(tab, "user")).to_contain_text(["first tab", "second tab"])
        await expect(rows(tab, "answer")).to_have_count(2, timeout=15_000)
        await expect(rows(tab)).to_have_count(4)


async def test_conversations_can_be_listed_opened_and_linked(
    context: BrowserContext, page: Page
) -> None:
    await send(page, "about apples")
    await expect(rows(page, "answer")).to_have_count(1, timeout=15_000)
    first = page.url
    await page.get_by_role("link", name="New conversation").click()
    await expect(page.locator("#empty")).to_be_visible()
    assert page.url != first
    await send(page, "about pears")
    await expect(rows(page, "answer")).to_have_count(1, timeout=15_000)
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


async def test_unsent_text_stays_with_its_conversation(page: Page) -> None:
    box = page.get_by_label("Message", exact=True)
    await box.fill("half a thought")
    await page.get_by_role("link", name="New conversation").click()
    await expect(box).to_have_value("")
    await page.go_back()
    await expect(box).to_have_value("half a thought")
    await page.reload()
    await expect(box).to_have_value("half a thought")
