"""Carries out the tool calls of one turn: journalled, bounded in time, in the order of the calls."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent.errors import ToolError, ToolTimeout
from agent.events import AgentEvent, ToolFinished, ToolStarted
from agent.slots import StepCall
from agent.tools.contract import Risk, Tool
from agent.tools.gate import Refuse, Run, admit
from agent.tools.registry import ToolRegistry
from sessions.records import Message, ToolCall
from sessions.values.clock import Clock

Approve = Callable[[Tool, ToolCall], Awaitable[str | None]]
"""May this call run? None: yes; else the reason why not, as the model is to read it."""

MOST_AT_ONCE = 8
LONGEST_RESULT = 100_000  # characters
LONGEST_RESULTS = 200_000  # of one turn together
_GRACE = 3.0  # seconds a tool has to end after its time was up
_STOP_GRACE = 0.1  # the same when somebody waits for the stop
_LONGEST_LABEL = 80

_log = logging.getLogger(__name__)
_let_go: set[asyncio.Task[str]] = set()


class ToolJournal(Protocol):
    """Where tool runs are written down; see `agent.loop.TurnJournal`."""

    async def tool_started(self, call: ToolCall, risk: Risk) -> None:
        """A tool is about to take effect; when this raises, it does not run."""
        ...

    async def tool_finished(self, call: ToolCall, ok: bool, result: str) -> None:
        """A call has its result; also called for calls that were refused and never started."""
        ...


class Context(msgspec.Struct, frozen=True):
    """See `ToolContext`."""

    clock: Clock
    workspace: Path
    idempotency_key: str


class _Same(msgspec.Struct, frozen=True):
    """The very same call stands earlier in this answer; it runs once, both get the result."""

    as_id: str


class _Result(msgspec.Struct, frozen=True):
    ok: bool
    text: str
    ran: bool = False


_Decided = tuple[StepCall, Run[Tool] | Refuse | _Same]


class ToolRunner:
    """Runs the calls of one turn."""

    def __init__(
        self,
        registry: ToolRegistry,
        journal: ToolJournal,
        emit: Callable[[AgentEvent], None],
        *,
        clock: Clock,
        workspace: Path,
        key: str,
        approve: Approve | None = None,
        timeout: float = 300.0,
    ) -> None:
        self.ran: list[str] = []  # names, in order
        self._tools = registry.by_name
        self._journal = journal
        self._emit = emit
        self._clock = clock
        self._workspace = workspace
        self._key = key  # of the turn
        self._approve = approve
        self._timeout = timeout
        self._room = LONGEST_RESULTS

    async def run(self, calls: Sequence[StepCall]) -> tuple[Message, ...]:
        """Give every call its result, in the order of the calls."""
        results: dict[str, _Result] = {}
        rows: list[Message] = []
        for batch in _batches(_decide(calls, self._tools)):
            ready = [await self._prepare(decided, results) for decided in batch]
            for (call, _), outcome in zip(batch, await _together(ready), strict=True):
                results[call.id] = outcome
                rows.append(await self._finish(call, outcome))
        return tuple(rows)

    async def _prepare(
        self, decided: _Decided, results: dict[str, _Result]
    ) -> _Result | Coroutine[Any, Any, _Result]:
        """Give the result where nothing is to run, else what runs; its start is then durable."""
        call, how = decided
        if isinstance(how, Refuse):
            return _Result(ok=False, text=how.text)
        if isinstance(how, _Same):
            return msgspec.structs.replace(results[how.as_id], ran=False)
        denied = await self._denied(how.tool, _record(call))
        if denied is not None:
            return _Result(ok=False, text=f"{call.name} has NOT run: {denied}")
        await self._journal.tool_started(_record(call), how.tool.risk)
        self.ran.append(call.name)
        label = str(getattr(how.arguments, how.tool.label, ""))[:_LONGEST_LABEL]
        self._emit(ToolStarted(call.id, call.name, label, how.tool.emoji))
        return self._carry_out(call, how)

    async def _denied(self, tool: Tool, call: ToolCall) -> str | None:
        if tool.risk in (Risk.READ, Risk.WRITE):
            return None
        if self._approve is None:
            return "it needs somebody's approval, and nobody here can give it."
        return await self._approve(tool, call)

    async def _carry_out(self, call: StepCall, how: Run[Tool]) -> _Result:
        context = Context(self._clock, self._workspace, f"{self._key}:{call.id}")
        timeout = how.tool.timeout or self._timeout
        try:
            text = await _bounded(how.tool.call(how.arguments, context), call.name, timeout)
        except ToolError as error:
            return _Result(ok=False, text=str(error) or (type(error).__doc__ or ""), ran=True)
        except Exception as error:  # noqa: BLE001 - the boundary of tools
            _log.exception("tool %s failed", call.name)
            said = f"{call.name} failed: {type(error).__name__}: {error}"
            return _Result(ok=False, text=said, ran=True)
        return _Result(ok=True, text=text, ran=True)

    async def _finish(self, call: StepCall, result: _Result) -> Message:
        text = _capped(result.text, min(LONGEST_RESULT, self._room))
        self._room = max(0, self._room - len(text))
        await self._journal.tool_finished(_record(call), result.ok, text)
        if result.ran:
            self._emit(ToolFinished(call.id, call.name, result.ok))
        return Message("tool", text, tool_call_id=call.id)


def _record(call: StepCall) -> ToolCall:
    return ToolCall(call.id, call.name, call.arguments, call.extra)


def _decide(calls: Sequence[StepCall], tools: dict[str, Tool]) -> Iterator[_Decided]:
    first: dict[tuple[str, str], str] = {}
    for call in calls:
        earlier = first.setdefault((call.name, call.arguments), call.id)
        yield call, _Same(earlier) if earlier != call.id else admit(call, tools)


def _batches(decided: Iterator[_Decided]) -> Iterator[list[_Decided]]:
    """Neighbours that may run side by side stay together; everything else stands alone."""
    batch: list[_Decided] = []
    for each in decided:
        how = each[1]
        beside = isinstance(how, Run) and how.tool.parallel
        if batch and (not beside or len(batch) == MOST_AT_ONCE):
            yield batch
            batch = []
        if beside:
            batch.append(each)
        else:
            yield [each]
    if batch:
        yield batch


async def _together(ready: Sequence[_Result | Coroutine[Any, Any, _Result]]) -> list[_Result]:
    async with asyncio.TaskGroup() as group:
        running = [r if isinstance(r, _Result) else group.create_task(r) for r in ready]
    return [r if isinstance(r, _Result) else r.result() for r in running]


async def _bounded(work: Awaitable[str], name: str, seconds: float) -> str:
    """Run a tool, but never wait for one that does not end when it is told to."""
    # A task of its own and of no group: a group would wait for it for ever.
    task = asyncio.get_running_loop().create_task(_awaited(work), name=f"tool {name}")
    grace = _STOP_GRACE
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        grace = _GRACE
    finally:
        if not task.done():
            await _end(task, grace)
    if done and task.cancelled():
        msg = f"{name} broke off by itself. Its effect is unknown."
        raise ToolError(msg)
    if not done:
        # Whatever it may still have said while it ended comes too late to be relied upon.
        msg = f"{name} was given up after {seconds:g} s. Its effect is unknown."
        raise ToolTimeout(msg)
    return task.result()


async def _awaited(work: Awaitable[str]) -> str:
    return await work


async def _end(task: asyncio.Task[str], grace: float) -> None:
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=grace)
    finally:
        if not task.done():
            _log.warning("%s does not end although it was cancelled", task.get_name())
            _let_go.add(task)
            task.add_done_callback(_forget)


def _forget(task: asyncio.Task[str]) -> None:
    _let_go.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s failed long after it was given up: %s", task.get_name(), error)


def _capped(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return f"{text[:room]}\n[{len(text) - room} more characters were left out]"
