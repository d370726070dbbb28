"""One turn: requests to the model and tool calls, until there is a final answer."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from agent.answer.accumulate import Accumulator
from agent.attempt import AttemptResult, price_of, run_attempt
from agent.continuation import (
    MOST_FAILURES,
    Action,
    Again,
    AskSmaller,
    Budget,
    Compact,
    Finish,
    GiveUp,
    Kind,
    Recovery,
    Reissue,
    RunTools,
    Switch,
    Urge,
)
from agent.errors import Looping, OverBudget, Overloaded, RateLimited, Stalled, ToolError
from agent.events import Ending, Notice, StepDone, TurnDone
from agent.model.contract import ModelRequest, ToolSchema
from agent.model.usage import ASSUMED_ANSWER, Need, Usage
from agent.picture_loader import Album
from agent.providers.registry import Target
from agent.request import history_plan
from agent.request.prompt import LAST_STEP, Report, as_seen
from agent.request.tokens import estimate_request
from agent.route import Route
from agent.salvage import Salvage, sort_calls
from agent.step import Step
from agent.tools.drafts import Draft
from agent.tools.run import ToolRunner, record_of
from agent.tools.spill import caps_for
from agent.transcript import Transcript
from agent.turn import Means, TurnTask
from agent.verdict import Capped, name_of
from sessions.records import Message

_MOST_REFUSED = 3  # steps in a row whose calls could all not run


async def run_turn(task: TurnTask, means: Means) -> TurnDone:
    """Answer the task; events go to `means.emit` as they happen, how it ended is returned.

    Nobody is told of the end before the caller has committed it. Cancel this coroutine to stop the
    turn: the connection to the model closes at once and running tools are cancelled.
    """
    turn = _Turn(task, means)
    try:
        for number in range(1, means.limits.max_steps + 1):
            outcome = await turn.step(number)
            if isinstance(outcome, TurnDone):
                return outcome
            refused = await turn.run_tools(outcome)
            if refused:
                return refused
            turn.add(await means.steers())
        return await turn.summary(means.limits.max_steps + 1)
    finally:
        turn.leave()


class _Answer(msgspec.Struct, frozen=True):
    """A model answer whose calls are to be run."""

    text: str
    result: AttemptResult
    salvage: Salvage
    drafts: tuple[Draft | None, ...]  # one for each lost call
    cap: int | None = None  # the output limit for what was lost to the one before


class _Turn:
    """A turn under way: what was said in it so far, and what it has used up."""

    def __init__(self, task: TurnTask, means: Means) -> None:
        self._task = task
        self._said = Transcript(task.history, task.summary)
        self._album = Album(task.workspace)
        self._route = Route(means.targets, means.experience)
        self._tools = means.tools
        self._journal = means.journal
        self._clock = means.clock
        self._emit = means.emit
        self._drafts = means.drafts
        self._randomness = means.randomness
        self._ends_at_cap = means.limits.ends_at_cap
        self._budget = Budget(means.clock.monotonic())
        self._attempts = 0
        self._estimated = 0  # input tokens of the next request, where that was worth the work
        self._usage = Usage()
        self._unfinished: dict[str, Draft] = {}  # drafts of this turn, by path
        self._report: Report | None = None  # what the next request tells about lost calls
        self._form: AskSmaller | None = None  # in which form the next answer is asked for
        self._cap: int | None = None  # the output limit of the next answer, where not the usual
        self._recovered = task.taken_up  # the next answer is the first after a recovery
        self._refused_steps = 0
        self._runner = ToolRunner(
            means.tools,
            means.journal,
            means.emit,
            clock=means.clock,
            workspace=task.workspace,
            drafts=means.drafts,
            key=f"{task.session_id}:{task.turn_id}",
            approve=means.approve,
            send_file=means.send_file,
            timeout=means.limits.tool_timeout,
            caps=caps_for(self._route.window),
        )
        self._runner.remember(task.before)

    def add(self, rows: Iterable[Message]) -> None:
        """People said something while the turn ran."""
        self._said.add(rows)

    def leave(self) -> None:
        """The turn is over, whatever ended it."""
        self._route.stopped(self._clock.monotonic())

    # --- steps ---------------------------------------------------------------------------------

    async def step(self, number: int) -> _Answer | TurnDone:
        """Get one model answer: give it where it asks for tools, else the end of the turn."""
        return await self._recovered_answer(number, self._tools.schemas, ())

    async def summary(self, number: int) -> TurnDone:
        """All steps are used up: have the model say what it has; calls of it do not count."""
        outcome = await self._recovered_answer(number, (), (LAST_STEP,))
        if isinstance(outcome, TurnDone):
            return outcome
        if outcome.text.strip():
            return self._answered(outcome.text, outcome.result)
        return self._failed("", GiveUp("it used up all its steps without coming to an answer"))

    async def run_tools(self, answer: _Answer) -> TurnDone | None:
        """Carry out what the answer asks for; the rows are durable before anything runs."""
        calls = self._runner.prepare(answer.salvage.ready)
        message = Message(
            "assistant",
            answer.text,
            tool_calls=tuple(map(record_of, calls)),
            reasoning=answer.result.thoughts(self._route.target.label),
        )
        await self._journal.step_done(message)
        self._emit(StepDone())
        before, began = len(self._runner.ran), self._clock.monotonic()
        results = await self._runner.run(
            calls, attempt=self._attempts, after_recovery=self._recovered
        )
        self._budget.paused(self._clock.monotonic() - began)
        self._said.add((message, *results))
        await self._look_at_drafts()
        if ran := self._runner.ran[before:]:
            self._budget.came_on(self._clock.monotonic(), ran)
        self._report_losses(answer)
        self._refused_steps = self._refused_steps + 1 if self._runner.all_refused else 0
        if self._refused_steps < _MOST_REFUSED:
            return None
        cause = "the model kept making tool calls that cannot be carried out"
        return self._failed("", GiveUp(cause))

    def _report_losses(self, answer: _Answer) -> None:
        salvage = answer.salvage
        missing = [call.name for call in (*salvage.lost, *salvage.unsealed)]
        self._recovered = bool(missing)
        self._report = self._form = self._cap = None
        if not missing:
            return
        self._cap = answer.cap
        names = [call.name for call in salvage.lost]
        self._budget.lost(names)
        self._form = self._budget.smaller(names) if names else None
        done = tuple(f"{call.name} ({call.id})" for call in salvage.ready)
        self._report = self._reported(salvage, answer.drafts, self._form, done)

    def _reported(
        self,
        salvage: Salvage,
        drafts: Sequence[Draft | None],
        form: AskSmaller | None,
        done: Iterable[str] = (),
    ) -> Report:
        unfinished = self._unfinished.values()
        return Step.report(salvage, drafts, form, done=done, unfinished=unfinished)

    # --- one answer, with all that it takes ------------------------------------------------------

    async def _recovered_answer(
        self, number: int, schemas: tuple[ToolSchema, ...], more: tuple[Message, ...]
    ) -> _Answer | TurnDone:
        step = self._new_step(number, schemas, more)
        try:
            return await self._answer_of(number, step)
        except OverBudget as refused:
            return self._over_budget(step.text, refused)

    def _new_step(
        self, number: int, schemas: tuple[ToolSchema, ...], more: tuple[Message, ...]
    ) -> Step:
        return Step(
            schemas,
            more,
            text=self._task.partial if number == 1 else "",
            report=self._report,
            form=self._form,
            cap=self._cap,
            emit=self._emit,
            clock=self._clock,
            may_replace=self._task.may_replace,
        )

    async def _answer_of(self, number: int, step: Step) -> _Answer | TurnDone:
        timeouts = self._route.target.settings.timeouts
        recovery = Recovery(self._budget, backoff=timeouts.backoff)
        after_tools = self._said.follows_tools
        measured: Target | None = None  # whose window the conversation was held against
        while True:
            self._choose(recovery, step)
            if measured is not self._route.target and not self._fits(step):
                await self._compact(None)
            measured = self._route.target
            result = await self._attempt(number, step)
            salvage = sort_calls(result.step.calls, result.verdict, self._tools.by_name)
            drafts = await self._keep_drafts(salvage, result)
            seen = step.seen(
                result,
                salvage,
                drafted=sum(draft.grew for draft in drafts if draft),
                after_tools=after_tools,
                others=self._route.has_other,
                announces=self._route.facts.announces,
            )
            action = recovery.next(seen, self._clock.monotonic())
            now = self._clock.monotonic()
            self._route.learn(result, now, bare_end=recovery.confirmed_bare_end)
            capped = isinstance(result.verdict, Capped) and not result.step.calls
            if capped and self._ends_at_cap:
                action = Finish()
            if isinstance(action, Finish | RunTools | GiveUp):
                return self._outcome(step, action, result, salvage, drafts)
            if isinstance(action, Urge):
                step.urge()  # nothing was lost, so nothing is told, and no call is a repetition
                continue
            self._recovered = True
            if not isinstance(action, Again):  # it is small, and simply asked for again
                self._tell_losses(salvage, drafts, asked_for=action)
            if isinstance(action, Again) and action.kind is Kind.CAP:
                measured = None  # a text that is carried on takes ever more of the window
            given_up = await self._prepare_next(step, action, result, salvage, drafts)
            if given_up:
                return given_up

    def _outcome(
        self,
        step: Step,
        action: Finish | RunTools | GiveUp,
        result: AttemptResult,
        salvage: Salvage,
        drafts: tuple[Draft | None, ...],
    ) -> _Answer | TurnDone:
        """What the step has come to."""
        match action:
            case Finish():
                return self._answered(step.text, result)
            case RunTools():
                self._tell_losses(salvage, drafts)
                capped = isinstance(result.verdict, Capped) and bool(salvage.lost)
                cap = self._route.raised_cap(step.cap, result) if capped else None
                return _Answer(step.text, result, salvage, drafts, cap)
            case GiveUp():
                return self._failed(step.text, action, result)

    async def _prepare_next(
        self,
        step: Step,
        action: Again | AskSmaller | Reissue | Compact | Switch,
        result: AttemptResult,
        salvage: Salvage,
        drafts: tuple[Draft | None, ...],
    ) -> TurnDone | None:
        """Get ready for the next request of this step; the end of the turn if there is none."""
        match action:
            case Again():
                raised = self._route.raised_cap(step.cap, result)
                step.ask_again(action, raised, self._route.lowered_cap(step.cap))
                wait = action.wait if action.exact else self._spread(action.wait)
                self._tell(step, result, wait)
                await self._pause(step, wait)
            case AskSmaller():
                report = self._reported(salvage, drafts, action)
                step.ask_smaller(action, report, self._route.raised_cap(step.cap, result))
                await self._pause(step, self._spread(action.wait))
            case Reissue():
                step.reissue(self._reported(salvage, drafts, None))
                wait = self._spread(action.wait)
                self._tell(step, result, wait)
                await self._pause(step, wait)
            case Compact(limit):
                if not await self._compact(limit):
                    cause = "the conversation has become too long for the model"
                    return self._failed(step.text, GiveUp(cause, too_long=True), result)
            case Switch():
                self._route.leave()
                if salvage.lost or salvage.unsealed:  # it gets to know what the one before lost
                    lost = self._reported(salvage, drafts, None)
                    step.reissue(replace(lost, taken_over=True))
        return None

    async def _pause(self, step: Step, wait: float) -> None:
        try:
            await asyncio.sleep(wait)
        except asyncio.CancelledError:
            step.quiet()
            raise

    def _spread(self, wait: float) -> float:
        """Clients that broke off together must not come back together."""
        return wait * (0.5 + self._randomness() / 2)

    def _choose(self, recovery: Recovery, step: Step) -> None:
        """Settle on whom to ask; another conversation may have found out that nobody is there."""
        before = self._route.choose(self._clock.monotonic())
        if before is not None:
            recovery.new_target()
            step.other_target()
            self._emit(Notice("N5", {"a": before, "b": self._route.target.label}))

    # --- requests ------------------------------------------------------------------------------

    def _request(self, step: Step) -> ModelRequest:
        target = self._route.target
        effort = step.effort(target.settings.reasoning_effort)
        goes_on = self._route.facts.prefill and effort in (None, "none", "minimal")
        return ModelRequest(
            model=target.model,
            system="\n\n".join(
                [self._task.system, *(f"[{note}]" for note in self._task.notes)]
            ).strip(),
            messages=as_seen([*self._said.shown, *step.asks(prefill=goes_on)]),
            tools=step.tools(self._tools.by_name),
            max_output_tokens=step.cap or self._route.max_output,
            temperature=target.settings.temperature,
            reasoning_effort=effort,
            stream=self._route.streams(self._clock.monotonic()) and not step.unstreamed,
        )

    async def _attempt(self, step_number: int, step: Step) -> AttemptResult:
        pictures = await self._album.look(self._said.rows)
        request = replace(self._request(step), pictures=pictures)

        def size() -> int:
            self._estimated = self._estimated or self._said.size_with(request, step.asks())
            return self._estimated

        number = await self._begin(request, size)
        prefix = f"call_{self._task.turn_id}_{step_number}"
        accumulator = Accumulator(request.tools, prefix, self._said.call_ids)
        step.begin()
        try:
            result = await run_attempt(
                self._route.target,
                request,
                accumulator,
                clock=self._clock,
                learned=self._route.known,
                show=step.show,
                silence=self._silent,
            )
        finally:
            step.quiet()
        step.end(result)
        self._route.known.counted(self._estimated, result.usage.input_tokens)
        self._estimated = 0
        self._usage += result.usage
        await self._journal.attempt_ended(number, result)
        return result

    async def _begin(self, request: ModelRequest, size: Callable[[], int]) -> int:
        """Have the next request written down, and what it may use set aside; gives its number."""
        target, number = self._route.target, self._attempts + 1

        def need() -> Need:
            tokens = round(size() * self._route.known.correction)
            answer = request.max_output_tokens or ASSUMED_ANSWER
            return Need(target.model, tokens, answer, price_of(target))

        await self._journal.attempt_started(number, target.label, need)
        self._attempts = number
        return number

    # --- compaction ----------------------------------------------------------------------------

    def _fits(self, step: Step) -> bool:
        """Whether the conversation is short enough to be sent, as far as that is known."""
        window = self._route.window
        if self._said.surely_fits(window):
            return True
        self._estimated = self._said.size_with(self._request(step), step.asks())
        tokens = round(self._estimated * self._route.known.correction)
        return not history_plan.too_long(tokens, window, step.cap or self._route.max_output)

    async def _compact(self, limit: int | None) -> bool:
        """Make the conversation shorter; false when nothing can be left out."""
        room = limit or self._route.window
        done = await self._said.compact(room, self._route.target, self._ask_aside)
        if done is not None:
            self._estimated = 0  # that was of the longer one
            await self._journal.compacted(*done)
        return done is not None

    async def _ask_aside(self, request: ModelRequest) -> AttemptResult:
        """Send the request for a summary, beside the steps of the turn; nobody sees the answer.

        Whoever does not answer is left for the rest of the turn: nobody waits for it twice.
        """
        self._emit(Notice("N12", {}))
        while True:
            result = await self._attempt_aside(request)
            if not isinstance(result.error, Stalled | Overloaded) or not self._route.has_other:
                return result
            self._route.leave()
            before = self._route.choose(self._clock.monotonic())
            self._emit(Notice("N5", {"a": before or "", "b": self._route.target.label}))

    async def _attempt_aside(self, request: ModelRequest) -> AttemptResult:
        target = self._route.target
        number = await self._begin(
            request, lambda: estimate_request(request.system, request.messages)
        )
        streams = self._route.streams(self._clock.monotonic())
        result = await run_attempt(
            target,
            replace(request, model=target.model, stream=streams),
            Accumulator((), "aside"),
            clock=self._clock,
            learned=self._route.known,
            show=lambda _: None,
            silence=self._silent,
        )
        self._route.learn(result, self._clock.monotonic(), bare_end=False)
        self._usage += result.usage
        await self._journal.attempt_ended(number, result)
        return result

    # --- what was cut off ----------------------------------------------------------------------

    async def _keep_drafts(
        self, salvage: Salvage, result: AttemptResult
    ) -> tuple[Draft | None, ...]:
        if isinstance(result.error, Looping):
            return (None,) * len(salvage.lost)  # what is repeated without end is not kept
        kept: list[Draft | None] = []
        for call in salvage.lost:
            known = call.name in self._tools.by_name
            draft = await self._drafts.keep(call.name, call.arguments) if known else None
            kept.append(draft)
            if draft:
                self._unfinished[draft.path] = draft
        return tuple(kept)

    async def _look_at_drafts(self) -> None:
        """Forget those that were finished, and see how far the others have come."""
        if self._unfinished:
            ours = {draft.id for draft in self._unfinished.values()}
            with contextlib.suppress(ToolError):  # they cannot be read just now
                kept = await self._drafts.kept()
                self._unfinished = {draft.path: draft for draft in kept if draft.id in ours}

    def _tell_losses(
        self,
        salvage: Salvage,
        drafts: Sequence[Draft | None],
        asked_for: Action | None = None,
    ) -> None:
        lost = salvage.lost or (salvage.unsealed if isinstance(asked_for, AskSmaller) else ())
        if lost:
            names = ", ".join(dict.fromkeys(call.name or "a tool" for call in lost))
            self._emit(Notice("N4", {"tool": names}))
        for draft in drafts:
            if draft:
                self._emit(Notice("N13", {"n": draft.lines, "path": draft.path}))

    # --- news ----------------------------------------------------------------------------------

    def _silent(self, seconds: float, remaining: float) -> None:
        fields: dict[str, str | int] = {
            "model": self._route.target.model,
            "n": round(seconds),
            "d": round(seconds + remaining),
        }
        self._emit(Notice("N1", fields))

    def _tell(self, step: Step, result: AttemptResult, wait: float) -> None:
        """News for the status line, where the user would otherwise wonder."""
        provider = self._route.target.provider.name
        if isinstance(result.error, RateLimited):
            self._emit(Notice("N6", {"provider": provider, "n": round(wait)}))
            return
        step.failures += 1
        notice = Notice("N3", {})
        if not step.text:
            tries = min(step.failures, MOST_FAILURES - 1)
            notice = Notice("N2", {"provider": provider, "k": tries, "max": MOST_FAILURES - 1})
        after = self._route.target.settings.timeouts.notice_after / 6
        step.tell_later(notice, wait, after)

    # --- the end -------------------------------------------------------------------------------

    def _answered(self, text: str, result: AttemptResult) -> TurnDone:
        row = Message("assistant", text, reasoning=result.thoughts(self._route.target.label))
        done = self._done(Ending.ANSWERED, text, row if text.strip() else None)
        return replace(done, last=name_of(result.verdict))

    def _failed(
        self,
        text: str,
        why: GiveUp,
        result: AttemptResult | None = None,
    ) -> TurnDone:
        cause = why.cause
        if why.notice == "N9" and result is not None:
            error = result.error
            cause = (str(error) if error else result.step.text.strip()) or "it gave no reason"
        kept = Message("assistant", text, interrupted=why.cause) if text.strip() else None
        done = self._done(Ending.FAILED, text, kept)
        return replace(
            done,
            cause=cause,
            notice=why.notice,
            tell_operator=why.tell_operator,
            too_long=why.too_long,
            last=name_of(result.verdict) if result else "",
        )

    def _over_budget(self, text: str, refused: OverBudget) -> TurnDone:
        """It is not for the model to end: what was said and done so far is kept."""
        notice = "N7" if self._attempts else refused.notice
        done = self._failed(text, GiveUp(str(refused), notice))
        return replace(done, over_budget=True, free_in=refused.seconds)

    def _done(self, ending: Ending, text: str, message: Message | None) -> TurnDone:
        return TurnDone(
            ending,
            text,
            message=message,
            tries=self._attempts,
            tools=tuple(self._runner.done),
            usage=self._usage,
            drafts=tuple(
                f"{draft.path} ({draft.size:,} characters, {draft.id})"
                for draft in self._unfinished.values()
            ),
        )
