"""Agent loop of one turn: requests to the model and tool calls until there is a final answer."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from agent.answer.accumulate import Accumulator
from agent.answer.call_slots import StepCall
from agent.answer_format import check_answer, describe_format, repair_prompt
from agent.attempt import AttemptResult, price_of, run_attempt, with_estimated_usage
from agent.client_calls import steps_of_loop
from agent.client_tools import ToolOffer, new_call_id
from agent.continuation import (
    CompactHistory,
    FinishTurn,
    GiveUp,
    Recovery,
    RecoveryAction,
    RecoveryBudget,
    ReissueCalls,
    RequestAnnouncedCall,
    RequestSmallerCalls,
    RetryRequest,
    RunTools,
    SwitchTarget,
)
from agent.errors import (
    BudgetExceeded,
    Declined,
    Looping,
    Overloaded,
    RateLimited,
    Stalled,
    ToolError,
    failure_kind,
)
from agent.events import (
    AgentEvent,
    Notice,
    StepDone,
    TextDelta,
    TextReplaced,
    TurnDone,
    TurnEnding,
    VerdictName,
)
from agent.model.contract import ModelRequest, ToolSchema
from agent.model.usage import ASSUMED_ANSWER_TOKENS, Usage, UsageEstimate
from agent.picture_loader import PictureLoader
from agent.providers.registry import Target
from agent.request import history_plan
from agent.request.prompt import (
    LAST_STEP_MESSAGE,
    ContinuationReason,
    LostCallReport,
    normalize_history,
)
from agent.request.tokens import estimate_request
from agent.route import Route
from agent.salvage import Salvage, sort_calls
from agent.step import CallLosses, StepState
from agent.tools.drafts import FileDraft
from agent.tools.run import ToolLimits, ToolRunner, ToolServices, to_tool_call
from agent.tools.spill import caps_for
from agent.transcript import Transcript
from agent.turn import TurnResources, TurnTask
from agent.verdict import Capped, Cut, ModelRefused, verdict_name
from sessions.records import Message, MessageRole
from sessions.values.notices import NoticeFields, NoticeId

_NO_TEXT = "(no text)"  # stands for an empty answer in the request for a better one
_MAX_REFUSED_STEPS = 3  # steps in a row in which no call could run


async def run_turn(task: TurnTask, resources: TurnResources) -> TurnDone:
    """Run a turn and return its result; events go to `resources.emit` as they happen.

    The end of the turn is not emitted, so that the caller can commit it before announcing it.
    Cancelling this coroutine stops the turn: the connection to the model is closed at once and
    running tools are cancelled.
    """
    turn = _TurnLoop(task, resources)
    try:
        first = _earlier_steps(task) + 1
        last = max(first - 1, resources.limits.max_steps)
        for number in range(first, last + 1):
            outcome = await turn.run_step(number)
            if isinstance(outcome, TurnDone):
                return outcome
            refused = await turn.run_tools(outcome)
            if refused:
                return refused
            turn.add_rows(await resources.fetch_steers())
        return await turn.run_last_step(last + 1)
    finally:
        turn.release()


def _earlier_steps(task: TurnTask) -> int:
    """Return the steps of earlier requests of a loop in which the client runs its tools."""
    return steps_of_loop(task.history) if task.options.tools and not task.resumed else 0


class _StepAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Model answer with calls to run."""

    text: str
    result: AttemptResult
    salvage: Salvage
    drafts: tuple[FileDraft | None, ...]  # one per lost call
    cap: int | None = None  # raised output limit for the next step, after a call was capped


