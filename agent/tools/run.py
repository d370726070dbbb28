"""Execution of the tool calls of one turn: journalled, with deadlines, in the order of the calls."""

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
from agent.events import AgentEvent, ToolFinished, ToolProgress, ToolStarted
from agent.tools.batches import BatchItem, normalize_path, split_batches
from agent.tools.contract import ReportProgress, Risk, SendFile, Tool, ToolOutput
from agent.tools.deadline import CallDeadline, run_with_deadline
from agent.tools.done_list import summarize_calls
from agent.tools.drafts import DraftStore
from agent.tools.gate import AdmittedCall, CallIdentity, RefusedCall, admit_call
from agent.tools.loop_guard import LoopGuard
from agent.tools.masks import has_placeholder
from agent.tools.questions import AskPerson, PersonAnswer, PersonQuestion
from agent.tools.registry import ToolRegistry
from agent.tools.repeats import UNKNOWN_PREFIX, EarlierCall, RepeatedCalls, earlier_call_from
from agent.tools.spill import ResultCaps, fits, format_preview, spill_result, truncate
from sessions.errors import ToolAlreadyStarted
from sessions.records import Attachment, Message, MessageRole, ToolCall, ToolRun
from sessions.values.clock import Clock
from sessions.values.masks import PLACEHOLDER_HEAD, MaskedText, MaskSecrets
from sessions.values.text import shorten

Approve = Callable[[Tool, ToolCall], Awaitable[str | None]]
"""Asks for approval of a call; returns None, or the reason for the denial as text for the model."""

BATCH_TIMEOUT_SECONDS = 420.0  # for calls that run in parallel
_MAX_LABEL_LENGTH = 80
_PROGRESS_INTERVAL_SECONDS = 0.5  # between two reports that are shown
_READER_TOOL = "read_file"

_STARTED_BEFORE = (
    "{} has NOT run: a call with the same id was started earlier in this turn. Check whether it "
    "took effect; if not, make the call again."
)

_HIDDEN_SECRET = (
    f"its arguments contain {PLACEHOLDER_HEAD}…, which stands for a password or key that is hidden "
    "from you. Leave it out. write_file and edit_file can keep it in the file that it is from."
)

AskDuringCall = Callable[[ToolCall, PersonQuestion], Awaitable[PersonAnswer | None]]
"""Asks a person a question of a running call; see `agent.tools.questions.AskPerson`."""

_log = logging.getLogger(__name__)


class ToolJournal(Protocol):
    """The journal of tool runs; see `agent.turn.TurnJournal`."""

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        """Record the start of a tool durably; if this raises, the tool does not run.

        `attempt` is the number of the request whose answer contains the call, as in
        `attempt_started`. Raises `ToolAlreadyStarted` for a call that has started before.
        """
        ...

    async def tool_finished(
        self, call: ToolCall, ok: bool, result: str, files: tuple[Attachment, ...]
    ) -> None:
        """Record the result of a call, including calls that were refused and never started.

        `files` are the files of the result in the workspace.
        """
        ...


@runtime_checkable
class LateResultJournal(Protocol):
    """An optional extension of the journal, for results that arrive after the deadline."""

    async def tool_late(self, call: ToolCall, result: str) -> None:
        """Record the late result of a timed-out call; the turn may have ended already."""
        ...


def _ignore_progress(_text: str) -> None:
    """Show nothing."""


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """The `ToolContext` of one call."""

    clock: Clock
    workspace: Path
    idempotency_key: str
    drafts: DraftStore
    mask: MaskSecrets = MaskedText
    report_progress: ReportProgress = _ignore_progress
    ask_person: AskPerson | None = None
    send_file: SendFile | None = None


