"""Progress of a running turn as people see it: in a terminal, and during an approval."""

import asyncio
import contextlib
import re
import termios
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.settings import AgentSettings, Timeouts
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from gateway.runner import GatewayRunner
from gateway.settings import GatewaySettings, Settings
from platforms.console import (
    SPEC,
    AnswerFrame,
    ConsoleAdapter,
    NoteFrame,
    StatusFrame,
    TerminalFrame,
    TerminalScreen,
)
from platforms.core.contract import Live
from sessions.records import ApprovalState
from tests.e2e.gateway_kit import Screen, gateway, opened
from tests.e2e.test_approval_requests import CHAT, Machine, calling, question
from tests.e2e.test_cli import Place
from tests.e2e.test_cli import Screen as Keys
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here
from tests.unit.gateway.test_cli_terminal import Glass

PATIENCE = 8.0
ROWS = 12
DONE = 'H T"done" F stop U D EOF'
WAITING = "🔐 Waiting for an answer"


@contextlib.asynccontextmanager
async def terminal(
    home: Path, model: ModelServer, *tools: Tool, show_reasoning: bool = False
) -> AsyncIterator[TerminalScreen]:
    """Run a gateway with only a terminal; yields its screen."""
    settings = Settings(
        gateway=GatewaySettings(drain_seconds=0),
        model=scripted_model(
            model,
            timeouts=Timeouts(backoff=0.01, notice_after=0.4),
        ),
        agent=AgentSettings(show_reasoning=show_reasoning),
    )
    runner = GatewayRunner(
        settings,
        home,
        specs={"console": SPEC},
        serve_http=False,
        tools=tools,
        clock=clock_here(),
    )
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(runner.run())
        await runner.ready.wait()
        console = runner.adapter("console")
        assert isinstance(console, ConsoleAdapter)
        async with console.attach() as screen:
            yield screen
        runner.stopping.set()
        runner.skip_drain.set()


async def said(screen: TerminalScreen, text: str) -> list[TerminalFrame]:
    """Send a text and return all frames until everything is answered."""
    await screen.send(text)
    async with asyncio.TaskGroup() as group:
        group.create_task(screen.finish())
        return [frame async for frame in screen.frames()]


def statuses(frames: list[TerminalFrame]) -> list[str]:
    return [frame.text for frame in frames if isinstance(frame, StatusFrame)]


@pytest.mark.quick
async def test_terminal_shows_that_the_model_is_silent(tmp_path: Path) -> None:
    async with (
        ModelServer('H W1 T"done" F stop U D EOF') as model,
        terminal(tmp_path, model) as screen,
    ):
        frames = await said(screen, "go")
    told = statuses(frames)
    assert told[0].startswith("⏳ scripted: no output for 0s")
    assert told[-1] == ""
    assert "".join(frame.text for frame in frames if isinstance(frame, AnswerFrame)) == "done"


@pytest.mark.quick
async def test_terminal_shows_a_tool_until_it_is_done(tmp_path: Path) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    @tool(risk=Risk.READ, label="what", emoji="📖")
    async def look(context: ToolContext, what: str) -> str:  # noqa: ARG001 - required of every tool
        """Look.

        Args:
            context: Not part of the call.
            what: At what.
        """
        running.set()
        await go_on.wait()
        return "nothing"

    script: list[Script] = ['H C(0,c1,look,{"what":"birds"}) F tool_calls U D', f"H W1 {DONE[2:]}"]
    async with ModelServer(*script) as model, terminal(tmp_path, model, look) as screen:
        await screen.send("go")
        frames = screen.frames()
        shown = [await anext(frames)]
        await running.wait()
        go_on.set()
        while not (isinstance(shown[-1], AnswerFrame) and shown[-1].done):
            shown.append(await anext(frames))
    assert statuses(shown)[:2] == ["📖 birds", ""]  # removed before the model's next text
    assert statuses(shown)[-1] == ""


