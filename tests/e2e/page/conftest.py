"""A browser, a server of the page, and a signed-in visitor."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.e2e.page.actions import BrowserProblems, opened
from tests.e2e.page_kit import Place, Stage, staged
from tests.fakes.chromium import ARGUMENTS, CHROMIUM, HAVE_CHROMIUM

expect.set_options(timeout=5_000)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if not HAVE_CHROMIUM:
        pytest.skip("chromium is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
def place(stage: Stage) -> Place:
    """The server of the page: the adapter alone, or a whole daemon."""
    return stage


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser, place: Place) -> AsyncIterator[BrowserContext]:
    """A signed-in browser context; fails the test if the browser reports a problem."""
    context = await browser.new_context(viewport={"width": 1100, "height": 760}, locale="en-GB")
    complaints = BrowserProblems(context, place.url)
    await context.request.get(await place.link())
    yield context
    await context.close()
    assert complaints.found == []


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, place: Place) -> Page:
    return await opened(context, place.url)