class ToolServices(msgspec.Struct, frozen=True, kw_only=True):
    """Services that one turn gives its tools."""

    clock: Clock
    workspace: Path
    drafts: DraftStore
    turn_key: str  # the beginning of every idempotency key of the turn
    ask_person: AskDuringCall | None = None
    send_file: SendFile | None = None
    mask: MaskSecrets = MaskedText  # applied to every result before the model reads it

    def context_of(
        self,
        call: StepCall,
        report_progress: ReportProgress = _ignore_progress,
        ask_person: AskPerson | None = None,
    ) -> CallContext:
        """Return the context of one call."""
        return CallContext(
            clock=self.clock,
            workspace=self.workspace,
            idempotency_key=f"{self.turn_key}:{call.id}",
            drafts=self.drafts,
            mask=self.mask,
            report_progress=report_progress,
            ask_person=ask_person,
            send_file=self.send_file,
        )


class ToolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the calls of one turn."""

    timeout: float = 300.0  # seconds, for tools without a timeout of their own
    batch_timeout: float = BATCH_TIMEOUT_SECONDS
    caps: ResultCaps = ResultCaps()


class _DuplicateCall(msgspec.Struct, frozen=True):
    """A repetition of a call in the same answer, which gets the result of the first one."""

    original_id: str


class _CallResult(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    text: str
    ran: bool = False
    outcome_unknown: bool = False  # the call may or may not have had its effect
    refused: bool = False  # by the gate or the loop guard; no approval could have allowed it
    files: tuple[Attachment, ...] = ()


class _RunnableCall(msgspec.Struct, frozen=True):
    """A call that may run, after approval if necessary."""

    admitted: AdmittedCall[Tool]
    identity: CallIdentity
    label: str
    uncertain_earlier: EarlierCall | None = None  # the same call earlier, with unknown outcome

    @property
    def needs_approval(self) -> bool:
        return self.admitted.tool.must_ask or self.uncertain_earlier is not None


_PlannedCall = tuple[StepCall, _RunnableCall | _DuplicateCall | _CallResult]


class ToolRunner:
    """Runs the tool calls of one turn."""

    def __init__(
        self,
        registry: ToolRegistry,
        journal: ToolJournal,
        emit: Callable[[AgentEvent], None],
        *,
        services: ToolServices,
        limits: ToolLimits,
        approve: Approve | None = None,
    ) -> None:
        self.started_tools: list[str] = []  # names, in order
        self.all_refused = False  # gate or loop guard refused every call of the last run
        self._tools = registry.by_name
        self._reserved_names = registry.reserved_names
        self._earlier_names = registry.earlier_names
        self._journal = journal
        self._emit = emit
        self._services = services
        self._limits = limits
        self._approve = approve
        self._remaining_characters = limits.caps.per_turn
        self._loop_guard = LoopGuard()
        self._repeated_calls = RepeatedCalls()
        self._attempt = 0  # number of the request with the current calls
        self._completed_calls: list[tuple[str, str]] = []
        self._recorded_ids: set[str] = set()  # calls whose result is in the journal
        self._late_results: dict[str, str] = {}

    @property
    def completed_summary(self) -> list[str]:
        """Short descriptions of the successful calls, for people."""
        return summarize_calls(self._completed_calls)

    def restore_runs(self, runs: Iterable[ToolRun]) -> None:
        """Restore the calls started before an interruption, in their original order."""
        for run in runs:
            call = StepCall(
                id=run.call_id,
                name=run.tool,
                arguments=run.arguments,
                arguments_state=classify_arguments(run.arguments),
                sealed=True,
            )
            decision = self._admit(call)
            if isinstance(decision, AdmittedCall) and not decision.tool.only_reads:
                self._repeated_calls.add(decision.identity, earlier_call_from(run))

    def repair_calls(self, calls: Sequence[StepCall]) -> tuple[StepCall, ...]:
        """Return the calls with their corrections, as they will run; ids stay the same."""
        return tuple(self._admit(call).call for call in calls)

    def is_admitted(self, call: StepCall) -> bool:
        """Return True if the gate lets a call pass, after `repair_calls`."""
        return isinstance(self._admit(call), AdmittedCall)

    async def run(
        self, calls: Sequence[StepCall], *, attempt: int = 0, after_recovery: bool = False
    ) -> tuple[Message, ...]:
        """Run the calls and return their results, in the order of the calls.

        `attempt` is the number of the request whose answer contains the calls, for the journal.
        With `after_recovery` the answer is the first one after an interruption, and calls that have
        already run in this turn are not repeated.
        """
        self.all_refused = False
        self._attempt = attempt
        self._loop_guard.begin_answer()
        planned = list(self._plan_calls(calls, after_recovery=after_recovery))
        results: dict[str, _CallResult] = {}
        rows: list[Message] = []
        for span in split_batches([self._batch_item(plan) for _, plan in planned]):
            batch = planned[span.start : span.stop]
            for item, result in zip(batch, await self._run_batch(batch, results), strict=True):
                results[item[0].id] = result
                rows.append(await self._finish_call(item, result))
        self.all_refused = bool(results) and all(result.refused for result in results.values())
        return tuple(rows)

    async def refuse_cut_calls(self, calls: Iterable[StepCall]) -> tuple[Message, ...]:
        """Record that calls did not run because their answer was cut off; return the results."""
        rows: list[Message] = []
        for call in calls:
            text = f"{call.name} has NOT run: the call was cut off. Make it again, if still needed."
            result = _CallResult(ok=False, text=text, refused=True)
            rows.append(await self._finish_call((call, result), result))
        return tuple(rows)

    # --- planning --------------------------------------------------------------------------------

    def _admit(self, call: StepCall) -> AdmittedCall[Tool] | RefusedCall:
        try:
            return admit_call(call, self._tools, self._reserved_names, self._earlier_names)
        except Exception as error:  # noqa: BLE001 - a tool's check is a part of the tool
            _log.exception("the check of the arguments of %s failed", call.name)
            reason = f"{type(error).__name__}: {error}"
            text = f"{call.name} has NOT run, its arguments could not be checked: {reason}"
            return RefusedCall(call, text)

    def _plan_calls(
        self, calls: Sequence[StepCall], *, after_recovery: bool
    ) -> Iterator[_PlannedCall]:
        first: dict[CallIdentity, str] = {}
        for call in calls:
            decision = self._admit(call)
            if isinstance(decision, RefusedCall):
                yield decision.call, self._refused_result(decision)
                continue
            identity = decision.identity
            first_id = first.setdefault(identity, call.id)
            if first_id != call.id:
                yield decision.call, _DuplicateCall(first_id)
                continue
            earlier = self._repeated_calls.get(identity) if after_recovery else None
            if earlier is not None and not earlier.outcome_unknown:
                yield decision.call, _CallResult(ok=True, text=earlier.repeat_result)
            else:
                label = _call_label(decision)
                yield decision.call, _RunnableCall(decision, identity, label, earlier)

    def _refused_result(self, refused: RefusedCall) -> _CallResult:
        known = refused.call.name in self._tools
        warning = self._loop_guard.record_failure(refused.call.name) if known else ""
        return _CallResult(ok=False, text=_with_warning(refused.text, warning), refused=True)

    def _batch_item(self, plan: _RunnableCall | _DuplicateCall | _CallResult) -> BatchItem:
        if not isinstance(plan, _RunnableCall):
            return BatchItem(parallel=isinstance(plan, _CallResult))
        tool = plan.admitted.tool
        path = _get_argument(plan.admitted.arguments, tool.touches)
        return BatchItem(
            parallel=tool.parallel and not plan.needs_approval,
            path=None if path is None else normalize_path(str(self._services.workspace), str(path)),
        )

    # --- running ---------------------------------------------------------------------------------

    async def _run_batch(
        self, batch: Sequence[_PlannedCall], results: dict[str, _CallResult]
    ) -> list[_CallResult]:
        started = [await self._start_call(plan, results) for _, plan in batch]
        alone = sum(isinstance(item, _RunnableCall) for item in started) == 1
        limit = math.inf if alone else self._limits.batch_timeout
        async with asyncio.TaskGroup() as group:
            running = [
                item
                if isinstance(item, _CallResult)
                else group.create_task(self._execute(item, limit))
                for item in started
            ]
        return [item if isinstance(item, _CallResult) else item.result() for item in running]

    async def _start_call(
        self, plan: _RunnableCall | _DuplicateCall | _CallResult, results: dict[str, _CallResult]
    ) -> _RunnableCall | _CallResult:
        """Return the result of a call that does not run, or the call after its start is durable."""
        if isinstance(plan, _DuplicateCall):
            return msgspec.structs.replace(results[plan.original_id], ran=False)
        if isinstance(plan, _CallResult):
            return plan
        call, tool = plan.admitted.call, plan.admitted.tool
        if not (tool.read_only or tool.takes_placeholders) and has_placeholder(call.arguments):
            text = f"{call.name} has NOT run: {_HIDDEN_SECRET}"
            return _CallResult(ok=False, text=text, refused=True)
        if refusal := self._loop_guard.refusal_reason(plan.identity):
            return _CallResult(ok=False, text=refusal, refused=True)
        if plan.needs_approval and (denial := await self._approval_denial(plan)) is not None:
            return _CallResult(ok=False, text=f"{call.name} has NOT run: {denial}")
        try:
            risk = Risk.READ if tool.only_reads else tool.risk
            await self._journal.tool_started(to_tool_call(call), risk, self._attempt)
        except ToolAlreadyStarted:
            return _CallResult(ok=False, text=_STARTED_BEFORE.format(call.name), refused=True)
        self.started_tools.append(call.name)
        self._emit(ToolStarted(call.id, call.name, plan.label, tool.emoji))
        return plan

    async def _approval_denial(self, plan: _RunnableCall) -> str | None:
        if self._approve is not None:
            return await self._approve(plan.admitted.tool, to_tool_call(plan.admitted.call))
        if plan.uncertain_earlier is None:
            return "it needs approval, and there is no way to ask for it in this conversation."
        return (
            f"the same call ({plan.uncertain_earlier.id}) was started earlier in this turn and may "
            "have taken effect. Repeating it needs approval, which cannot be given here."
        )

    async def _execute(self, plan: _RunnableCall, limit: float) -> _CallResult:
        admitted, call, tool = plan.admitted, plan.admitted.call, plan.admitted.tool
        seconds = min(tool.timeout or self._limits.timeout, limit)
        deadline = CallDeadline(seconds, None if limit == math.inf else limit)
        progress = _ProgressReports(call.id, deadline, self._emit)
        ask = self._services.ask_person

        async def ask_person(question: PersonQuestion) -> PersonAnswer | None:
            assert ask is not None  # noqa: S101 - see below
            with deadline.paused():
                return await ask(to_tool_call(call), question)

        context = self._services.context_of(call, progress.report, ask_person if ask else None)
        files: list[Attachment] = []

        async def work() -> str:
            output = await tool.call(admitted.arguments, context)
            if isinstance(output, ToolOutput):
                files.extend(output.files)
                return output.text
            return str(output)  # tools of other distributions may return another type

        on_late_result = functools.partial(self._on_late_result, plan)
        try:
            result = await run_with_deadline(work(), call.name, deadline, on_late_result)
        except (ToolTimeout, ToolUnknownOutcome) as error:
            if tool.only_reads:
                seconds = deadline.total_seconds
                cause = f": it took more than {seconds:.3g} s" if type(error) is ToolTimeout else ""
                return _CallResult(ok=False, text=f"{call.name} did not complete{cause}.", ran=True)
            text = f"{UNKNOWN_PREFIX}: {_error_text(error)}"
            return _CallResult(ok=False, text=text, ran=True, outcome_unknown=True)
        except ToolError as error:
            return _CallResult(ok=False, text=_error_text(error), ran=True)
        except Exception as error:  # noqa: BLE001 - the boundary of tools
            _log.exception("tool %s failed", call.name)
            text = f"{call.name} failed: {type(error).__name__}: {error}"
            return _CallResult(ok=False, text=text, ran=True)
        finally:
            progress.close()
        return _CallResult(ok=True, text=result, ran=True, files=tuple(files))

    async def _on_late_result(self, plan: _RunnableCall, result: str) -> None:
        call = plan.admitted.call
        text = self._services.mask(result).text[: self._limits.caps.per_result]
        _log.warning("tool %s returned a result after its deadline", call.name)
        if call.id in self._recorded_ids:
            await self._record_late_result(plan, text)
        else:  # the timeout has to be recorded first
            self._late_results[call.id] = text

    async def _record_late_result(self, plan: _RunnableCall, text: str) -> None:
        call = plan.admitted.call
        self._repeated_calls.record_late_result(plan.identity, EarlierCall(call.id, text))
        if isinstance(self._journal, LateResultJournal):
            await self._journal.tool_late(to_tool_call(call), text)

    # --- results ---------------------------------------------------------------------------------

    async def _finish_call(self, planned: _PlannedCall, result: _CallResult) -> Message:
        call, plan = planned
        # Before the result is shortened, because a part of a secret is not recognized.
        text = await self._cap_result(call, self._services.mask(result.text).text)
        if result.ran and isinstance(plan, _RunnableCall):
            text = self._record_outcome(plan, result, text)
        self._remaining_characters = max(0, self._remaining_characters - len(text))
        await self._journal.tool_finished(to_tool_call(call), result.ok, text, result.files)
        self._recorded_ids.add(call.id)
        if (
            isinstance(plan, _RunnableCall)
            and (late := self._late_results.pop(call.id, None)) is not None
        ):
            await self._record_late_result(plan, late)
        if result.ran:
            self._emit(ToolFinished(call.id, call.name, result.ok))
        return Message(MessageRole.TOOL, text, tool_call_id=call.id, files=result.files)

    def _record_outcome(self, plan: _RunnableCall, result: _CallResult, text: str) -> str:
        """Record the outcome for the rest of the turn; return the text with any warning."""
        call, changes = plan.admitted.call, not plan.admitted.tool.only_reads
        warning = self._loop_guard.record_result(
            plan.identity, result.text, ok=result.ok, changes=changes
        )
        if result.ok:
            self._completed_calls.append((call.name, plan.label))
        if changes:
            self._repeated_calls.add(
                plan.identity, EarlierCall(call.id, text, result.outcome_unknown)
            )
        return _with_warning(text, warning)

    async def _cap_result(self, call: StepCall, text: str) -> str:
        room = min(self._limits.caps.per_result, self._remaining_characters)
        if fits(text, room):
            return text
        try:
            spilled = await spill_result(self._services.workspace, call.id, text)
        except OSError as error:
            _log.warning("cannot save the result of %s to a file: %s", call.name, error)
            return truncate(text, room)
        return format_preview(
            text, spilled, reader_tool=_READER_TOOL if _READER_TOOL in self._tools else None
        )


class _ProgressReports:
    """The reports of one running call: each renews the deadline, and a few per second are shown."""

    def __init__(
        self, call_id: str, deadline: CallDeadline, emit: Callable[[AgentEvent], None]
    ) -> None:
        self._call_id = call_id
        self._deadline = deadline
        self._emit = emit
        self._shown_at = -math.inf
        self._closed = False

    def report(self, text: str) -> None:
        """See `agent.tools.contract.ReportProgress`."""
        if self._closed:
            return
        self._deadline.renew()
        now = asyncio.get_running_loop().time()
        if now - self._shown_at >= _PROGRESS_INTERVAL_SECONDS:
            self._shown_at = now
            self._emit(
                ToolProgress(self._call_id, shorten(" ".join(text.split()), _MAX_LABEL_LENGTH))
            )

    def close(self) -> None:
        """Ignore later reports, because the call has ended."""
        self._closed = True


def to_tool_call(call: StepCall) -> ToolCall:
    """Convert a call of the current step to the record that is stored."""
    return ToolCall(call.id, call.name, call.arguments, call.extra)


def _error_text(error: ToolError) -> str:
    return str(error) or type(error).__doc__ or ""


def _with_warning(text: str, warning: str) -> str:
    return f"{text}\n\n{warning}" if warning else text


def _call_label(admitted: AdmittedCall[Tool]) -> str:
    value = _get_argument(admitted.arguments, admitted.tool.label)
    return "" if value is None else " ".join(str(value).split())[:_MAX_LABEL_LENGTH]


def _get_argument(arguments: object, name: str) -> object:
    """Return an argument by name; None if the name is empty or the argument is missing."""
    if not name:
        return None
    return arguments.get(name) if isinstance(arguments, dict) else getattr(arguments, name, None)
