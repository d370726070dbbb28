"""Whole turns, against a scripted model server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.events import AgentEvent, Ending, Notice, StepDone, TextDelta, ToolStarted, TurnDone
from agent.loop import TurnLimits, TurnTask, run_turn
from agent.providers.registry import Target
from agent.tools.registry import ToolRegistry
from sessions.records import Message
from tests.fakes.agent_kit import WORKSPACE, LoopClock, MemoryJournal, Workshop, openai_target
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import Handler, ModelServer, always

GO = Message("user", "go")


class Stage:
    """One turn: what it was given, what it told, what it wrote down."""

    def __init__(self, *scripts: Script | Handler) -> None:
        self.server = ModelServer(*scripts)
        self.shop = Workshop()
        self.journal = MemoryJournal()
        self.events: list[AgentEvent] = []
        self.steered: list[tuple[Message, ...]] = []
        self.limits = TurnLimits(max_steps=5, tool_timeout=1.0)
        self.text_shown = asyncio.Event()
        self.target: Target | None = None

    async def run(self, *history: Message) -> TurnDone:
        self.target = self.target or openai_target(self.server.url)
        task = TurnTask(
            turn_id="t1",
            session_id="s1",
            system="Be kind.",
            history=history or (GO,),
            workspace=WORKSPACE,
            notes=("Note.",),
        )
        async with asyncio.timeout(10):
            return await run_turn(
                task,
                target=self.target,
                tools=ToolRegistry(self.shop.tools()),
                journal=self.journal,
                clock=LoopClock(),
                emit=self._emit,
                steers=self._steers,
                limits=self.limits,
                randomness=lambda: 1.0,
            )

    def _emit(self, event: AgentEvent) -> None:
        self.events.append(event)
        if isinstance(event, TextDelta):
            self.text_shown.set()

    async def _steers(self) -> tuple[Message, ...]:
        return self.steered.pop(0) if self.steered else ()

    @property
    def shown(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def notices(self) -> list[str]:
        return [event.id for event in self.events if isinstance(event, Notice)]

    def sent(self, number: int) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.server.requests[number - 1].body["messages"]
        return messages


class Play:
    """Makes stages, and closes what they opened."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    async def __call__(self, *scripts: Script | Handler) -> Stage:
        stage = Stage(*scripts)
        await stage.server.__aenter__()
        self.stages.append(stage)
        return stage


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    stages = Play()
    yield stages
    for stage in stages.stages:
        if stage.target is not None:
            await stage.target.provider.aclose()
        await stage.server.__aexit__(None, None, None)


READ_A = ("c1", "read", '{"path":"a"}')
PAY = ("c2", "pay", '{"amount":5}')


async def test_a_plain_answer_ends_the_turn(play: Play) -> None:
    stage = await play('H T"Hel" T"lo" F stop U D')
    done = await stage.run()
    assert done == TurnDone(
        Ending.ANSWERED,
        "Hello",
        message=Message("assistant", "Hello"),
        tries=1,
        input_tokens=10,
        output_tokens=5,
    )
    assert stage.events == [TextDelta("Hel"), TextDelta("lo")]
    assert stage.journal.log == ["attempt 1 openai/scripted", "attempt 1 complete"]
    assert stage.journal.rows == []
    assert stage.sent(1) == [
        {"role": "system", "content": "Be kind.\n\n[Note.]"},
        {"role": "user", "content": "go"},
    ]
    assert {tool["function"]["name"] for tool in stage.server.requests[0].body["tools"]} == {
        tool.name for tool in stage.shop.tools()
    }


async def test_tools_run_between_steps_and_their_rows_go_back_exactly(play: Play) -> None:
    stage = await play(('H T"Let me see."', *calls(READ_A, PAY))[1], ok("done"))
    done = await stage.run()
    assert (done.ending, done.text, done.tries, done.tools) == (
        Ending.ANSWERED,
        "done",
        2,
        ("read", "pay"),
    )
