"""Carries out the tool calls of one turn: journalled, bounded in time, in the order of the calls."""

import asyncio
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from agent.answer.call_slots import StepCall, shape_of
from agent.errors import ToolError, ToolTimeout, ToolUnknownOutcome
from agent.events import AgentEvent, ToolFinished, ToolStarted
from agent.tools.batches import Place, batches, whole_path
from agent.tools.contract import Risk, SendFile, Tool
from agent.tools.deadline import bounded
from agent.tools.done_list import tally
from agent.tools.drafts import Drafts
from agent.tools.gate import Identity, Refuse, Run, admit
from agent.tools.loop_guard import LoopGuard
from agent.tools.registry import ToolRegistry
from agent.tools.repeats import UNKNOWN, Twin, Twins, recorded
from agent.tools.spill import ResultCaps, caps_for, cut, fits, preview, spill
from sessions.errors import AlreadyStarted
from sessions.records import Message, ToolCall, ToolRun
from sessions.values.clock import Clock

Approve = Callable[[Tool, ToolCall], Awaitable[str | None]]
"""May this call run? None: yes; else the reason why not, as the model is to read it."""

BATCH_TIMEOUT = 420.0  # seconds for calls that run side by side
_LONGEST_LABEL = 80
_READER = "read_file"

_STARTED_BEFORE = (
    "{} has NOT run: a call of this very id was begun earlier in this turn. Look whether it had its "
    "effect; if not, make the call again."
)

_log = logging.getLogger(__name__)


class ToolJournal(Protocol):
    """Where tool runs are written down; see `agent.turn.TurnJournal`."""

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        """A tool is about to take effect; when this raises, it does not run.

        `attempt`: the number of the request that brought the call, as in `attempt_started`.
        """
        ...

    async def tool_finished(self, call: ToolCall, ok: bool, result: str) -> None:
        """A call has its result; also called for calls that were refused and never started."""
        ...


@runtime_checkable
class LateJournal(Protocol):
    """What a journal may offer besides, to hear of tools that ended after they were given up."""

    async def tool_late(self, call: ToolCall, result: str) -> None:
        """A call that had timed out came to this result; the turn may be over by now."""
        ...


class Context(msgspec.Struct, frozen=True):
    """See `ToolContext`."""

    clock: Clock
    workspace: Path
    idempotency_key: str
    drafts: Drafts
    send_file: SendFile | None = None


class _Same(msgspec.Struct, frozen=True):
    """The very same call stands earlier in this answer; it runs once, both get the result."""

    as_id: str


class _Result(msgspec.Struct, frozen=True):
    ok: bool
    text: str
    ran: bool = False
    unknown: bool = False  # whether it had its effect is not known
    refused: bool = False  # there was no sense in it, whoever might have allowed it


class _Work(msgspec.Struct, frozen=True):
    """A call that may run."""

    run: Run[Tool]
    identity: Identity
    label: str
    doubt: Twin | None = None  # a call like it that may have had its effect

    @property
    def asks(self) -> bool:
        return self.run.tool.must_ask or self.doubt is not None


