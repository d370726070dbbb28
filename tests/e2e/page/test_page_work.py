"""The page while the agent works: questions, status line, thoughts.

With a whole gateway and a scripted model.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from agent.settings import AgentSettings, Timeouts
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from gateway.runner import GatewayRunner
from gateway.settings import GatewaySettings, HttpSettings, Settings
from platforms.core.registry import load_specs
from tests.e2e.page.actions import overflow, rows, send, words
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUICK = Timeouts(backoff=0.01, notice_after=0.3, first_token=1.5)


class GatewayPlace:
    """A gateway with its page, a scripted model, and tools that wait for a signal."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.looked = asyncio.Event()
        self.model = ModelServer(self._says)
        self.runner: GatewayRunner
        self._quiet = 0

    @property
    def url(self) -> str:
        assert self.runner.url
        return self.runner.url

    async def link(self) -> str:
        link = await self.runner.operations["link"]()
        assert isinstance(link, str)
        return link

    async def restart(self) -> None:
        msg = "this one runs a whole gateway, which these tests never restart"
        raise NotImplementedError(msg)

    def _says(self, body: dict[str, Any]) -> Script:
        if body["messages"][-1]["role"] == "tool":
            return f'H T"It said: {body["messages"][-1]["content"]}" F stop U D'
        match last_user_text(body):
            case "pay":
                return 'H T"I will pay." C(0,c1,pay,{"amount":12}) F tool_calls U D'
            case "pay silently":
                return 'H C(0,c1,pay,{"amount":12}) F tool_calls U D'
            case "look":
                return 'H T"I look." C(0,c1,look,{"topic":"snails"}) F tool_calls U D'
            case "quiet":
                self._quiet += 1
                return "H HANG" if self._quiet == 1 else 'H T"Here I am." F stop U D'
            case "think":
                return 'H R"First *this*. " R"Then that. " W1 T"It is " W.6 T"42." F stop U D'
            case "think fast":
                return 'H R"In a hurry." T"It is 42." F stop U D'
            case said:
                return f'H T"You said: {said}" F stop U D'

    def tools(self) -> tuple[Tool, ...]:
        @tool(risk=Risk.NET, label="amount", emoji="💶")
        async def pay(context: ToolContext, amount: int) -> str:  # noqa: ARG001 - every tool has one
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool(risk=Risk.READ, label="topic", emoji="🐌")
        async def look(context: ToolContext, topic: str) -> str:  # noqa: ARG001 - every tool has one
            """Look slowly."""
            await self.looked.wait()
            return f"looked at {topic}"

        return (pay, look)


@contextlib.asynccontextmanager
async def working(home: Path, agent: AgentSettings) -> AsyncIterator[GatewayPlace]:
    shop = GatewayPlace()
    async with shop.model as model, asyncio.TaskGroup() as group:
        settings = Settings(
            gateway=GatewaySettings(drain_seconds=0),
            http=HttpSettings(port=0),
            model=scripted_model(
                model,
                timeouts=QUICK,
            ),
            agent=agent,
        )
        served = {name: spec for name, spec in load_specs().items() if name in {"web", "console"}}
        shop.runner = GatewayRunner(settings, home, specs=served, tools=shop.tools())
        group.create_task(shop.runner.run())
        async with asyncio.timeout(10):
            await shop.runner.ready.wait()
        try:
            yield shop
        finally:
            shop.runner.stopping.set()
            shop.runner.skip_drain.set()


@pytest_asyncio.fixture(loop_scope="session")
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[GatewayPlace]:
    agent = getattr(request, "param", AgentSettings())
    async with working(tmp_path, agent) as shop:
        yield shop


def status(page: Page) -> Locator:
    return page.locator("#live .status")


async def test_a_question_is_answered_by_its_button(place: GatewayPlace, page: Page) -> None:
    await send(page, "pay")
    question = rows(page, "notice")
    await expect(question).to_contain_text(["May I use pay?"])
    await expect(question.locator("code").first).to_contain_text('"amount": 12')
    await expect(page.locator("#thinking")).to_have_text("Waiting for your answer")
    await expect(page).to_have_title("🔐 pay · Holdfast")
    await expect(status(page)).to_have_text("🔐 Waiting for an answer")
    await expect(status(page)).to_be_hidden()  # the status is sent once
    assert place.paid == []
    await page.get_by_role("button", name="Allow").click()
    await expect(question).to_contain_text(["✅ Allowed by web:owner."])
    await expect(question.get_by_role("button", name="Allow")).to_have_count(0)
    await expect(words(page, "answer")).to_have_text(["I will pay.It said: paid 12"])
    await expect(page.locator("#thinking")).to_be_hidden()
    await expect(page).to_have_title("pay · Holdfast")
    assert place.paid == [12]


async def test_a_question_before_any_text_leaves_no_empty_answer(
    place: GatewayPlace, page: Page
) -> None:
    await send(page, "pay silently")
    await expect(page.locator("#thinking")).to_have_text("Waiting for your answer")
    await expect(status(page)).to_have_text("🔐 Waiting for an answer")
    await expect(page.locator("#live .draft")).to_be_hidden()
    await page.get_by_role("button", name="Allow").click()
    await expect(words(page, "answer")).to_have_text(["It said: paid 12"])
    assert place.paid == [12]