async def test_status_line_leaves_no_trace_while_a_person_types(
    tmp_path: Path,
) -> None:
    def service(body: dict[str, object]) -> Script:
        return words("fine") if "bye" in str(body["messages"]) else f"H W4 {DONE[2:]}"

    def at_the_keyboard(url: str) -> list[str]:
        keys = Keys(Place(tmp_path, url), "chat", "--set", "model.timeouts.notice_after=0.5")
        termios.tcsetwinsize(keys.keyboard, (ROWS, 80))
        keys.wait_for("Ctrl-D leaves. /help lists commands.\r\n")
        keys.all = ""
        keys.press("go\r")
        keys.wait_for("⏳ scripted: no output for")
        keys.press("and")
        keys.wait_for("⏳ scripted: no output for")
        keys.press(" bye\r")
        keys.wait_for("⏳ scripted: no output for")
        keys.wait_for("fine\r\n")
        keys.press("\x04")
        keys.wait_for("Leaving")
        assert keys.code() == 0
        glass = Glass(ROWS)
        glass.write(re.sub(r"\x1b\[\?\d+[hl]", "", keys.all))
        return glass.seen()

    async with ModelServer(service) as model:
        seen = await asyncio.to_thread(at_the_keyboard, model.url)
    assert "> and bye" in seen
    assert [line for line in seen if line in {"done", "fine"}] == ["done", "fine"]
    assert "no output" not in "".join(seen)


@pytest.mark.quick
async def test_terminal_shows_reasoning_before_the_answer_or_not_at_all(tmp_path: Path) -> None:
    script: list[Script] = [
        'H R"hmm" C(0,c1,list_dir,{"path":"."}) F tool_calls U D',
        'H R"I see" T"It is" W.5 R"later" T" empty." F stop U D EOF',
    ]
    async with (
        ModelServer(*script) as model,
        terminal(tmp_path, model, show_reasoning=True) as screen,
    ):
        frames = [each for each in await said(screen, "go") if not isinstance(each, StatusFrame)]
    thoughts, *answer = frames
    assert thoughts == NoteFrame("💭 **Thinking**\n> hmm\n>\n> I see")
    assert all(isinstance(each, AnswerFrame) for each in answer)
    assert "".join(each.text for each in answer) == "It is empty."


@pytest.mark.quick
async def test_chat_shows_that_an_approval_is_pending(tmp_path: Path) -> None:
    machine = Machine()
    screen = Screen(live=Live.DRAFT, live_interval=0.01, burst=1000)
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, screen, admins=("memory:1001",), tools=(machine.tool,)),
    ):
        await screen.say(CHAT, "tea, please")
        await question(screen)
        async with asyncio.timeout(PATIENCE):
            while WAITING not in screen.screen(CHAT):
                screen._changed.clear()
                await screen._changed.wait()
        await screen.say(CHAT, "/deny")
        await screen.shows(CHAT, "echo: tea, please")
        assert WAITING not in screen.screen(CHAT)


@pytest.mark.parametrize("late", [False, True], ids=["already waiting", "begins to wait"])
async def test_shutdown_does_not_wait_for_an_approval(tmp_path: Path, late: bool) -> None:
    machine = Machine()
    asks = calling()

    def slowly(body: dict[str, object]) -> Script:
        script = asks(body)
        return script.replace("H ", "H W.5 ", 1) if late and isinstance(script, str) else script

    async with (
        ModelServer(slowly) as model,
        gateway(
            tmp_path,
            model,
            admins=("memory:1001",),
            tools=(machine.tool,),
            gateway=GatewaySettings(drain_seconds=60),
        ) as home,
    ):
        await home.screen.say(CHAT, "tea, please")
        if late:
            await home.asked(1)
        else:
            await question(home.screen)
        began = time.monotonic()
        home.runner.stopping.set()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({home._task})
        assert time.monotonic() - began < 4
        await home.screen.shows(CHAT, "♻️ I was restarted")
    assert machine.ran == []
    async with opened(tmp_path) as store:
        kept = await store.approvals.open()
        assert late or [each.state for each in kept] == [ApprovalState.OPEN]
