"""Texts that chats and the page read alike: the page, and both against each other."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.e2e.page_kit import staged
from tests.faults.markdown_outline import OUTLINE, outline
from tests.faults.markdown_shared import DIFFERENT, SHARED
from tests.faults.markdown_texts import SAMPLES

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sheet(browser: Browser) -> AsyncIterator[Page]:
    """A page of the same origin, in which texts are rendered."""
    async with staged() as stage, await browser.new_context() as context:
        page = await context.new_page()
        await page.goto(stage.url)
        yield page


@pytest.mark.parametrize("name", SHARED)
async def test_the_page_reads_a_shared_text(sheet: Page, name: str) -> None:
    md, expected = SHARED[name]
    assert await sheet.evaluate(OUTLINE, [md]) == [expected]


async def test_chats_and_the_page_read_the_same_in_every_sample(sheet: Page) -> None:
    shown = await sheet.evaluate(OUTLINE, list(SAMPLES.values()))
    different = {
        name for (name, md), each in zip(SAMPLES.items(), shown, strict=True) if each != outline(md)
    }
    assert different == DIFFERENT.keys()