class _TurnLoop:
    """State of a running turn: conversation, route, recovery budget and usage."""

    def __init__(self, task: TurnTask, resources: TurnResources) -> None:
        self._task = task
        self._transcript = Transcript(task.history, task.summary)
        self._picture_loader = PictureLoader(task.workspace)
        self._route = Route(resources.targets, resources.learned_targets)
        self._offer = ToolOffer(resources.tools, task.options)
        self._tools = self._offer.registry
        self._journal = resources.journal
        self._clock = resources.clock
        self._emit = resources.emit
        self._drafts = resources.drafts
        self._randomness = resources.randomness
        self._stop_at_output_limit = resources.limits.stop_at_output_limit
        self._max_answer_characters = resources.limits.max_answer_characters
        self._options = task.options
        self._format = task.options.format
        self._system = "\n\n".join(
            [
                task.system,
                *(f"[{note}]" for note in task.notes),
                *([describe_format(self._format)] if self._format else ()),
            ]
        ).strip()
        self._step_number = 0
        self._budget = RecoveryBudget(resources.clock.monotonic())
        self._attempt_count = 0
        self._estimated_tokens = 0  # input tokens of the next request; 0: not estimated yet
        self._usage = Usage()
        self._estimated_usage = Usage()  # tokens that services did not report
        self._unfinished_drafts: dict[str, FileDraft] = {}  # drafts of this turn, by path
        self._losses = CallLosses()  # of the last step
        self._after_recovery = task.resumed  # True if the next answer is the first after a recovery
        self._refused_steps = 0
        self._runner = ToolRunner(
            self._tools,
            resources.journal,
            resources.emit,
            services=ToolServices(
                clock=resources.clock,
                workspace=task.workspace,
                drafts=resources.drafts,
                turn_key=f"{task.session_id}:{task.turn_id}",
                ask_person=resources.ask_person,
                send_file=resources.send_file,
                mask=resources.mask,
            ),
            limits=ToolLimits(
                timeout=resources.limits.tool_timeout, caps=caps_for(self._route.window)
            ),
            approve=resources.approve,
        )
        self._runner.restore_runs(task.earlier_runs)

    def add_rows(self, rows: Iterable[Message]) -> None:
        """Add user messages that were sent while the turn ran."""
        self._transcript.add(rows)

    def release(self) -> None:
        """Release the target's circuit breaker; call once at the end of the turn."""
        self._route.release(self._clock.monotonic())

    # --- steps ---------------------------------------------------------------------------------

    async def run_step(self, number: int) -> _StepAnswer | TurnDone:
        """Get one model answer; return the answer if there are calls, else the end of the turn."""
        self._step_number = number
        outcome = await self._run_new_step(number, self._tools.schemas, ())
        return await self._finish_format(number, outcome) if self._format else outcome

    async def run_last_step(self, number: int) -> TurnDone:
        """Request a final summary without tools, because all steps are used up."""
        outcome = await self._run_new_step(number, (), (LAST_STEP_MESSAGE,))
        if self._format:
            outcome = await self._finish_format(number, outcome)
        if isinstance(outcome, TurnDone):
            return outcome
        if outcome.text.strip():
            return self._finish_answered(outcome.text, outcome.result)
        return self._finish_failed(
            "", GiveUp("the model used all its steps without reaching an answer")
        )

    async def _finish_format(
        self, number: int, outcome: _StepAnswer | TurnDone
    ) -> _StepAnswer | TurnDone:
        """Check a final answer against the requested format, and show it; ask once for a better one.

        A text that ends at the requested length is shown as it is.
        """
        if not isinstance(outcome, TurnDone) or outcome.ending is not TurnEnding.ANSWERED:
            return outcome
        assert self._format  # noqa: S101 - checked by the callers
        done, complaint = outcome, ""
        if outcome.last_verdict is not VerdictName.CAPPED:
            text, complaint = await asyncio.to_thread(check_answer, outcome.text, self._format)
            if complaint:
                again = (
                    Message(MessageRole.ASSISTANT, outcome.text or _NO_TEXT),
                    Message(MessageRole.USER, repair_prompt(complaint)),
                )
                repaired = await self._run_new_step(number + 1, (), again)
                if not isinstance(repaired, TurnDone) or repaired.ending is not TurnEnding.ANSWERED:
                    return repaired
                done = repaired
                text, complaint = await asyncio.to_thread(check_answer, repaired.text, self._format)
            if complaint:
                cause = f"the model's answer does not have the requested format: {complaint}"
                return self._finish_failed("", GiveUp(cause))
            message = done.message and replace(done.message, content=text)
            done = replace(done, text=text, message=message)
        self._emit(TextDelta(done.text))
        return done

    async def run_tools(self, answer: _StepAnswer) -> TurnDone | None:
        """Run the calls of an answer; return the end of the turn if there is no next step.

        The assistant row is durable before any tool runs. Calls of the client's tools end the turn
        after the agent's own calls of the same answer have run. The turn also ends if too many steps
        were refused.
        """
        calls = self._runner.repair_calls(answer.salvage.ready)
        client_calls: list[StepCall] = []
        if self._offer.client_names:
            calls, client_calls = self._split_client_calls(calls)
        # There is no next step whose request could report these calls.
        cut_calls = self._cut_calls(answer.salvage) if client_calls else ()
        message = Message(
            MessageRole.ASSISTANT,
            answer.text,
            tool_calls=tuple(map(to_tool_call, (*calls, *cut_calls))),
            reasoning=answer.result.stored_reasoning(self._route.target.label),
        )
        await self._journal.step_done(message)
        self._emit(StepDone())
        before, started_at = len(self._runner.started_tools), self._clock.monotonic()
        results = await self._runner.run(
            [call for call in calls if call not in client_calls],
            attempt=self._attempt_count,
            after_recovery=self._after_recovery,
        )
        self._budget.exclude_wait(self._clock.monotonic() - started_at)
        cut_results = await self._runner.refuse_cut_calls(cut_calls)
        self._transcript.add((message, *results, *cut_results))
        await self._refresh_drafts()
        if ran := self._runner.started_tools[before:]:
            self._budget.reset_on_progress(self._clock.monotonic(), ran)
        if client_calls:
            done = self._turn_done(TurnEnding.ANSWERED, answer.text, None)
            return replace(done, client_calls=tuple(map(to_tool_call, client_calls)))
        self._report_losses(answer)
        self._refused_steps = self._refused_steps + 1 if self._runner.all_refused else 0
        if self._refused_steps < _MAX_REFUSED_STEPS:
            return None
        cause = "the model kept making tool calls that cannot be run"
        return self._finish_failed("", GiveUp(cause))

    def _split_client_calls(
        self, calls: Sequence[StepCall]
    ) -> tuple[tuple[StepCall, ...], list[StepCall]]:
        """Return all calls, and those that the client has to run, which get ids of their own.

        Invalid calls of a client's tool are refused here like those of the agent's tools. A client that
        wants one call at a time gets the first one; the model can make the others again.
        """
        one_at_a_time = self._options.parallel_tool_calls is False
        identified: list[StepCall] = []
        handed: list[StepCall] = []
        for call in calls:
            if call.name in self._offer.client_names and self._runner.is_admitted(call):
                if handed and one_at_a_time:
                    continue
                call = replace(call, id=new_call_id(self._task.turn_id))  # noqa: PLW2901 - the same call
                handed.append(call)
            identified.append(call)
        return tuple(identified), handed

    def _cut_calls(self, salvage: Salvage) -> tuple[StepCall, ...]:
        """Return the calls of a cut answer that must not run, without their incomplete arguments."""
        cut = [
            each for each in (*salvage.lost, *salvage.unsealed) if each.name in self._tools.by_name
        ]
        return tuple(replace(call, arguments="{}") for call in cut)

    def _report_losses(self, answer: _StepAnswer) -> None:
        salvage = answer.salvage
        missing = [call.name for call in (*salvage.lost, *salvage.unsealed)]
        self._after_recovery = bool(missing)
        if not missing:
            self._losses = CallLosses()
            return
        names = [call.name for call in salvage.lost]
        self._budget.record_lost_calls(names)
        smaller_calls = self._budget.smaller_calls(names) if names else None
        done = tuple(f"{call.name} ({call.id})" for call in salvage.ready)
        report = self._build_report(salvage, answer.drafts, smaller_calls, done)
        self._losses = CallLosses(report=report, smaller_calls=smaller_calls, cap=answer.cap)

    def _build_report(
        self,
        salvage: Salvage,
        drafts: Sequence[FileDraft | None],
        smaller_calls: RequestSmallerCalls | None,
        done: Iterable[str] = (),
    ) -> LostCallReport:
        unfinished = self._unfinished_drafts.values()
        return StepState.build_report(
            salvage, drafts, smaller_calls, done_calls=done, unfinished_drafts=unfinished
        )

    # --- one answer, over all its requests -------------------------------------------------------

    async def _run_new_step(
        self, number: int, schemas: tuple[ToolSchema, ...], extra_messages: tuple[Message, ...]
    ) -> _StepAnswer | TurnDone:
        step = self._new_step(number, schemas, extra_messages)
        try:
            return await self._answer_step(number, step)
        except BudgetExceeded as refused:
            return self._finish_over_budget(step.text, refused)

    def _new_step(
        self, number: int, schemas: tuple[ToolSchema, ...], extra_messages: tuple[Message, ...]
    ) -> StepState:
        return StepState(
            schemas,
            extra_messages,
            text=self._task.partial_text if number == 1 else "",
            continues=self._task.continued_text if number == 1 else "",
            losses=self._losses,
            emit=self._emit_unformatted if self._format else self._emit,
            clock=self._clock,
            may_replace=self._task.may_replace,
        )

    def _emit_unformatted(self, event: AgentEvent) -> None:
        """Emit an event of an answer whose text is shown only after the check of its format."""
        if not isinstance(event, TextDelta | TextReplaced):
            self._emit(event)

    async def _answer_step(self, number: int, step: StepState) -> _StepAnswer | TurnDone:
        timeouts = self._route.target.settings.timeouts
        recovery = Recovery(self._budget, first_backoff_seconds=timeouts.backoff)
        after_tools = self._transcript.ends_with_tool_result
        measured: Target | None = None  # target whose window the conversation was checked against
        while True:
            self._choose_target(recovery, step)
            if measured is not self._route.target and not self._fits_window(step):
                await self._compact_history(None)
            measured = self._route.target
            result = await self._send_request(number, step)
            salvage = sort_calls(result.step.calls, result.verdict, self._tools.by_name)
            drafts = await self._keep_drafts(salvage, result)
            outcome = step.build_outcome(
                result,
                salvage,
                drafted_characters=sum(draft.added_characters for draft in drafts if draft),
                after_tools=after_tools,
                has_other_target=self._route.has_fallback,
                may_only_announce=self._route.facts.may_only_announce,
                streamed=self._asks_for_stream(step),
            )
            action = recovery.next_action(outcome, self._clock.monotonic())
            now = self._clock.monotonic()
            self._route.record_result(result, now, unmarked_end=recovery.confirmed_unmarked_end)
            capped = isinstance(result.verdict, Capped) and not result.step.calls
            if capped and self._stop_at_output_limit:
                action = FinishTurn()
            if isinstance(action, FinishTurn | RunTools | GiveUp):
                return self._step_outcome(step, action, result, salvage, drafts)
            if isinstance(action, RequestAnnouncedCall):
                step.request_announced_call()  # not a recovery: nothing was lost, so no notice
                continue
            self._after_recovery = True
            if not isinstance(action, RetryRequest):  # a retried call is small; no notice
                self._notify_losses(salvage, drafts, action=action)
            if isinstance(action, RetryRequest) and action.reason is ContinuationReason.CAP:
                measured = None  # the continued text grows, so check the window again
            given_up = await self._prepare_retry(step, action, result, salvage, drafts)
            if given_up:
                return given_up

    def _step_outcome(
        self,
        step: StepState,
        action: FinishTurn | RunTools | GiveUp,
        result: AttemptResult,
        salvage: Salvage,
        drafts: tuple[FileDraft | None, ...],
    ) -> _StepAnswer | TurnDone:
        """Return the result of a finished step."""
        match action:
            case FinishTurn():
                return self._finish_answered(step.text, result)
            case RunTools():
                self._notify_losses(salvage, drafts)
                capped = isinstance(result.verdict, Capped) and bool(salvage.lost)
                cap = self._route.raised_cap(step.cap, result) if capped else None
                return _StepAnswer(
                    text=step.text, result=result, salvage=salvage, drafts=drafts, cap=cap
                )
            case GiveUp():
                return self._finish_failed(step.text, action, result)

    async def _prepare_retry(
        self,
        step: StepState,
        action: RetryRequest | RequestSmallerCalls | ReissueCalls | CompactHistory | SwitchTarget,
        result: AttemptResult,
        salvage: Salvage,
        drafts: tuple[FileDraft | None, ...],
    ) -> TurnDone | None:
        """Prepare the step's next request; return the end of the turn if none is possible."""
        match action:
            case RetryRequest():
                raised = self._route.raised_cap(step.cap, result)
                step.prepare_retry(action, raised, self._route.lowered_cap(step.cap))
                wait = (
                    action.wait_seconds
                    if action.without_jitter
                    else self._add_jitter(action.wait_seconds)
                )
                self._notify_retry(step, result, wait)
                await self._pause(step, wait)
            case RequestSmallerCalls():
                report = self._build_report(salvage, drafts, action)
                step.request_smaller_calls(action, report, self._route.raised_cap(step.cap, result))
                await self._pause(step, self._add_jitter(action.wait_seconds))
            case ReissueCalls():
                step.reissue_calls(self._build_report(salvage, drafts, None))
                wait = self._add_jitter(action.wait_seconds)
                self._notify_retry(step, result, wait)
                await self._pause(step, wait)
            case CompactHistory(limit):
                if not await self._compact_history(limit):
                    cause = "the conversation has become too long for the model"
                    return self._finish_failed(step.text, GiveUp(cause, too_long=True), result)
            case SwitchTarget():
                self._route.mark_failed()
                if isinstance(result.verdict, ModelRefused) or isinstance(result.error, Declined):
                    step.on_refusal()
                if salvage.lost or salvage.unsealed:  # report the calls that the old target lost
                    lost = self._build_report(salvage, drafts, None)
                    step.reissue_calls(replace(lost, from_other_model=True))
        return None

    async def _pause(self, step: StepState, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            step.cancel_notice()
            raise

    def _add_jitter(self, seconds: float) -> float:
        """Spread a wait, so that clients that failed together do not retry together."""
        return seconds * (0.5 + self._randomness() / 2)

    def _choose_target(self, recovery: Recovery, step: StepState) -> None:
        """Pick the target; another conversation may have opened a breaker in the meantime."""
        before = self._route.choose_target(self._clock.monotonic())
        if before is not None:
            recovery.reset_for_target()
            step.on_target_switch()
            self._emit(
                Notice(NoticeId.MODEL_SWITCHED, {"a": before, "b": self._route.target.label})
            )

    # --- requests ------------------------------------------------------------------------------

    def _build_request(self, step: StepState) -> ModelRequest:
        target = self._route.target
        effort = step.reasoning_effort(target.settings.reasoning_effort)
        tools = step.offered_tools(self._tools.by_name)
        return ModelRequest(
            model=target.model,
            system=self._system,
            messages=normalize_history([*self._transcript.messages, *self._request_messages(step)]),
            tools=tools,
            max_output_tokens=step.cap or self._route.max_output,
            temperature=target.settings.temperature,
            reasoning_effort=effort,
            stream=self._asks_for_stream(step),
            tool_choice=self._offer.choice(self._step_number) if tools else None,
            parallel_tool_calls=self._options.parallel_tool_calls if tools else None,
            sampling=self._options.sampling,
            answer_format=self._format,
        )

    def _asks_for_stream(self, step: StepState) -> bool:
        """Return True if requests of this step ask for a stream."""
        now = self._clock.monotonic()
        return self._route.should_stream(now) and not step.without_streaming

    def _request_messages(self, step: StepState) -> tuple[Message, ...]:
        """Return the messages after the history; visible text is prefilled where that works."""
        effort = step.reasoning_effort(self._route.target.settings.reasoning_effort)
        prefill = self._route.supports_prefill and effort in (None, "none", "minimal")
        return step.request_messages(prefill=prefill)

    async def _send_request(self, step_number: int, step: StepState) -> AttemptResult:
        pictures = await self._picture_loader.load(self._transcript.rows)
        request = replace(self._build_request(step), pictures=pictures)

        def size() -> int:
            self._estimated_tokens = self._estimated_tokens or self._transcript.estimate_with(
                request, self._request_messages(step)
            )
            return self._estimated_tokens

        number = await self._begin_attempt(request, size)
        prefix = f"call_{self._task.turn_id}_{step_number}"
        accumulator = Accumulator(
            request.tools,
            prefix,
            self._transcript.call_ids,
            max_characters=self._max_answer_characters,
        )
        step.on_request()
        try:
            result = await run_attempt(
                self._route.target,
                request,
                accumulator,
                clock=self._clock,
                learned=self._route.learned,
                on_delta=step.on_delta,
                on_silence=self._notify_silence,
            )
        finally:
            step.cancel_notice()
        step.on_result(result)
        if step.ignored_prefill:
            self._route.learned.ignores_prefill = True
        self._route.learned.record_token_count(self._estimated_tokens, result.usage.input_tokens)
        result = with_estimated_usage(result, self._route.target, size)
        self._estimated_tokens = 0
        self._usage += result.usage
        self._estimated_usage += result.estimated_usage
        await self._journal.attempt_ended(number, result)
        return result

    async def _begin_attempt(self, request: ModelRequest, estimate_input: Callable[[], int]) -> int:
        """Journal the next request and reserve its budget; return its number."""
        target, number = self._route.target, self._attempt_count + 1

        def need() -> UsageEstimate:
            tokens = round(estimate_input() * self._route.learned.token_correction)
            answer = request.max_output_tokens or ASSUMED_ANSWER_TOKENS
            return UsageEstimate(target.model, tokens, answer, price_of(target))

        await self._journal.attempt_started(number, target.label, need)
        self._attempt_count = number
        return number

    # --- compaction ----------------------------------------------------------------------------

    def _fits_window(self, step: StepState) -> bool:
        """Return False if the conversation is known to exceed the target's window."""
        window = self._route.window
        if self._transcript.certainly_fits(window):
            return True
        self._estimated_tokens = self._transcript.estimate_with(
            self._build_request(step), self._request_messages(step)
        )
        tokens = round(self._estimated_tokens * self._route.learned.token_correction)
        return not history_plan.is_too_long(tokens, window, step.cap or self._route.max_output)

    async def _compact_history(self, limit: int | None) -> bool:
        """Shorten the conversation; return False if that is impossible."""
        room = limit or self._route.window
        compacted = await self._transcript.compact(room, self._route.target, self._request_summary)
        if compacted is not None:
            self._estimated_tokens = 0  # the estimate was for the longer conversation
            await self._journal.compacted(*compacted)
        return compacted is not None

    async def _request_summary(self, request: ModelRequest) -> AttemptResult:
        """Request a summary, which is not shown to the user and does not count as a step.

        A target that stalls or is overloaded is excluded for the rest of the turn, so that the user
        does not wait for it twice.
        """
        self._emit(Notice(NoticeId.COMPACTING, {}))
        while True:
            result = await self._attempt_summary(request)
            if not isinstance(result.error, Stalled | Overloaded) or not self._route.has_fallback:
                return result
            self._route.mark_failed()
            before = self._route.choose_target(self._clock.monotonic())
            self._emit(
                Notice(NoticeId.MODEL_SWITCHED, {"a": before or "", "b": self._route.target.label})
            )

    async def _attempt_summary(self, request: ModelRequest) -> AttemptResult:
        target = self._route.target
        number = await self._begin_attempt(
            request, lambda: estimate_request(request.system, request.messages)
        )
        streams = self._route.should_stream(self._clock.monotonic())
        result = await run_attempt(
            target,
            replace(request, model=target.model, stream=streams),
            Accumulator((), "aside"),
            clock=self._clock,
            learned=self._route.learned,
            on_delta=lambda _: None,
            on_silence=self._notify_silence,
        )
        self._route.record_result(result, self._clock.monotonic(), unmarked_end=False)
        self._usage += result.usage
        await self._journal.attempt_ended(number, result)
        return result

    # --- lost calls and drafts -----------------------------------------------------------------

    async def _keep_drafts(
        self, salvage: Salvage, result: AttemptResult
    ) -> tuple[FileDraft | None, ...]:
        if isinstance(result.error, Looping):
            return (None,) * len(salvage.lost)  # endless repetition is not worth keeping
        kept: list[FileDraft | None] = []
        for call in salvage.lost:
            known = call.name in self._tools.by_name and call.name not in self._offer.client_names
            draft = await self._drafts.keep_cut_call(call.name, call.arguments) if known else None
            kept.append(draft)
            if draft:
                self._unfinished_drafts[draft.path] = draft
        return tuple(kept)

    async def _refresh_drafts(self) -> None:
        """Forget finished drafts and update the others."""
        if self._unfinished_drafts:
            ids = {draft.id for draft in self._unfinished_drafts.values()}
            with contextlib.suppress(ToolError):  # drafts are temporarily unreadable
                drafts = await self._drafts.list_drafts()
                self._unfinished_drafts = {draft.path: draft for draft in drafts if draft.id in ids}

    def _notify_losses(
        self,
        salvage: Salvage,
        drafts: Sequence[FileDraft | None],
        action: RecoveryAction | None = None,
    ) -> None:
        lost = salvage.lost or (salvage.unsealed if isinstance(action, RequestSmallerCalls) else ())
        if lost:
            names = ", ".join(dict.fromkeys(call.name or "a tool" for call in lost))
            self._emit(Notice(NoticeId.TOOL_CALL_CUT, {"tool": names}))
        for draft in drafts:
            if draft:
                self._emit(Notice(NoticeId.DRAFT_KEPT, {"n": draft.lines, "path": draft.path}))

    # --- notices -------------------------------------------------------------------------------

    def _notify_silence(self, seconds: float, remaining: float) -> None:
        model, restart = self._route.target.model, round(seconds + remaining)
        fields: NoticeFields = {"model": model, "n": round(seconds), "d": restart}
        self._emit(Notice(NoticeId.NO_OUTPUT, fields))

    def _notify_retry(self, step: StepState, result: AttemptResult, wait: float) -> None:
        """Emit a notice about a retry: at once for a rate limit, else after a delay."""
        provider = self._route.target.provider.name
        if isinstance(result.error, RateLimited):
            self._emit(Notice(NoticeId.RATE_LIMITED, {"provider": provider, "n": round(wait)}))
            return
        step.failures += 1
        notice = Notice(NoticeId.ANSWER_CONTINUES, {})
        if not step.text:
            notice = Notice(NoticeId.RECONNECTING, {"provider": provider})
        after = self._route.target.settings.timeouts.notice_after / 6
        step.schedule_notice(notice, wait, after)

    # --- the end -------------------------------------------------------------------------------

    def _finish_answered(self, text: str, result: AttemptResult) -> TurnDone:
        row = Message(
            MessageRole.ASSISTANT, text, reasoning=result.stored_reasoning(self._route.target.label)
        )
        done = self._turn_done(TurnEnding.ANSWERED, text, row if text.strip() else None)
        return replace(done, last_verdict=verdict_name(result.verdict))

    def _finish_failed(
        self,
        text: str,
        give_up: GiveUp,
        result: AttemptResult | None = None,
    ) -> TurnDone:
        cause = give_up.cause
        if give_up.notice == NoticeId.DECLINED and result is not None:
            error = result.error
            words = str(error) if error else result.step.text.strip() or text.strip()
            cause = words or "no reason given"
        kept = (
            Message(MessageRole.ASSISTANT, text, interrupted=give_up.cause)
            if text.strip()
            else None
        )
        done = self._turn_done(TurnEnding.FAILED, text, kept)
        error = result.error if result else None
        is_service_failure = result is not None and isinstance(result.verdict, Cut)
        return replace(
            done,
            failure=failure_kind(error) if is_service_failure else None,
            retry_after_seconds=getattr(error, "retry_after", None),
            started_tools=bool(self._runner.started_tools),
            cause=cause,
            notice=give_up.notice,
            tell_operator=give_up.tell_operator,
            too_long=give_up.too_long,
            last_verdict=verdict_name(result.verdict) if result else None,
        )

    def _finish_over_budget(self, text: str, refused: BudgetExceeded) -> TurnDone:
        """End the turn because of a spending limit; the text and tool results so far are kept."""
        notice = NoticeId.TURN_FAILED if self._attempt_count else refused.notice
        done = self._finish_failed(text, GiveUp(str(refused), notice))
        return replace(done, over_budget=True, budget_free_in_seconds=refused.retry_in_seconds)

    def _turn_done(self, ending: TurnEnding, text: str, message: Message | None) -> TurnDone:
        return TurnDone(
            ending=ending,
            text=text,
            message=message,
            attempts=self._attempt_count,
            tools_run=tuple(self._runner.completed_summary),
            usage=self._usage,
            estimated_usage=self._estimated_usage,
            unfinished_drafts=tuple(
                f"{draft.path} ({draft.size:,} characters, {draft.id})"
                for draft in self._unfinished_drafts.values()
            ),
        )
