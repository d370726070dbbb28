"""Carries out the tool calls of one turn: journalled, bounded in time, in the order of the calls."""

import asyncio
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from agent.answer.call_slots import StepCall, classify_arguments
from agent.errors import ToolError, ToolTimeout, ToolUnknownOutcome
from agent.events import AgentEvent, ToolFinished, ToolStarted
from agent.tools.batches import BatchItem, normalize_path, split_batches
from agent.tools.contract import Risk, SendFile, Tool
from agent.tools.deadline import run_with_deadline
from agent.tools.done_list import summarize_calls
from agent.tools.drafts import DraftStore
from agent.tools.gate import AdmittedCall, CallIdentity, RefusedCall, admit_call
from agent.tools.loop_guard import LoopGuard
from agent.tools.registry import ToolRegistry
from agent.tools.repeats import UNKNOWN_PREFIX, EarlierCall, RepeatedCalls, earlier_call_from
from agent.tools.spill import ResultCaps, caps_for, fits, format_preview, spill_result, truncate
from sessions.errors import ToolAlreadyStarted
from sessions.records import Message, ToolCall, ToolRun
from sessions.values.clock import Clock

Approve = Callable[[Tool, ToolCall], Awaitable[str | None]]
"""May this call run? None: yes; else the reason why not, as the model is to read it."""

BATCH_TIMEOUT_SECONDS = 420.0  # seconds for calls that run side by side
_MAX_LABEL_LENGTH = 80
_READER_TOOL = "read_file"

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
class LateResultJournal(Protocol):
    """What a journal may offer besides, to hear of tools that ended after they were given up."""

    async def tool_late(self, call: ToolCall, result: str) -> None:
        """A call that had timed out came to this result; the turn may be over by now."""
        ...


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """See `ToolContext`."""

    clock: Clock
    workspace: Path
    idempotency_key: str
    drafts: DraftStore
    send_file: SendFile | None = None


class _DuplicateCall(msgspec.Struct, frozen=True):
    """The very same call stands earlier in this answer; it runs once, both get the result."""

    original_id: str


