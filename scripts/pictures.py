"""Takes the screenshots of the README, in docs/images/: `python -m scripts.pictures`.

The gateway, the page, the terminal and the tool server are real; only the model is scripted. Needs
chromium, tmux and a font with emoji, such as Noto Color Emoji.
"""

import argparse
import asyncio
import html
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mcp.server.mcpserver import MCPServer
from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from gateway.config.loader import read_environment
from tests.e2e.daemon import LINK, Daemon
from tests.e2e.page.actions import opened, rows, send
from tests.fakes.chromium import ARGUMENTS, CHROMIUM
from tests.fakes.model_script import Hang, Head, Script, calls, ok, text
from tests.fakes.model_server import ModelServer

IMAGES = Path(__file__).parents[1] / "docs/images"
COLUMNS, LINES = 78, 22  # of the terminal
PATIENCE = 15.0


class View(NamedTuple):
    """Size of a screen, in CSS pixels."""

    width: int
    height: int
    scale: int = 1
    touch: bool = False


PHONE, DESKTOP = View(390, 844, scale=2, touch=True), View(1280, 800)

DINNER = "Dinner for Grandma's 80th?"
PLACE = "**Trattoria Lucia** has a garden, and cooks without nuts for Ben. Shall I book?"
CHOICE = "Yes! Saturday, 6 pm, 7 of us 🎂"
BOOKING = """\
{"place": "Trattoria Lucia", "when": "Saturday, 18:00", "guests": 7, "note": "No nuts, please"}"""

SMALL_TALK = ("Packing list for Rome", "Help with fractions", "Meals for the week")
BACKUP = "How do I copy our family photos to the NAS every night?"
BACKUP_ANSWER = """\
Run `crontab -e` and add one line:

```sh
30 2 * * *  rsync -a ~/photos/ nas:/family/photos/
```

- It runs at **half past two**, when everyone is asleep.
- It copies only new and changed photos.
- Photos that you delete stay on the NAS."""
GUIDE = "Great! Now write a guide to our home network."
GUIDE_ANSWER = "**1. The router** is in the hall. It connects the house to the internet and"

SOUP = "What can I cook tonight with leeks, potatoes and a little cream?"
SOUP_ANSWER = """\
Leek and potato soup, ready in 30 minutes, for four:

1. Slice 3 leeks and soften them in butter for 5 minutes.
2. Add 500 g of diced potatoes and 1 litre of stock.
3. Simmer for 20 minutes, then blend.
4. Stir in the cream. Season with salt, pepper and nutmeg."""
FREEZE = "Can I freeze what is left?"
FREEZE_ANSWER = """\
Yes, for up to 3 months. Freeze the soup before you add the cream,
and stir the cream in when you warm it up."""

ANSWERS: dict[str, Script] = {
    DINNER: ok(PLACE),
    CHOICE: calls(("call_1", "book_table", BOOKING)),
    BACKUP: ok(BACKUP_ANSWER),
    GUIDE: (Head(), text(GUIDE_ANSWER), Hang()),
    SOUP: ok(SOUP_ANSWER),
    FREEZE: ok(FREEZE_ANSWER),
}

WINDOW = """\
<!doctype html><meta charset="utf-8"><style>
body { margin: 0; width: max-content }
main { border-radius: 10px; background: #14191c; color: #dbe2e4; overflow: hidden }
header { padding: 11px 14px; background: #22292d; display: flex; gap: 8px }
header i { width: 12px; height: 12px; border-radius: 50%; background: #56626a }
pre { margin: 0; padding: 14px 20px 18px; min-width: 72ch; font: 15px/1.45 "DejaVu Sans Mono", monospace }
</style><main><header><i></i><i></i><i></i></header><pre>"""

IS_READ = """async () => {
  const open = location.hash.split("/").pop();
  const { chats } = await (await fetch("/web/chats")).json();
  const seen = JSON.parse(localStorage.getItem("holdfast.seen") ?? "{}");
  return chats.some(({ id, at }) => id === open && seen[id] >= at);
}"""
"""True once the page has marked the newest state of the open conversation as read."""


def answer(body: dict[str, Any]) -> Script:
    """Return the script for the last question of a request."""
    asked = str(body["messages"][-1]["content"])
    return next((script for question, script in ANSWERS.items() if question in asked), ok("Done."))


def serve_tools() -> None:
    """Serve the tool that needs approval over standard input and output."""
    server = MCPServer("restaurants", log_level="WARNING")

    @server.tool()
    async def book_table(place: str, when: str, guests: int, note: str) -> str:
        """Book a table at a restaurant."""
        return f"Booked at {place}: {when}, {guests} guests. {note}"

    server.run("stdio")


@asynccontextmanager
async def running_gateway(home: Path) -> AsyncIterator[Daemon]:
    """Run a gateway with the scripted model and the tool server."""
    async with ModelServer(answer) as model:
        config = home / "holdfast.toml"
        config.write_text(
            "[model]\n"
            'provider = "openai"\nname = "scripted"\napi_key = "sk-none"\n'
            f'base_url = "{model.url}"\n'
            "[[mcp]]\n"
            'name = "restaurants"\n'
            f'command = "{sys.executable}"\nargs = ["-m", "scripts.pictures", "--tools"]\n',
            encoding="utf-8",
        )
        config.chmod(0o600)
        async with Daemon(home, env={"HOLDFAST_CONFIG": str(config)}) as daemon:
            yield daemon


