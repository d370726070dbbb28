"""Test kit for whole turns: scripted models, fake tools and an in-memory journal."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec

from agent.events import (
    AgentEvent,
    Notice,
    TextDelta,
    TextReplaced,
    TurnDone,
)
from agent.loop import run_turn
from agent.model.learned import LearnedTarget, LearnedTargets
from agent.providers.registry import Target
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.tools.registry import ToolRegistry
from agent.tools.run import Approve
from agent.turn import TurnLimits, TurnResources, TurnTask
from sessions.records import Message
from sessions.values.notices import NoticeFields
from tests.fakes.agent_kit import (
    SCALED,
    LoopClock,
    MemoryJournal,
    Workshop,
    drafts_in,
    learned_of,
    openai_target,
)
from tests.fakes.model_script import Script, call_delta, steps
from tests.fakes.model_server import Handler, ModelServer

CLOCKS = msgspec.structs.replace(
    SCALED,
    first_token=0.5,
    gap_text=0.3,
    gap_tool=0.3,
    gap_reasoning=0.3,
    notice_after=12.0,  # a recovery notice is due after a sixth of this
    backoff=0.01,
)
GO = Message("user", "go")


class Clock(LoopClock):
    """Clock of the event loop that a test can advance."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@tool(risk=Risk.WRITE, grows="text")
async def note(_context: ToolContext, text: str) -> str:
    """Take a note.

    Args:
        _context: Not part of the call.
        text: What to remember.
    """
    return f"noted {len(text)}"


class Stage:
    """One turn with its input, its events and its journal."""

    def __init__(self, folder: Path, *scripts: Script | Handler) -> None:
        self.servers = [ModelServer(*scripts)]
        self.settings: dict[str, Any] = {}  # overrides for the primary target
        self.task: dict[str, Any] = {}  # overrides for the task
        self.folder = folder
        self.shop = Workshop()
        self.more_tools: tuple[Tool, ...] = (note,)
        self.journal = MemoryJournal()
        self.experience = LearnedTargets()
        self.drafts = drafts_in(folder)
        self.clock = Clock()
        self.events: list[AgentEvent] = []
        self.steered: list[tuple[Message, ...]] = []
        self.limits = TurnLimits(max_steps=5, tool_timeout=1.0)
        self.randomness = lambda: 1.0
        self.approve: Approve | None = None
        self.text_shown = asyncio.Event()
        self.told = asyncio.Event()
        self.targets: list[Target] = []

    @property
    def server(self) -> ModelServer:
        return self.servers[0]

    async def fallback(self, *scripts: Script | Handler) -> ModelServer:
        """Add a fallback model."""
        server = ModelServer(*scripts)
        await server.__aenter__()
        self.servers.append(server)
        return server

    def target(self, number: int = 0) -> Target:
        if not self.targets:
            for server, model in zip(self.servers, ("scripted", "second", "third"), strict=False):
                made = openai_target(server.url, CLOCKS)
                self.targets.append(msgspec.structs.replace(made, model=model))
            first = self.targets[0]
            settings = msgspec.structs.replace(first.settings, **self.settings)
            self.targets[0] = msgspec.structs.replace(first, settings=settings)
        return self.targets[number]

    def learned(self, number: int = 0) -> LearnedTarget:
        return learned_of(self.experience, self.target(number))

    async def run(self, *history: Message) -> TurnDone:
        self.target()
        task = TurnTask(
            turn_id="t1",
            session_id="s1",
            system="Be kind.",
            history=history or (GO,),
            workspace=self.folder,
            notes=("Note.",),
        )
        async with asyncio.timeout(10):
            return await run_turn(
                msgspec.structs.replace(task, **self.task),
                TurnResources(
                    targets=self.targets,
                    tools=ToolRegistry((*self.shop.tools(), *self.more_tools)),
                    journal=self.journal,
                    clock=self.clock,
                    emit=self._emit,
                    fetch_steers=self._steers,
                    learned_targets=self.experience,
                    drafts=self.drafts,
                    approve=self.approve,
                    limits=self.limits,
                    randomness=self.randomness,
                ),
            )

    def _emit(self, event: AgentEvent) -> None:
        self.events.append(event)
        if isinstance(event, TextDelta):
            self.text_shown.set()
        if isinstance(event, Notice):
            self.told.set()

    async def _steers(self) -> tuple[Message, ...]:
        return self.steered.pop(0) if self.steered else ()

    @property
    def shown(self) -> str:
        """Visible text of all steps, joined."""
        shown = ""
        for event in self.events:
            if isinstance(event, TextDelta):
                shown += event.text
            elif isinstance(event, TextReplaced):
                shown = event.text
        return shown

    @property
    def notices(self) -> list[str]:
        return [event.id for event in self.events if isinstance(event, Notice)]

    def notice(self, notice: str) -> NoticeFields:
        """Return the fields of the only notice with this id."""
        (fields,) = [e.fields for e in self.events if isinstance(e, Notice) and e.id == notice]
        return fields

    def sent(self, number: int) -> list[dict[str, Any]]:
        """Return the messages of a request to the primary model."""
        messages: list[dict[str, Any]] = self.server.requests[number - 1].body["messages"]
        return messages

    def asked(self, number: int) -> str:
        """Return the last message of a request."""
        said: str = self.sent(number)[-1]["content"]
        return said

    def offered(self, number: int) -> dict[str, Any]:
        """Return the tools of a request, by name."""
        tools = self.server.requests[number - 1].body.get("tools", [])
        return {each["function"]["name"]: each["function"]["parameters"] for each in tools}


class Play:
    """Factory of stages; the fixture closes their connections."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages: list[Stage] = []

    async def __call__(self, *scripts: Script | Handler) -> Stage:
        stage = Stage(self.folder, *scripts)
        await stage.server.__aenter__()
        self.stages.append(stage)
        return stage


READ_A = ("c1", "read", '{"path":"a"}')
PAY = ("c2", "pay", '{"amount":5}')
LOST_PAY = "C(0,c1,pay,'{\"amount\": 1')"


def lost_note(size: int, call_id: str = "c1") -> Script:
    """Return a script of a long call that is cut off."""
    return (*steps("H"), call_delta(0, call_id, "note", '{"text":"' + "x" * size), *steps("RST"))


def lost_file(content: str, *, path: str = "a.txt", after: str = "RST") -> Script:
    """Return a script of a file write that is cut off."""
    arguments = json.dumps({"path": path, "content": content})[:-2]
    return (*steps("H"), call_delta(0, "c1", "write_file", arguments), *steps(after))


LONG = "many words of an old story. " * 300
OLD = (Message("user", LONG), Message("assistant", LONG), GO)
TOO_LONG = 'S400"This model\'s maximum context length is 3000 tokens."'
