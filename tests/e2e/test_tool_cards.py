"""Tool calls on a platform that shows them as separate task cards."""

import asyncio
from pathlib import Path

import pytest

from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from platforms.core.contract import Live, Task, TaskState
from tests.e2e.gateway_kit import Screen, gateway
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHAT = "1001"


async def test_a_tool_call_before_the_first_text_is_shown_running_then_done(
    tmp_path: Path,
) -> None:
    go_on = asyncio.Event()

    @tool(risk=Risk.READ, emoji="📖", label="name")
    async def look(context: ToolContext, name: str) -> str:  # noqa: ARG001 - required of every tool
        """Look into a book.

        Args:
            context: Not part of the call.
            name: Title of the book.
        """
        await go_on.wait()
        return name

    screen = Screen(live=Live.STREAM, tasks=True, live_interval=0.01, burst=1000)
    call = 'H C(0,c1,look,{"name":"Emma"}) F tool_calls U D'
    async with (
        ModelServer(call, 'H T"So." F stop U D') as model,
        gateway(tmp_path, model, screen, tools=(look,)),
    ):
        await screen.say(CHAT, "look it up")
        (message,) = await screen.until(CHAT, lambda found: len(found) == 1)
        assert message.text == ""
        assert message.tasks == (Task("c1", "📖 Emma", TaskState.RUNNING),)
        go_on.set()
        (message,) = await screen.until(
            CHAT, lambda found: [each.streaming for each in found] == [False]
        )
        assert message.text == "So."
        assert message.tasks == (Task("c1", "📖 Emma", TaskState.DONE),)
    assert screen.violations() == []
