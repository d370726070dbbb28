"""One turn: requests to the model and tool calls, until there is a final answer."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from agent.accumulate import Accumulator
from agent.attempt import AttemptResult, run_attempt
from agent.continuation import (
    MOST_RETRIES,
    Counters,
    Finish,
    GiveUp,
    Retry,
    RunTools,
    next_action,
)
from agent.errors import RateLimited
from agent.events import (
    AgentEvent,
    Ending,
    Notice,
    ReasoningDelta,
    StepDone,
    TextDelta,
    TurnDone,
)
from agent.prompt import LAST_STEP, build_request
from agent.providers.contract import ModelRequest, ToolSchema
from agent.providers.registry import Target
from agent.tools.registry import ToolRegistry
from agent.tools.run import Approve, ToolJournal, ToolRunner
from agent.verdict import Cut
from sessions.records import Message, ToolCall
from sessions.values.clock import Clock

_CHECKPOINT_SIZE = 1024
_CHECKPOINT_TIME = 2.0
_TELL_AFTER = 5.0  # seconds of recovery that nobody needs to hear about


class TurnJournal(ToolJournal, Protocol):
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


DEFAULT_LIMITS = TurnLimits()


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
    limits: TurnLimits = DEFAULT_LIMITS,
    randomness: Callable[[], float] = random.random,
) -> TurnDone:
    """Answer the task; events go to `emit` as they happen, the last one is the return value.

    `TurnDone` is returned and not emitted: the caller first commits it. `steers` is asked after
    every tool result for user rows that came meanwhile (committed by the caller). Cancel this
    coroutine to stop the turn: the connection to the model closes at once and running tools are
    cancelled.
    """
    turn = _Turn(task, target, tools, journal, clock, emit, approve, limits, randomness)
    for step in range(1, limits.max_steps + 1):
        outcome = await turn.step(step)
        if isinstance(outcome, TurnDone):
            return outcome
        await turn.run_tools(outcome)
        turn.rows.extend(await steers())
    return await turn.summary(limits.max_steps + 1)


class _Visible:
    """The text of one step as it is shown, with its checkpoints."""

    def __init__(self, journal: TurnJournal, clock: Clock, emit: Emit) -> None:
        self._journal = journal
        self._clock = clock
        self._emit = emit
        self._pieces: list[str] = []
        self._since = 0  # characters since the last checkpoint
        self._at = clock.monotonic()

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def show(self, delta: TextDelta | ReasoningDelta) -> None:
        self._emit(delta)
        if isinstance(delta, ReasoningDelta):
            return
        self._pieces.append(delta.text)
        self._since += len(delta.text)
        if (
            self._since >= _CHECKPOINT_SIZE
            or self._clock.monotonic() - self._at >= _CHECKPOINT_TIME
        ):
            self.keep()

    def keep(self) -> None:
        if self._since:
            self._journal.checkpoint(self.text)
        self._since, self._at = 0, self._clock.monotonic()


class _Turn:
    """A turn under way: what was said in it so far, and what it has used up."""

    def __init__(
        self,
        task: TurnTask,
        target: Target,
        tools: ToolRegistry,
        journal: TurnJournal,
        clock: Clock,
        emit: Emit,
        approve: Approve | None,
        limits: TurnLimits,
        randomness: Callable[[], float],
    ) -> None:
        self.rows = list(task.history)
        self._task = task
        self._target = target
        self._tools = tools
        self._journal = journal
        self._clock = clock
        self._emit = emit
        self._randomness = randomness
        self._attempts = 0
        self._usage = (0, 0)
        self._runner = ToolRunner(
            tools,
            journal,
            emit,
            clock=clock,
            workspace=task.workspace,
            key=f"{task.session_id}:{task.turn_id}",
            approve=approve,
            timeout=limits.tool_timeout,
        )

    async def step(self, number: int) -> AttemptResult | TurnDone:
        """Get one model answer: give it where it asks for tools, else the end of the turn."""
        request = self._request(self.rows, self._tools.schemas)
        return await self._recovered(number, request)

    async def summary(self, number: int) -> TurnDone:
        """All steps are used up: have the model say what it has; calls of it do not count."""
        outcome = await self._recovered(number, self._request([*self.rows, LAST_STEP], ()))
        if isinstance(outcome, TurnDone):
            return outcome
        if outcome.step.text.strip():
            return self._answered(outcome)
        return self._failed("", "it used up all its steps without coming to an answer")

    async def run_tools(self, answer: AttemptResult) -> None:
        """Carry out what the answer asks for; the rows are durable before anything runs."""
        calls = answer.step.calls
        records = tuple(ToolCall(c.id, c.name, c.arguments, c.extra) for c in calls)
        message = Message("assistant", answer.step.text, tool_calls=records)
        await self._journal.step_done(message)
        self._emit(StepDone())
        self.rows.append(message)
        self.rows.extend(await self._runner.run(calls))

    def _request(self, rows: list[Message], tools: tuple[ToolSchema, ...]) -> ModelRequest:
        return build_request(
            rows,
            model=self._target.model,
            settings=self._target.settings,
            system=self._task.system,
            notes=self._task.notes,
            tools=tools,
        )

    async def _recovered(self, number: int, request: ModelRequest) -> AttemptResult | TurnDone:
        """Send the request, and again where that is right."""
        visible = _Visible(self._journal, self._clock, self._emit)
        counters = Counters(backoff=self._target.settings.timeouts.backoff)
        began = self._clock.monotonic()
        while True:
            result = await self._attempt(number, request, visible)
            counters = replace(
                counters, shown=bool(visible.text.strip()), calls=bool(result.step.calls)
            )
            match next_action(result.verdict, counters):
                case Finish():
                    return self._answered(result)
                case RunTools():
                    return result
                case GiveUp(cause):
                    return self._failed(visible.text, cause)
                case Retry(wait, exact):
                    wait = wait if exact else wait * (0.5 + self._randomness() / 2)
                    counters = replace(counters, retries=counters.retries + 1)
                    self._tell(result, counters.retries, wait, self._clock.monotonic() - began)
                    await asyncio.sleep(wait)

    async def _attempt(self, step: int, request: ModelRequest, visible: _Visible) -> AttemptResult:
        self._attempts += 1
        number = self._attempts
        await self._journal.attempt_started(number, self._target.label)
        taken = frozenset(call.id for row in self.rows for call in row.tool_calls)
        prefix = f"call_{self._task.turn_id}_{step}"
        accumulator = Accumulator(request.tools, prefix, taken)
        try:
            result = await run_attempt(
                self._target, request, accumulator, clock=self._clock, show=visible.show
            )
        except asyncio.CancelledError:
            visible.keep()
            raise
        self._usage = (
            self._usage[0] + result.input_tokens,
            self._usage[1] + result.output_tokens,
        )
        await self._journal.attempt_ended(number, result)
        return result

    def _tell(self, result: AttemptResult, retries: int, wait: float, spent: float) -> None:
        """News for the status line, where the user would otherwise wonder."""
        provider = self._target.provider.name
        verdict = result.verdict
        if isinstance(verdict, Cut) and isinstance(verdict.error, RateLimited):
            self._emit(Notice("N6", {"provider": provider, "n": round(wait)}))
        elif spent + wait > _TELL_AFTER:
            fields: dict[str, str | int] = {"provider": provider, "k": retries, "max": MOST_RETRIES}
            self._emit(Notice("N2", fields))

    def _answered(self, result: AttemptResult) -> TurnDone:
        text = result.step.text
        return self._done(Ending.ANSWERED, text, "", Message("assistant", text))

    def _failed(self, text: str, cause: str) -> TurnDone:
        kept = Message("assistant", text, interrupted=cause) if text.strip() else None
        return self._done(Ending.FAILED, text, cause, kept)

    def _done(self, ending: Ending, text: str, cause: str, message: Message | None) -> TurnDone:
        return TurnDone(
            ending,
            text,
            cause,
            message=message,
            tries=self._attempts,
            tools=tuple(self._runner.ran),
            input_tokens=self._usage[0],
            output_tokens=self._usage[1],
        )
