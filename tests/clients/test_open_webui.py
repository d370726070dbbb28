"""Open WebUI in its default settings: chats on its page, driven in a browser."""

import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.clients.kit import Program, Started, free_port, python_program
from tests.clients.relay import Relay
from tests.clients.scripted import Request, plausible, text_of
from tests.clients.settings_page import command_line, exported
from tests.e2e.api_kit import daemon_for
from tests.e2e.daemon import Daemon
from tests.fakes.chromium import ARGUMENTS, CHROMIUM, HAVE_CHROMIUM
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import ModelServer, Received

_START_SECONDS = 300.0
_WAIT_MS = 60_000
_OWN_TOOL = "get_current_timestamp"  # one of Open WebUI's built-in tools
_AGENT_TOOL = "current_time"
_TITLE = "About greetings"
_EXTRAS = {"title": _TITLE, "tags": ["greeting"], "follow_ups": ["And then?"]}
_TASK = "### Task:"
_HALF = "One, two"

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Site(msgspec.Struct, kw_only=True):
    """Open WebUI, the daemon behind it, and the model behind the daemon."""

    url: str
    browser: Browser
    daemon: Daemon
    model: ModelServer
    relay: Relay

    @contextlib.asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """Open the page as a new visitor who confirms the release notes."""
        page = await self.browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(_WAIT_MS)
        notes = page.get_by_role("button", name="Okay, Let's Go!")
        await page.add_locator_handler(notes, notes.click)
        await page.goto(self.url)
        try:
            yield page
        finally:
            await page.close()

    def about(self, text: str) -> list[Received]:
        """Return the requests to the model that end with this message of the person."""
        return [each for each in self.model.requests if each.last_user_text == text]


def answer(request: Request) -> Script:
    """Answer as a model would; the first words of the last message choose the case."""
    said = next(text_of(each) for each in request["messages"][::-1] if each["role"] == "user")
    if any(text_of(each) == _HALF for each in request["messages"]):
        return ok(", three, four.")
    match said.partition(",")[0]:
        case task if task.startswith(_TASK):
            return ok(json.dumps(_EXTRAS))
        case "Slowly":
            return 'H T"Once upon " T"a time" HANG'
        case "Refused":
            return 'S401"Incorrect API key provided."'
        case "Too many":
            return 'S429:{"retry-after":"3000"}"Rate limit reached."'
        case "Your tool":
            return plausible(tools={_OWN_TOOL: {}})(request)
        case "Both tools" if not any(each["role"] == "tool" for each in request["messages"]):
            return calls(("c1", _OWN_TOOL, "{}"), ("c2", _AGENT_TOOL, "{}"))
        case "Both tools":
            return ok("Both clocks agree.")
        case "Agent tool":
            return plausible(tools={_AGENT_TOOL: {}})(request)
        case "Count":
            return ok(_HALF)
        case _:
            return 'H T"Hello " T"from **afar**." F stop U D EOF'


@contextlib.asynccontextmanager
async def started(folder: Path, **more: str) -> AsyncIterator[Site]:
    """Start Open WebUI by the command of the page, a daemon and a model."""
    if not HAVE_CHROMIUM:
        pytest.skip("chromium is not installed")
    programs = python_program("open-webui", "open-webui==0.12.4")
    port = free_port()
    start = command_line("Open WebUI", "open-webui serve", f"--host 127.0.0.1 --port {port}")
    async with (
        ModelServer(answer) as model,
        daemon_for(folder / "home", model) as daemon,
        Relay(daemon.url).listening() as relay,
        async_playwright() as playwright,
        Started(
            *start, env=environment(relay, daemon, programs, folder) | more, cwd=folder
        ) as program,
    ):
        url = f"http://127.0.0.1:{port}/"
        await answers(program)
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield Site(url=url, browser=browser, daemon=daemon, model=model, relay=relay)
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with started(tmp_path_factory.mktemp("open-webui")) as site:
        yield site


def environment(relay: Relay, daemon: Daemon, programs: Path, folder: Path) -> dict[str, str]:
    """Return the variables of a machine without network, with one person who needs no password."""
    return {
        **exported(daemon),
        "GATEWAY_URL": f"{relay.url}/v1",
        "DATA_DIR": str(folder / "data"),
        "HOME": str(folder),
        "OFFLINE_MODE": "true",
        "PATH": f"{programs}:/usr/bin:/bin",
        "RAG_EMBEDDING_ENGINE": "openai",
        "WEBUI_AUTH": "false",
    }


async def answers(program: Program) -> None:
    """Wait until Open WebUI has started; it listens right after the line."""
    await program.says("Scheduler worker started", _START_SECONDS)


async def say(page: Page, text: str) -> None:
    """Type a message and send it."""
    box = page.locator("#chat-input")
    await box.click()
    await page.keyboard.type(text)
    await page.keyboard.press("Enter")


async def shows(page: Page, text: str) -> None:
    """Wait until the page shows this text."""
    await expect(page.get_by_text(text).last).to_be_visible(timeout=_WAIT_MS)


