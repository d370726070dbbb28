"""Actions of a person on the page, and locators."""

from playwright.async_api import (
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
)


class BrowserProblems:
    """Problems reported by the browser: failed scripts, blocked content, foreign addresses."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.found: list[str] = []
        self._url = url
        context.on("console", self._console)
        context.on("weberror", lambda error: self.found.append(str(error.error)))
        context.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # Failed requests are left to the tests that cause them.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.found.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self._url, "data:", "blob:")):
            self.found.append(f"asked for {request.url}")


async def opened(context: BrowserContext, url: str) -> Page:
    """Open the page and wait until it shows the conversation."""
    page = await context.new_page()
    await page.goto(url)
    await ready(page)
    return page


async def ready(page: Page) -> None:
    """Wait until the page shows the conversation."""
    await expect(page.locator("#empty:visible, #log .row, #live .row").first).to_be_visible()


async def send(page: Page, text: str) -> None:
    """Write a message and press Enter."""
    box = page.get_by_label("Message", exact=True)
    await box.fill(text)
    await box.press("Enter")


def rows(page: Page, author: str = "") -> Locator:
    """Return the messages of the conversation, of one author or all."""
    return page.locator(f"#log .row{author and f'.{author}'}")


def words(page: Page, author: str) -> Locator:
    """Return the texts of an author's messages, without buttons and times."""
    return rows(page, author).locator(".body")


def chat_of(page: Page) -> str:
    """Return the id of the open conversation."""
    return page.url.rpartition("/")[2]


async def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(await page.evaluate("document.documentElement.scrollWidth - innerWidth"))