class _CallResult(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    text: str
    ran: bool = False
    outcome_unknown: bool = False  # whether it had its effect is not known
    refused: bool = False  # there was no sense in it, whoever might have allowed it


class _RunnableCall(msgspec.Struct, frozen=True):
    """A call that may run."""

    admitted: AdmittedCall[Tool]
    identity: CallIdentity
    label: str
    uncertain_earlier: EarlierCall | None = None  # a call like it that may have had its effect

    @property
    def needs_approval(self) -> bool:
        return self.admitted.tool.must_ask or self.uncertain_earlier is not None


_PlannedCall = tuple[StepCall, _RunnableCall | _DuplicateCall | _CallResult]


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
        drafts: DraftStore,
        turn_key: str,
        approve: Approve | None = None,
        send_file: SendFile | None = None,
        timeout: float = 300.0,
        batch_timeout: float = BATCH_TIMEOUT_SECONDS,
        caps: ResultCaps | None = None,
    ) -> None:
        self.started_tools: list[str] = []  # names, in order
        self.all_refused = False  # every call of the last run, by the gate or as a loop
        self._tools = registry.by_name
        self._journal = journal
        self._emit = emit
        self._clock = clock
        self._workspace = workspace
        self._drafts = drafts
        self._turn_key = turn_key  # of the turn
        self._approve = approve
        self._send_file = send_file
        self._timeout = timeout
        self._batch_timeout = batch_timeout
        self._caps = caps or caps_for(None)
        self._remaining_characters = self._caps.per_turn
        self._loop_guard = LoopGuard()
        self._repeated_calls = RepeatedCalls()
        self._attempt = 0  # the request that brought the calls at hand
        self._completed_calls: list[tuple[str, str]] = []
        self._recorded_ids: set[str] = set()  # calls whose result is on record
        self._late_results: dict[str, str] = {}

    @property
    def completed_summary(self) -> list[str]:
        """What was carried out without an error, in a few words for people."""
        return summarize_calls(self._completed_calls)

    def restore_runs(self, runs: Iterable[ToolRun]) -> None:
        """Take in what was begun before an interruption, in the order in which it was."""
        for run in runs:
            shape = classify_arguments(run.arguments)
            how = self._admit(
                StepCall(
                    id=run.call_id,
                    name=run.tool,
                    arguments=run.arguments,
                    arguments_state=shape,
                    sealed=True,
                )
            )
            if isinstance(how, AdmittedCall) and not how.tool.read_only:
                self._repeated_calls.add(how.identity, earlier_call_from(run))

    def repair_calls(self, calls: Sequence[StepCall]) -> tuple[StepCall, ...]:
        """Give the calls as they will be carried out, with slips put right; ids stay."""
        return tuple(self._admit(call).call for call in calls)

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
        self._loop_guard.begin_answer()
        cases = list(self._plan_calls(calls, after_recovery=after_recovery))
        results: dict[str, _CallResult] = {}
        rows: list[Message] = []
        for where in split_batches([self._batch_item(how) for _, how in cases]):
            batch = cases[where.start : where.stop]
            for case, result in zip(batch, await self._run_batch(batch, results), strict=True):
                results[case[0].id] = result
                rows.append(await self._finish_call(case, result))
        self.all_refused = bool(results) and all(each.refused for each in results.values())
        return tuple(rows)

    # --- what to do with each call ---------------------------------------------------------------

    def _admit(self, call: StepCall) -> AdmittedCall[Tool] | RefusedCall:
        try:
            return admit_call(call, self._tools)
        except Exception as error:  # noqa: BLE001 - a tool's check is a part of the tool
            _log.exception("the arguments of %s could not be checked", call.name)
            why = f"{type(error).__name__}: {error}"
            text = f"{call.name} has NOT run, its arguments could not be checked: {why}"
            return RefusedCall(call, text)

    def _plan_calls(
        self, calls: Sequence[StepCall], *, after_recovery: bool
    ) -> Iterator[_PlannedCall]:
        first: dict[CallIdentity, str] = {}
        for call in calls:
            how = self._admit(call)
            if isinstance(how, RefusedCall):
                yield how.call, self._refused_result(how)
                continue
            identity = how.identity
            earlier = first.setdefault(identity, call.id)
            if earlier != call.id:
                yield how.call, _DuplicateCall(earlier)
                continue
            twin = self._repeated_calls.get(identity) if after_recovery else None
            if twin is not None and not twin.outcome_unknown:
                yield how.call, _CallResult(ok=True, text=twin.repeat_result)
            else:
                yield how.call, _RunnableCall(how, identity, _call_label(how), twin)

    def _refused_result(self, how: RefusedCall) -> _CallResult:
        known = how.call.name in self._tools
        warning = self._loop_guard.record_failure(how.call.name) if known else ""
        return _CallResult(ok=False, text=_with_warning(how.text, warning), refused=True)

    def _batch_item(self, how: _RunnableCall | _DuplicateCall | _CallResult) -> BatchItem:
        if not isinstance(how, _RunnableCall):
            return BatchItem(parallel=isinstance(how, _CallResult))
        tool = how.admitted.tool
        path = _get_argument(how.admitted.arguments, tool.touches)
        return BatchItem(
            parallel=tool.parallel and not how.needs_approval,
            path=None if path is None else normalize_path(str(self._workspace), str(path)),
        )

    # --- running ---------------------------------------------------------------------------------

    async def _run_batch(
        self, batch: Sequence[_PlannedCall], results: dict[str, _CallResult]
    ) -> list[_CallResult]:
        ready = [await self._start_call(how, results) for _, how in batch]
        alone = sum(isinstance(each, _RunnableCall) for each in ready) == 1
        limit = math.inf if alone else self._batch_timeout
        async with asyncio.TaskGroup() as group:
            running = [
                each
                if isinstance(each, _CallResult)
                else group.create_task(self._execute(each, limit))
                for each in ready
            ]
        return [each if isinstance(each, _CallResult) else each.result() for each in running]

    async def _start_call(
        self, how: _RunnableCall | _DuplicateCall | _CallResult, results: dict[str, _CallResult]
    ) -> _RunnableCall | _CallResult:
        """Give the result where nothing is to run, else what runs; its start is then durable."""
        if isinstance(how, _DuplicateCall):
            return msgspec.structs.replace(results[how.original_id], ran=False)
        if isinstance(how, _CallResult):
            return how
        call, tool = how.admitted.call, how.admitted.tool
        if refusal := self._loop_guard.refusal_reason(how.identity):
            return _CallResult(ok=False, text=refusal, refused=True)
        if how.needs_approval and (denied := await self._approval_denial(how)) is not None:
            return _CallResult(ok=False, text=f"{call.name} has NOT run: {denied}")
        try:
            await self._journal.tool_started(to_tool_call(call), tool.risk, self._attempt)
        except ToolAlreadyStarted:
            return _CallResult(ok=False, text=_STARTED_BEFORE.format(call.name), refused=True)
        self.started_tools.append(call.name)
        self._emit(ToolStarted(call.id, call.name, how.label, tool.emoji))
        return how

    async def _approval_denial(self, work: _RunnableCall) -> str | None:
        if self._approve is not None:
            return await self._approve(work.admitted.tool, to_tool_call(work.admitted.call))
        if work.uncertain_earlier is None:
            return "it needs somebody's approval, and nobody here can give it."
        return (
            f"the same call ({work.uncertain_earlier.id}) was begun earlier in this turn and may have had its "
            "effect. To repeat it needs somebody's approval, and nobody here can give it."
        )

    async def _execute(self, work: _RunnableCall, limit: float) -> _CallResult:
        run, call, tool = work.admitted, work.admitted.call, work.admitted.tool
        context = CallContext(
            clock=self._clock,
            workspace=self._workspace,
            idempotency_key=f"{self._turn_key}:{call.id}",
            drafts=self._drafts,
            send_file=self._send_file,
        )
        seconds = min(tool.timeout or self._timeout, limit)
        late = functools.partial(self._on_late_result, work)
        try:
            given = await run_with_deadline(
                tool.call(run.arguments, context), call.name, seconds, late
            )
        except (ToolTimeout, ToolUnknownOutcome) as error:
            unknown = not tool.read_only
            text = f"{UNKNOWN_PREFIX}: {_error_text(error)}" if unknown else _error_text(error)
            return _CallResult(ok=False, text=text, ran=True, outcome_unknown=unknown)
        except ToolError as error:
            return _CallResult(ok=False, text=_error_text(error), ran=True)
        except Exception as error:  # noqa: BLE001 - the boundary of tools
            _log.exception("tool %s failed", call.name)
            said = f"{call.name} failed: {type(error).__name__}: {error}"
            return _CallResult(ok=False, text=said, ran=True)
        return _CallResult(
            ok=True, text=str(given), ran=True
        )  # tools of others give what they like

    async def _on_late_result(self, work: _RunnableCall, result: str) -> None:
        call, text = work.admitted.call, result[: self._caps.per_result]
        _log.warning("tool %s came to a result after it was given up", call.name)
        if call.id in self._recorded_ids:
            await self._record_late_result(work, text)
        else:  # while it was ended: first goes on record that its time was up
            self._late_results[call.id] = text

    async def _record_late_result(self, work: _RunnableCall, text: str) -> None:
        call = work.admitted.call
        self._repeated_calls.record_late_result(work.identity, EarlierCall(call.id, text))
        if isinstance(self._journal, LateResultJournal):
            await self._journal.tool_late(to_tool_call(call), text)

    # --- results ---------------------------------------------------------------------------------

    async def _finish_call(self, case: _PlannedCall, result: _CallResult) -> Message:
        call, how = case
        text = await self._cap_result(call, result.text)
        if result.ran and isinstance(how, _RunnableCall):
            text = self._record_outcome(how, result, text)
        self._remaining_characters = max(0, self._remaining_characters - len(text))
        await self._journal.tool_finished(to_tool_call(call), result.ok, text)
        self._recorded_ids.add(call.id)
        if (
            isinstance(how, _RunnableCall)
            and (late := self._late_results.pop(call.id, None)) is not None
        ):
            await self._record_late_result(how, late)
        if result.ran:
            self._emit(ToolFinished(call.id, call.name, result.ok))
        return Message("tool", text, tool_call_id=call.id)

    def _record_outcome(self, work: _RunnableCall, result: _CallResult, text: str) -> str:
        """Keep in mind what the rest of the turn must know; gives the text with its warnings."""
        call, changes = work.admitted.call, not work.admitted.tool.read_only
        warning = self._loop_guard.record_result(
            work.identity, result.text, ok=result.ok, changes=changes
        )
        if result.ok:
            self._completed_calls.append((call.name, work.label))
        if changes:
            self._repeated_calls.add(
                work.identity, EarlierCall(call.id, text, result.outcome_unknown)
            )
        return _with_warning(text, warning)

    async def _cap_result(self, call: StepCall, text: str) -> str:
        room = min(self._caps.per_result, self._remaining_characters)
        if fits(text, room):
            return text
        try:
            spilled = await spill_result(self._workspace, call.id, text)
        except OSError as error:
            _log.warning("the result of %s could not be kept: %s", call.name, error)
            return truncate(text, room)
        return format_preview(
            text, spilled, reader_tool=_READER_TOOL if _READER_TOOL in self._tools else None
        )


def to_tool_call(call: StepCall) -> ToolCall:
    """Write down a call."""
    return ToolCall(call.id, call.name, call.arguments, call.extra)


def _error_text(error: ToolError) -> str:
    return str(error) or type(error).__doc__ or ""


def _with_warning(text: str, warning: str) -> str:
    return f"{text}\n\n{warning}" if warning else text


def _call_label(run: AdmittedCall[Tool]) -> str:
    value = _get_argument(run.arguments, run.tool.label)
    return "" if value is None else " ".join(str(value).split())[:_MAX_LABEL_LENGTH]


def _get_argument(arguments: object, name: str) -> object:
    """Look up one argument by its name, which may be empty; None when it is not there."""
    if isinstance(arguments, dict):
        return arguments.get(name)
    return getattr(arguments, name, None) if name else None