async def test_the_first_message_is_answered_with_its_builtin_tools_on(site: Site) -> None:
    async with site.page() as page:
        await say(page, "Good morning!")
        await shows(page, "Hello from afar.")
        await page.screenshot(path=site.daemon.home.parent / "page.png")
    (asked,) = site.about("Good morning!")
    assert {_OWN_TOOL, _AGENT_TOOL} <= set(asked.tools)
    assert asked.stream


async def test_the_title_is_written_by_the_model_alone(site: Site) -> None:
    async with site.page() as page:
        await say(page, "Good evening!")
        await expect(page).to_have_title(re.compile(_TITLE), timeout=_WAIT_MS)
        await shows(page, "And then?")
    tasks = [each for each in site.model.requests if each.last_user_text.startswith(_TASK)]
    assert len(tasks) >= 2
    (chat, *_) = site.about("Good evening!")
    for each in tasks:
        assert each.tools == {}
        assert each.system == ""
        assert len(each.raw) * 4 < len(chat.raw)


async def test_a_builtin_tool_is_called_and_its_result_is_used(site: Site) -> None:
    async with site.page() as page:
        await say(page, "Your tool, please")
        await shows(page, f"View Result from {_OWN_TOOL}")
        await shows(page, 'The result is {"current_timestamp":')
    first, second = site.about("Your tool, please")
    assert first.messages[-1]["role"] == "user"
    assert '"current_timestamp"' in second.messages[-1]["content"]


async def test_tools_of_the_agent_run_beside_builtin_tools(site: Site) -> None:
    async with site.page() as page:
        await say(page, "Agent tool, please")
        await shows(page, "The result is")
        await say(page, "Both tools, please")
        await shows(page, "Both clocks agree.")
    _, last = site.about("Both tools, please")
    given = [each["content"] for each in last.messages if each["role"] == "tool"]
    assert [each["role"] for each in last.messages[-3:]] == ["assistant", "tool", "tool"]
    assert '"current_timestamp"' in given[0]
    assert "(UTC+0000)" in given[1]


async def test_stop_closes_the_connection_of_the_model(site: Site) -> None:
    async with site.page() as page:
        await say(page, "Slowly, please")
        await shows(page, "Once upon a time")
        (asked,) = site.about("Slowly, please")
        assert not asked.closed.is_set()
        await page.get_by_role("button", name="Stop").click()
        await asked.closed.wait()
        await say(page, "Go on")
        await shows(page, "Hello from afar.")
        await shows(page, "Once upon a time")
    assert asked.left


async def test_an_answer_is_written_again(site: Site) -> None:
    async with site.page() as page:
        await say(page, "Once more!")
        await shows(page, "Hello from afar.")
        await page.get_by_role("button", name="Regenerate").click()
        await page.get_by_role("button", name="Try Again").click()
        await shows(page, "2/2")
        await shows(page, "Hello from afar.")
    for each in site.about("Once more!"):
        assert [message["role"] for message in each.messages] == ["user"]


async def test_an_answer_is_continued(site: Site) -> None:
    async with site.page() as page:
        await say(page, "Count, please")
        await shows(page, "One, two")
        await page.get_by_role("button", name="Continue Response").click()
        await shows(page, "One, two, three, four.")


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("Refused, please", "the model service rejected the API key"),
        ("Too many, please", "the model service"),
    ],
)
async def test_an_error_is_shown_as_a_sentence(site: Site, message: str, sentence: str) -> None:
    async with site.page() as page:
        await say(page, message)
        await shows(page, sentence)


async def test_user_and_chat_are_shown_by_why(site: Site) -> None:
    async with site.page() as page:
        await say(page, "Who am I?")
        await shows(page, "Hello from afar.")
        await expect(page).to_have_url(re.compile("/c/"))
        chat = page.url.rpartition("/c/")[2]
    listed = json.loads(await site.daemon.run("sessions", "list", "--json"))
    (session,) = [each["id"] for each in listed if each["title"] == "Who am I?"]
    said = await site.daemon.run("why", session)
    assert re.search(rf"user [\w-]+, chat {chat}, as the client says", said), said


async def test_chats_work_with_the_api_type_responses(tmp_path: Path) -> None:
    kind = json.dumps({"0": {"enable": True, "api_type": "responses"}})
    async with started(tmp_path, OPENAI_API_CONFIGS=kind) as site, site.page() as page:
        await say(page, "Your tool, please")
        await shows(page, 'The result is {"current_timestamp":')
        await expect(page).to_have_title(re.compile(_TITLE), timeout=_WAIT_MS)
        await say(page, "Agent tool, please")
        await shows(page, "The result is")
        await say(page, "Slowly, please")
        await shows(page, "Once upon a time")
        (asked,) = site.about("Slowly, please")
        await page.get_by_role("button", name="Stop").click()
        await asked.closed.wait()
        await say(page, "Refused, please")
        await shows(page, "the model service rejected the API key")
    assert {each.removeprefix("/v1/") for each in site.relay.paths} == {"models", "responses"}
