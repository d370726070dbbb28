"""One turn: requests to the model and tool calls, until there is a final answer."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec

from agent.attempt import AttemptResult
from agent.events import AgentEvent, TurnDone
from agent.providers.registry import Target
from agent.tools.contract import Risk
from agent.tools.registry import ToolRegistry
from agent.tools.run import Approve
from sessions.records import Message, ToolCall
from sessions.values.clock import Clock


class TurnJournal(Protocol):
    """Where a turn writes down what must survive; every coroutine returns once it is durable.

    The final assistant row is not written here: it is in `TurnDone.message`, so that the caller
    commits it together with the end of the turn. A turn that is cancelled leaves its last attempt
    and its running tools open; the caller closes them with the turn.
    """

    async def attempt_started(self, number: int, target: str) -> None:
        """A request is about to be sent; numbers count up from 1 over the whole turn."""
        ...

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """The request is over and judged."""
        ...

    async def step_done(self, message: Message) -> None:
        """An assistant row with tool calls. It takes the place of the checkpoint so far."""
        ...

    async def tool_started(self, call: ToolCall, risk: Risk) -> None:
        """A tool is about to take effect; when this raises, it does not run."""
        ...

    async def tool_finished(self, call: ToolCall, ok: bool, result: str) -> None:
        """A call has its result, which becomes a tool row in the history.

        Also called for calls that were refused and therefore never started.
        """
        ...

    def checkpoint(self, text: str) -> None:
        """All visible text of the present step; may be written later, with the next commit."""
        ...


class TurnTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be answered."""

    turn_id: str
    session_id: str
    system: str
    history: tuple[Message, ...]  # ends with the user's row
    workspace: Path
    notes: tuple[str, ...] = ()  # told to the model in this turn only, see `agent.prompt`


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far one turn may go."""

    max_steps: int = 90
    tool_timeout: float = 300.0


Emit = Callable[[AgentEvent], None]
Steers = Callable[[], Awaitable[tuple[Message, ...]]]


async def run_turn(
    task: TurnTask,
    *,
    target: Target,
    tools: ToolRegistry,
    journal: TurnJournal,
    clock: Clock,
    emit: Emit,
    steers: Steers,
    approve: Approve | None = None,
    limits: TurnLimits = TurnLimits(),
    randomness: Callable[[], float] = random.random,
) -> TurnDone:
    """Answer the task; events go to `emit` as they happen, the last one is the return value.

    `TurnDone` is returned and not emitted: the caller first commits it. `steers` is asked after
    every tool result for user rows that came meanwhile (committed by the caller). Cancel this
    coroutine to stop the turn: the connection to the model closes at once and running tools are
    cancelled.
    """
    raise NotImplementedError
