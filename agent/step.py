"""One step of a turn: the text it shows, and the request-only messages that carry it on.

It knows what was shown and how the next request must ask for the rest; it decides nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from agent.answer.empty_promise import is_only_announcement
from agent.answer.seam import Seam, TextUpdate
from agent.attempt import AttemptResult
from agent.continuation import RequestOutcome, RequestSmallerCalls, RetryRequest
from agent.errors import Looping
from agent.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    ReasoningReplaced,
    TextDelta,
    TextReplaced,
)
from agent.model.contract import ToolSchema
from agent.request.prompt import (
    ANNOUNCED_CALL_PROMPT,
    EMPTY_ANSWER_MESSAGE,
    REPETITION_PROMPT,
    ContinuationReason,
    LostCall,
    LostCallReport,
    continuation_messages,
    describe_draft,
    describe_lost_calls,
)
from agent.salvage import Salvage
from agent.settings import REASONING_EFFORTS
from agent.tools.contract import Tool
from agent.tools.drafts import FileDraft
from agent.verdict import Cut
from sessions.records import Message
from sessions.values.clock import Clock

_MAX_PARAMETER_CHARACTERS = 6000  # characters of a parameter whose calls keep being cut off
_EFFORT_LEVELS = tuple(REASONING_EFFORTS)


class StepState:
    """What one model answer has come to so far, over all requests that it took."""

    def __init__(
        self,
        schemas: tuple[ToolSchema, ...],
        extra_messages: tuple[Message, ...],
        *,
        text: str,
        report: LostCallReport | None,
        smaller_calls: RequestSmallerCalls | None,
        cap: int | None = None,
        emit: Callable[[AgentEvent], None],
        clock: Clock,
        may_replace: bool,
    ) -> None:
        self._pieces = [text]
        self.cap = cap
        self.without_streaming = False
        self.failures = 0
        self._schemas = schemas
        self._extra_messages = extra_messages
        self._report = report
        self._smaller_calls = smaller_calls
        self._emit = emit
        self._clock = clock
        self._may_replace = may_replace
        self._continuation_reason = ContinuationReason.NETWORK
        self._nudge = False
        self._looped = False
        self._announced_length = -1  # characters of the text that announced what did not follow
        self._effort_reduction = 0  # steps of effort
        self._seam = Seam("")
        self._text_before = ""  # the text when the present request was sent
        self._prefilled = False
        self._trailing_blanks = ""  # left off the prefilled text; the model may write them again
        self._has_reasoned = False
        self._last_output_at = clock.monotonic()  # when something last came
        self._pending_notice: asyncio.TimerHandle | None = None

    @property
    def text(self) -> str:
        """What is shown; put together only when somebody asks."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @text.setter
    def text(self, text: str) -> None:
        self._pieces = [text]

    # --- the request ---------------------------------------------------------------------------

    def request_messages(self, *, prefill: bool = False) -> tuple[Message, ...]:
        """Messages of this request only, behind the history.

        With `prefill` the model goes on from an assistant's text at the end by itself: then there
        is nothing to explain and no seam to find.
        """
        plain = not (self._report or self._looped or self._nudge or self._awaiting_announced_call)
        self._prefilled = prefill and plain and bool(self.text.strip())
        if self._prefilled:
            bare = self.text.rstrip()  # services refuse blanks at the end
            self._trailing_blanks = self.text[len(bare) :]
            return (Message("assistant", bare), *self._extra_messages)
        text = self.text if self.text.strip() else ""
        told = describe_lost_calls(self._report) if self._report else ""
        if self._looped:
            told = _join_paragraphs(REPETITION_PROMPT, told)
        asks: list[Message] = []
        if text and self._awaiting_announced_call:
            asks += (
                Message("assistant", text),
                Message("user", _join_paragraphs(ANNOUNCED_CALL_PROMPT, told)),
            )
        elif text:
            asks += continuation_messages(text, self._continuation_reason, told)
        elif told:
            asks.append(Message("user", told))
        if self._nudge:
            asks.append(EMPTY_ANSWER_MESSAGE)
        return (*asks, *self._extra_messages)

    def offered_tools(self, tools: Mapping[str, Tool]) -> tuple[ToolSchema, ...]:
        """The tools that are offered, in the form that the last losses call for."""
        form = self._smaller_calls
        if form is None:
            return self._schemas
        offered = (each for each in self._schemas if each.name != form.withheld_tool)
        if not form.limit_schema or self._report is None:
            return tuple(offered)
        lost = {each.tool for each in self._report.lost_calls}
        return tuple(
            _limit_parameter(each, tools[each.name].grows) if each.name in lost else each
            for each in offered
        )

    def reasoning_effort(self, configured: str | None) -> str | None:
        """How long the model may think: less after it thought to no end."""
        if not self._effort_reduction:
            return configured
        start = (
            _EFFORT_LEVELS.index(configured)
            if configured in _EFFORT_LEVELS
            else _EFFORT_LEVELS.index("medium")
        )
        return _EFFORT_LEVELS[max(0, start - self._effort_reduction)]

    @property
    def _awaiting_announced_call(self) -> bool:
        """The model was asked to do what it announced, and has said nothing since."""
        return len(self.text) == self._announced_length

    # --- while the answer comes ----------------------------------------------------------------

    def on_request(self) -> None:
        """A request is about to be sent."""
        self._text_before = self.text
        self._seam = Seam(
            self.text, may_replace=self._may_replace, new_paragraph=self._awaiting_announced_call
        )
        if self._has_reasoned:
            self._emit(ReasoningReplaced())
            self._has_reasoned = False

    def on_delta(self, delta: TextDelta | ReasoningDelta) -> None:
        """More of the answer came."""
        self.cancel_notice()
        self._last_output_at = self._clock.monotonic()
        if isinstance(delta, ReasoningDelta):
            self._has_reasoned = True
            self._emit(delta)
        elif self._prefilled:
            self._apply(TextUpdate(self._strip_repeated_blanks(delta.text)))
        elif self._text_before:
            self._apply(self._seam.feed(delta.text))
        else:
            self._pieces.append(delta.text)
            self._emit(delta)

    def _strip_repeated_blanks(self, text: str) -> str:
        """Leave out the blanks that stand at the end of the shown text already."""
        while text and self._trailing_blanks.startswith(text[0]):
            text, self._trailing_blanks = text[1:], self._trailing_blanks[1:]
        if text:
            self._trailing_blanks = ""
        return text

    def on_result(self, result: AttemptResult) -> None:
        """The answer is over, whole or not."""
        if self._text_before and not self._prefilled:
            self._apply(self._seam.close(cut=isinstance(result.verdict, Cut)))
        if isinstance(result.error, Looping):
            self._remove_repetition(result.step.text)

    def _apply(self, joint: TextUpdate) -> None:
        if joint.replaces:
            self._replace_text(joint.text)
        elif joint.text:
            self.text += joint.text
            self._emit(TextDelta(joint.text))

    def _remove_repetition(self, text: str) -> None:
        """Take back what was repeated without end."""
        self._looped = True
        apart = len(self._text_before) == self._announced_length
        seam = Seam(self._text_before, may_replace=self._may_replace, new_paragraph=apart)
        kept = self._text_before
        for joint in (seam.feed(text), seam.close()):
            kept = joint.text if joint.replaces else kept + joint.text
        if kept != self.text:
            self._replace_text(kept)

    def _replace_text(self, text: str) -> None:
        self.text = text
        self._emit(TextReplaced(text))

    # --- what it came to -----------------------------------------------------------------------

    def build_outcome(
        self,
        result: AttemptResult,
        salvage: Salvage,
        *,
        drafted_characters: int,
        after_tools: bool,
        has_other_target: bool,
        may_only_announce: bool = False,
    ) -> RequestOutcome:
        """Sum up the request that just ended; `announces`: see `agent.model.known_models`."""
        step = result.step
        could_act = may_only_announce and bool(self._schemas) and not step.calls
        return RequestOutcome(
            verdict=result.verdict,
            new_characters=max(0, len(self.text) - len(self._text_before)),
            repeated_ending=self._seam.repeated_ending and self.text == self._text_before,
            ignored_rewrite=self._seam.ignored_rewrite,
            text_visible=bool(self.text.strip()),
            ready_calls=len(salvage.ready),
            lost_tools=tuple(call.name for call in salvage.lost),
            lost_characters=sum(len(call.arguments) for call in salvage.lost),
            unsealed_tools=tuple(call.name for call in salvage.unsealed),
            drafted_characters=drafted_characters,
            has_reasoning=bool(step.reasoning),
            has_text=bool(step.text.strip()),
            only_announced=could_act and is_only_announcement(self.text),
            after_tools=after_tools,
            has_other_target=has_other_target,
        )

    # --- the next request ----------------------------------------------------------------------

    def prepare_retry(self, action: RetryRequest, raised_cap: int, lowered_cap: int) -> None:
        """The same once more; text that is shown is carried on."""
        self._continuation_reason = action.reason
        if action.raise_cap:
            self.cap = raised_cap
        elif action.lower_cap is not None:
            self.cap = action.lower_cap or lowered_cap
        self._effort_reduction += action.lower_effort
        self.without_streaming = self.without_streaming or action.without_streaming
        self._nudge = action.nudge

    def request_smaller_calls(
        self, action: RequestSmallerCalls, report: LostCallReport, raised_cap: int
    ) -> None:
        """Calls were cut off: ask for them in smaller parts."""
        self._report, self._smaller_calls = report, action
        self._continuation_reason = ContinuationReason.LOST_CALLS
        self._nudge = False
        if action.raise_cap:
            self.cap = raised_cap

    def reissue_calls(self, report: LostCallReport) -> None:
        """Calls came whole, but may not run: ask for them again."""
        self._report = report
        self._continuation_reason = ContinuationReason.LOST_CALLS
        self._nudge = False

    def request_announced_call(self) -> None:
        """The text announces what was not done."""
        self._announced_length = len(self.text)
        self._nudge = False

    def on_target_switch(self) -> None:
        """Limits of the target before do not hold for the next one."""
        self.cap = None
        self._effort_reduction = 0
        self.without_streaming = False
        self.failures = 0

    @staticmethod
    def build_report(
        salvage: Salvage,
        drafts: Sequence[FileDraft | None],
        smaller_calls: RequestSmallerCalls | None,
        *,
        done_calls: Iterable[str] = (),
        unfinished_drafts: Iterable[FileDraft] = (),
    ) -> LostCallReport:
        """Write down what the model is to know about calls that did not run."""
        lost = tuple(
            LostCall(call.name, len(call.arguments.encode()), _draft_note(draft) if draft else "")
            for call, draft in zip(salvage.lost, drafts, strict=True)
        )
        unsealed = salvage.unsealed
        if smaller_calls and not lost:  # to ask for the very same once more has not helped
            lost = tuple(LostCall(call.name, len(call.arguments.encode())) for call in unsealed)
            unsealed = ()
        told = {draft.id for draft in drafts if draft}
        return LostCallReport(
            lost_calls=lost,
            unsealed_tools=tuple(call.name for call in unsealed),
            done_calls=tuple(done_calls),
            limit_kilotokens=smaller_calls.limit_kilotokens if smaller_calls else 8,
            withheld_tool=smaller_calls.withheld_tool if smaller_calls else "",
            draft_notes=tuple(
                _draft_note(draft) for draft in unfinished_drafts if draft.id not in told
            ),
        )

    # --- news ----------------------------------------------------------------------------------

    def schedule_notice(self, notice: Notice, wait_seconds: float, after_seconds: float) -> None:
        """Tell of a recovery unless something comes before it has taken `after` seconds."""
        self.cancel_notice()
        spent = self._clock.monotonic() - self._last_output_at
        if spent + wait_seconds > after_seconds:
            self._emit(notice)
        else:
            loop = asyncio.get_running_loop()
            self._pending_notice = loop.call_later(after_seconds - spent, self._emit, notice)

    def cancel_notice(self) -> None:
        """Something came, or the step is over: no news needed."""
        if self._pending_notice:
            self._pending_notice.cancel()
            self._pending_notice = None


def _join_paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _draft_note(draft: FileDraft) -> str:
    return describe_draft(draft.id, draft.path, draft.size, draft.lines, draft.tail)


def _limit_parameter(schema: ToolSchema, parameter: str) -> ToolSchema:
    """Do not let a parameter become long."""
    properties: dict[str, Any] = schema.parameters.get("properties", {})
    if parameter not in properties:
        return schema
    limited = {
        **properties,
        parameter: {**properties[parameter], "maxLength": _MAX_PARAMETER_CHARACTERS},
    }
    return replace(schema, parameters={**schema.parameters, "properties": limited})