@asynccontextmanager
async def signed_in(browser: Browser, daemon: Daemon, view: View) -> AsyncIterator[Page]:
    """Open the page in a new browser context."""
    link = next(LINK.finditer(await daemon.run("link")))[0]
    size = ViewportSize(width=view.width, height=view.height)
    async with await browser.new_context(
        locale="en-GB",
        viewport=size,
        device_scale_factor=view.scale,
        is_mobile=view.touch,
        has_touch=view.touch,
    ) as context:
        await context.request.get(link)
        yield await opened(context, f"{daemon.url}/")


async def capture_phone(browser: Browser, daemon: Daemon) -> None:
    """Capture an approval request on a phone."""
    async with signed_in(browser, daemon, PHONE) as page:
        await ask(page, DINNER)
        await send(page, CHOICE)
        await expect(page.get_by_role("button", name="Allow")).to_be_in_viewport()
        await save(page, "phone-approval.png")
        await page.get_by_role("button", name="Allow").click()
        await expect(rows(page, "answer")).to_have_count(2)


async def capture_desktop(browser: Browser, daemon: Daemon) -> None:
    """Capture a formatted answer and a stopped task on a desktop."""
    async with signed_in(browser, daemon, DESKTOP) as page:
        for question in (*SMALL_TALK, BACKUP):
            await page.get_by_role("link", name="New conversation").click()
            await expect(page.locator("#empty")).to_be_visible()
            await ask(page, question)
        await send(page, GUIDE)
        await expect(page.locator("#live .row.draft")).to_contain_text("the internet")
        await page.get_by_role("button", name="Stop the answer").click()
        await expect(rows(page, "notice")).to_contain_text("Stopped")
        await save(page, "web-chat.png")


async def capture_terminal(browser: Browser, daemon: Daemon) -> None:
    """Capture `holdfast chat` in a terminal."""
    async with terminal(daemon.home) as shell:
        await shell.type("holdfast chat", "lists commands")
        await shell.type(SOUP, "nutmeg")
        await shell.type(FREEZE, "warm it up")
        screen = await shell.wait_for(lambda screen: screen.endswith("\n>"))
    async with await browser.new_context(device_scale_factor=2) as context:
        page = await context.new_page()
        await page.set_content(f"{WINDOW}{html.escape(screen)}</pre></main>")
        target = IMAGES / "terminal-chat.png"
        await page.locator("main").screenshot(path=target, omit_background=True)


async def ask(page: Page, question: str) -> None:
    """Send the first question of a conversation and wait for the answer."""
    await send(page, question)
    await expect(rows(page, "answer")).to_have_count(1)
    await list_as_read(page)


async def list_as_read(page: Page) -> None:
    """Wait until the page lists the newest state of the open conversation as read."""
    await page.wait_for_function(IS_READ, polling=100)


async def save(page: Page, name: str) -> None:
    """Write a screenshot of the page, as it is after its animations."""
    await list_as_read(page)
    await page.screenshot(path=IMAGES / name, animations="disabled")


class Shell:
    """A shell in a tmux of its own."""

    def __init__(self, home: Path) -> None:
        self._socket = str(home / "tmux")
        programs = Path(sys.executable).parent
        environment = read_environment()
        start = home / "shell"
        start.write_text("PS1='$ '\n", encoding="utf-8")
        self._environment = {
            **environment,
            "ENV": str(start),
            "HOLDFAST_HOME": str(home),
            "PATH": f"{programs}:{environment['PATH']}",
        }

    async def tmux(self, *words: str) -> str:
        """Run a command of tmux and return its output."""
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-f", "/dev/null", "-S", self._socket, *words),
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        return output.decode()

    async def screen(self) -> str:
        """Return the text on the screen."""
        return await self.tmux("capture-pane", "-p")

    async def type(self, line: str, expected: str) -> None:
        """Type a line and wait until the screen shows the expected text."""
        await self.tmux("send-keys", "-l", line)
        await self.tmux("send-keys", "Enter")
        await self.wait_for(lambda screen: expected in screen)

    async def wait_for(self, is_expected: Callable[[str], bool]) -> str:
        """Wait for a screen, and return its text without the empty lines at the end."""
        async with asyncio.timeout(PATIENCE):
            # tmux has no event for a change of the screen.
            while not is_expected(screen := (await self.screen()).rstrip()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        return screen


@asynccontextmanager
async def terminal(home: Path) -> AsyncIterator[Shell]:
    """Run a shell that uses the gateway of a state folder."""
    shell = Shell(home)
    size = ("-x", str(COLUMNS), "-y", str(LINES))
    await shell.tmux("new-session", "-d", *size, "sh")
    try:
        await shell.tmux("set", "status", "off")
        await shell.wait_for(lambda screen: screen.endswith("$"))
        yield shell
    finally:
        await shell.tmux("kill-server")


async def main() -> None:
    """Take all screenshots."""
    expect.set_options(timeout=PATIENCE * 1_000)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            running_gateway(Path(folder)) as daemon,
            async_playwright() as playwright,
            await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS) as browser,
        ):
            await capture_phone(browser, daemon)
            await capture_desktop(browser, daemon)
            await capture_terminal(browser, daemon)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", action="store_true", help="serve the tool, for the gateway")
    if parser.parse_args().tools:
        serve_tools()
    else:
        asyncio.run(main())