async def test_a_question_survives_a_reload_and_can_be_denied(
    place: GatewayPlace, page: Page
) -> None:
    await send(page, "pay")
    await expect(page.get_by_role("button", name="Deny")).to_be_visible()
    await page.reload()
    await expect(page.locator("#thinking")).to_have_text("Waiting for your answer")
    await page.get_by_role("button", name="Deny").click()
    await expect(rows(page, "notice")).to_contain_text(["🚫 Denied by web:owner."])
    await expect(words(page, "answer")).to_contain_text(["pay has NOT run: denied by web:owner"])
    assert place.paid == []


async def test_a_question_of_a_stopped_answer_is_closed(place: GatewayPlace, page: Page) -> None:
    await send(page, "pay")
    await expect(page.get_by_role("button", name="Allow")).to_be_visible()
    await page.get_by_role("button", name="Stop the answer").click()
    await expect(rows(page, "notice")).to_contain_text(["⏹ The task has ended", "⏹ Stopped."])
    await expect(page.get_by_role("button", name="Allow")).to_have_count(0)
    await expect(page.locator("#thinking")).to_be_hidden()
    assert place.paid == []


async def test_stop_and_try_again_are_no_messages_of_the_person(
    place: GatewayPlace, page: Page
) -> None:
    await send(page, "look")
    await expect(status(page)).to_contain_text("🐌 snails")
    await page.get_by_role("button", name="Stop the answer").click()
    await expect(rows(page, "notice")).to_contain_text(["⏹ Stopped."])
    place.looked.set()
    await page.get_by_role("button", name="Try again").click()
    await expect(words(page, "answer").last).to_have_text("I look.It said: looked at snails")
    await expect(words(page, "user")).to_have_text(["look"])


async def test_the_answer_to_a_queued_message_quotes_it(place: GatewayPlace, page: Page) -> None:
    await send(page, "look")
    await expect(status(page)).to_contain_text("🐌 snails")
    await send(page, "the *second* message, " + "which is long " * 20)
    await expect(rows(page, "user").last).to_contain_text("Waiting for its turn")
    place.looked.set()
    await expect(words(page, "answer")).to_have_count(2)
    quotes = rows(page, "answer").locator(".quoted")
    await expect(quotes).to_have_count(1)
    await expect(rows(page, "answer").last.locator(".quoted")).to_have_text(
        re.compile(r"^the \*second\* message, (which is long )+.*…$")
    )
    await page.reload()
    await expect(quotes).to_have_count(1)
    await quotes.click()
    await expect(rows(page, "user").last).to_be_focused()
    assert await overflow(page) == 0


async def test_the_silence_of_the_model_is_shown_until_it_answers(page: Page) -> None:
    await send(page, "quiet")
    await expect(status(page)).to_have_text(
        re.compile(r"^⏳ scripted: no output for \d+s, reconnecting at \d+s$")
    )
    await expect(words(page, "answer")).to_have_text(["Here I am."])
    await expect(page.locator(".status")).to_have_count(0)


async def test_a_running_tool_is_shown_with_its_duration(place: GatewayPlace, page: Page) -> None:
    await send(page, "look")
    await expect(status(page)).to_have_text("🐌 snails")
    await expect(page.locator("#live .body")).to_have_text("I look.")
    await expect(status(page)).to_have_text(re.compile(r"^🐌 snails \(\d s\)$"))
    place.looked.set()
    await expect(words(page, "answer")).to_have_text(["I look.It said: looked at snails"])
    await expect(page.locator(".status")).to_have_count(0)


@pytest.mark.parametrize(
    "place", [AgentSettings(show_reasoning=True)], indirect=True, ids=["shown"]
)
async def test_thoughts_are_open_until_the_answer_begins(page: Page) -> None:
    await send(page, "think")
    thoughts = page.locator("#live .row.thoughts")
    await expect(thoughts.locator(".body")).to_have_text("First this. Then that.")
    await expect(thoughts.locator(".body")).to_be_visible()
    await expect(thoughts.locator("em")).to_have_text("this")
    await expect(page.locator("#live .row.answer")).to_contain_text("It is")
    await expect(thoughts.locator(".body")).to_be_hidden()
    await expect(words(page, "answer")).to_have_text(["It is 42."])
    await expect(rows(page, "thoughts").locator(".body")).to_be_hidden()
    await expect(rows(page)).to_have_count(3)
    await expect(page.locator("#announce")).to_have_text("It is 42.")
    await page.reload()
    await expect(rows(page, "thoughts").locator(".body")).to_be_hidden()
    await rows(page, "thoughts").locator("summary").click()
    await expect(rows(page, "thoughts").locator(".body")).to_have_text("First this. Then that.")


async def test_thoughts_are_hidden_by_default(page: Page) -> None:
    await send(page, "think fast")
    await expect(words(page, "answer")).to_have_text(["It is 42."])
    await expect(page.locator(".row.thoughts")).to_have_count(0)
    await expect(rows(page)).to_have_count(2)