_Case = tuple[StepCall, _Work | _Same | _Result]


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
        drafts: Drafts,
        key: str,
        approve: Approve | None = None,
        send_file: SendFile | None = None,
        timeout: float = 300.0,
        batch_timeout: float = BATCH_TIMEOUT,
        caps: ResultCaps | None = None,
    ) -> None:
        self.ran: list[str] = []  # names, in order
        self.all_refused = False  # every call of the last run, by the gate or as a loop
        self._tools = registry.by_name
        self._journal = journal
        self._emit = emit
        self._clock = clock
        self._workspace = workspace
        self._drafts = drafts
        self._key = key  # of the turn
        self._approve = approve
        self._send_file = send_file
        self._timeout = timeout
        self._batch_timeout = batch_timeout
        self._caps = caps or caps_for(None)
        self._room = self._caps.turn
        self._guard = LoopGuard()
        self._twins = Twins()
        self._attempt = 0  # the request that brought the calls at hand
        self._did: list[tuple[str, str]] = []
        self._closed: set[str] = set()  # calls whose result is on record
        self._came_late: dict[str, str] = {}

    @property
    def done(self) -> list[str]:
        """What was carried out without an error, in a few words for people."""
        return tally(self._did)

    def remember(self, runs: Iterable[ToolRun]) -> None:
        """Take in what was begun before an interruption, in the order in which it was."""
        for run in runs:
            shape = shape_of(run.arguments)
            how = self._admitted(StepCall(run.call_id, run.tool, run.arguments, shape, sealed=True))
            if isinstance(how, Run) and not how.tool.read_only:
                self._twins.add(how.identity, recorded(run))

    def prepare(self, calls: Sequence[StepCall]) -> tuple[StepCall, ...]:
        """Give the calls as they will be carried out, with slips put right; ids stay."""
        return tuple(self._admitted(call).call for call in calls)

    async def run(
        self, calls: Sequence[StepCall], *, attempt: int = 0, after_recovery: bool = False
    ) -> tuple[Message, ...]:
        """Give every call its result, in the order of the calls.

        `attempt`: the number of the request that brought them, for the journal.
        `after_recovery`: the answer is the first one after a break; what was carried out earlier
        in the turn is not repeated.
        """
        self.all_refused = False
        self._attempt = attempt
        self._guard.next_answer()
        cases = list(self._cases(calls, after_recovery=after_recovery))
        results: dict[str, _Result] = {}
        rows: list[Message] = []
        for where in batches([self._place(how) for _, how in cases]):
            batch = cases[where.start : where.stop]
            for case, result in zip(batch, await self._together(batch, results), strict=True):
                results[case[0].id] = result
                rows.append(await self._finish(case, result))
        self.all_refused = bool(results) and all(each.refused for each in results.values())
        return tuple(rows)

    # --- what to do with each call ---------------------------------------------------------------

    def _admitted(self, call: StepCall) -> Run[Tool] | Refuse:
        try:
            return admit(call, self._tools)
        except Exception as error:  # noqa: BLE001 - a tool's check is a part of the tool
            _log.exception("the arguments of %s could not be checked", call.name)
            why = f"{type(error).__name__}: {error}"
            text = f"{call.name} has NOT run, its arguments could not be checked: {why}"
            return Refuse(call, text)

    def _cases(self, calls: Sequence[StepCall], *, after_recovery: bool) -> Iterator[_Case]:
        first: dict[Identity, str] = {}
        for call in calls:
            how = self._admitted(call)
            if isinstance(how, Refuse):
                yield how.call, self._refused(how)
                continue
            identity = how.identity
            earlier = first.setdefault(identity, call.id)
            if earlier != call.id:
                yield how.call, _Same(earlier)
                continue
            twin = self._twins.get(identity) if after_recovery else None
            if twin is not None and not twin.unknown:
                yield how.call, _Result(ok=True, text=twin.answer)
            else:
                yield how.call, _Work(how, identity, _label(how), twin)

    def _refused(self, how: Refuse) -> _Result:
        known = how.call.name in self._tools
        warning = self._guard.failed(how.call.name) if known else ""
        return _Result(ok=False, text=_joined(how.text, warning), refused=True)

    def _place(self, how: _Work | _Same | _Result) -> Place:
        if not isinstance(how, _Work):
            return Place(beside=isinstance(how, _Result))
        tool = how.run.tool
        path = _argument(how.run.arguments, tool.touches)
        return Place(
            beside=tool.parallel and not how.asks,
            path=None if path is None else whole_path(str(self._workspace), str(path)),
        )

    # --- running ---------------------------------------------------------------------------------

    async def _together(self, batch: Sequence[_Case], results: dict[str, _Result]) -> list[_Result]:
        ready = [await self._begin(how, results) for _, how in batch]
        alone = sum(isinstance(each, _Work) for each in ready) == 1
        limit = math.inf if alone else self._batch_timeout
        async with asyncio.TaskGroup() as group:
            running = [
                each
                if isinstance(each, _Result)
                else group.create_task(self._carry_out(each, limit))
                for each in ready
            ]
        return [each if isinstance(each, _Result) else each.result() for each in running]

    async def _begin(
        self, how: _Work | _Same | _Result, results: dict[str, _Result]
    ) -> _Work | _Result:
        """Give the result where nothing is to run, else what runs; its start is then durable."""
        if isinstance(how, _Same):
            return msgspec.structs.replace(results[how.as_id], ran=False)
        if isinstance(how, _Result):
            return how
        call, tool = how.run.call, how.run.tool
        if refusal := self._guard.refusal(how.identity):
            return _Result(ok=False, text=refusal, refused=True)
        if how.asks and (denied := await self._denied(how)) is not None:
            return _Result(ok=False, text=f"{call.name} has NOT run: {denied}")
        try:
            await self._journal.tool_started(record_of(call), tool.risk, self._attempt)
        except AlreadyStarted:
            return _Result(ok=False, text=_STARTED_BEFORE.format(call.name), refused=True)
        self.ran.append(call.name)
        self._emit(ToolStarted(call.id, call.name, how.label, tool.emoji))
        return how

    async def _denied(self, work: _Work) -> str | None:
        if self._approve is not None:
            return await self._approve(work.run.tool, record_of(work.run.call))
        if work.doubt is None:
            return "it needs somebody's approval, and nobody here can give it."
        return (
            f"the same call ({work.doubt.id}) was begun earlier in this turn and may have had its "
            "effect. To repeat it needs somebody's approval, and nobody here can give it."
        )

    async def _carry_out(self, work: _Work, limit: float) -> _Result:
        run, call, tool = work.run, work.run.call, work.run.tool
        context = Context(
            self._clock,
            self._workspace,
            f"{self._key}:{call.id}",
            self._drafts,
            self._send_file,
        )
        seconds = min(tool.timeout or self._timeout, limit)
        late = functools.partial(self._late, work)
        try:
            given = await bounded(tool.call(run.arguments, context), call.name, seconds, late)
        except (ToolTimeout, ToolUnknownOutcome) as error:
            unknown = not tool.read_only
            text = f"{UNKNOWN}: {_said(error)}" if unknown else _said(error)
            return _Result(ok=False, text=text, ran=True, unknown=unknown)
        except ToolError as error:
            return _Result(ok=False, text=_said(error), ran=True)
        except Exception as error:  # noqa: BLE001 - the boundary of tools
            _log.exception("tool %s failed", call.name)
            said = f"{call.name} failed: {type(error).__name__}: {error}"
            return _Result(ok=False, text=said, ran=True)
        return _Result(ok=True, text=str(given), ran=True)  # tools of others give what they like

    async def _late(self, work: _Work, result: str) -> None:
        call, text = work.run.call, result[: self._caps.each]
        _log.warning("tool %s came to a result after it was given up", call.name)
        if call.id in self._closed:
            await self._report_late(work, text)
        else:  # while it was ended: first goes on record that its time was up
            self._came_late[call.id] = text

    async def _report_late(self, work: _Work, text: str) -> None:
        call = work.run.call
        self._twins.came_late(work.identity, Twin(call.id, text))
        if isinstance(self._journal, LateJournal):
            await self._journal.tool_late(record_of(call), text)

    # --- results ---------------------------------------------------------------------------------

    async def _finish(self, case: _Case, result: _Result) -> Message:
        call, how = case
        text = await self._capped(call, result.text)
        if result.ran and isinstance(how, _Work):
            text = self._note(how, result, text)
        self._room = max(0, self._room - len(text))
        await self._journal.tool_finished(record_of(call), result.ok, text)
        self._closed.add(call.id)
        if isinstance(how, _Work) and (late := self._came_late.pop(call.id, None)) is not None:
            await self._report_late(how, late)
        if result.ran:
            self._emit(ToolFinished(call.id, call.name, result.ok))
        return Message("tool", text, tool_call_id=call.id)

    def _note(self, work: _Work, result: _Result, text: str) -> str:
        """Keep in mind what the rest of the turn must know; gives the text with its warnings."""
        call, changes = work.run.call, not work.run.tool.read_only
        warning = self._guard.ran(work.identity, result.text, ok=result.ok, changes=changes)
        if result.ok:
            self._did.append((call.name, work.label))
        if changes:
            self._twins.add(work.identity, Twin(call.id, text, result.unknown))
        return _joined(text, warning)

    async def _capped(self, call: StepCall, text: str) -> str:
        room = min(self._caps.each, self._room)
        if fits(text, room):
            return text
        try:
            spilled = await spill(self._workspace, call.id, text)
        except OSError as error:
            _log.warning("the result of %s could not be kept: %s", call.name, error)
            return cut(text, room)
        return preview(text, spilled, reader=_READER if _READER in self._tools else None)


def record_of(call: StepCall) -> ToolCall:
    """Write down a call."""
    return ToolCall(call.id, call.name, call.arguments, call.extra)


def _said(error: ToolError) -> str:
    return str(error) or type(error).__doc__ or ""


def _joined(text: str, warning: str) -> str:
    return f"{text}\n\n{warning}" if warning else text


def _label(run: Run[Tool]) -> str:
    value = _argument(run.arguments, run.tool.label)
    return "" if value is None else " ".join(str(value).split())[:_LONGEST_LABEL]


def _argument(arguments: object, name: str) -> object:
    """Look up one argument by its name, which may be empty; None when it is not there."""
    if isinstance(arguments, dict):
        return arguments.get(name)
    return getattr(arguments, name, None) if name else None
