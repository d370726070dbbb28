"""State of one step: the visible text, and the request-only messages of the next request.

The recovery decisions are made in `agent.continuation`; this module carries them out.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
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
from sessions.records import Message, MessageRole
from sessions.values.clock import Clock

_MAX_PARAMETER_CHARACTERS = 6000  # schema limit for a tool whose calls keep being cut off
_EFFORT_LEVELS = tuple(REASONING_EFFORTS)


class CallLosses(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of an answer that did not run, and the restrictions on the next step."""

    report: LostCallReport | None = None  # for the first request of the next step
    smaller_calls: RequestSmallerCalls | None = None
    cap: int | None = None  # raised output limit; None: the default of the route


class StepState:
    """Progress of one model answer over all of its requests."""

    def __init__(
        self,
        schemas: tuple[ToolSchema, ...],
        extra_messages: tuple[Message, ...],
        *,
        text: str,
        continues: str = "",
        losses: CallLosses,
        emit: Callable[[AgentEvent], None],
        clock: Clock,
        may_replace: bool,
    ) -> None:
        self._pieces = [text]
        self._continues = continues  # earlier message of the chat; its words are not shown again
        self.cap = losses.cap
        self.without_streaming = False
        self.failures = 0
        self._schemas = schemas
        self._extra_messages = extra_messages
        self._report = losses.report
        self._smaller_calls = losses.smaller_calls
        self._emit = emit
        self._clock = clock
        self._may_replace = may_replace
        self._continuation_reason = ContinuationReason.NETWORK
        self._nudge = False
        self._looped = False
        self._announced_length = -1  # text length when the announced call was requested; -1: never
        self._declined_length = -1  # text length when a model declined to answer; -1: never
        self._effort_reduction = 0  # levels below the configured effort
        self._seam = Seam("")
        self._text_before = ""  # visible text when the current request was sent
        self.ignored_prefill = False  # the last answer began again instead of going on
        self._prefilled = False
        self._trailing_blanks = ""  # removed from the prefilled text; the model may repeat them
        self._has_reasoned = False
        self._last_output_at = clock.monotonic()
        self._pending_notice: asyncio.TimerHandle | None = None

    @property
    def text(self) -> str:
        """The visible text; joined on demand."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @text.setter
    def text(self, text: str) -> None:
        self._pieces = [text]

    # --- the request ---------------------------------------------------------------------------

    def request_messages(self, *, prefill: bool = False) -> tuple[Message, ...]:
        """Return the messages to append to the history for the next request only.

        With `prefill` the model continues a final assistant message by itself: no explanation and
        no overlap are needed.
        """
        plain = not (
            self._report
            or self._looped
            or self._nudge
            or self._awaiting_announced_call
            or self._after_refusal
        )
        self._prefilled = prefill and plain and bool(self.text.strip())
        if self._prefilled:
            stripped = self.text.rstrip()  # services reject trailing blanks
            self._trailing_blanks = self.text[len(stripped) :]
            return (Message(MessageRole.ASSISTANT, stripped), *self._extra_messages)
        text = self.text if self.text.strip() else ""
        notes = describe_lost_calls(self._report) if self._report else ""
        if self._looped:
            notes = _join_paragraphs(REPETITION_PROMPT, notes)
        messages: list[Message] = []
        if text and self._awaiting_announced_call:
            messages += (
                Message(MessageRole.ASSISTANT, text),
                Message(MessageRole.USER, _join_paragraphs(ANNOUNCED_CALL_PROMPT, notes)),
            )
        elif text:
            reason = (
                ContinuationReason.DECLINED if self._after_refusal else self._continuation_reason
            )
            messages += continuation_messages(text, reason, notes)
        elif notes:
            messages.append(Message(MessageRole.USER, notes))
        if self._nudge:
            messages.append(EMPTY_ANSWER_MESSAGE)
        return (*messages, *self._extra_messages)

    def offered_tools(self, tools: Mapping[str, Tool]) -> tuple[ToolSchema, ...]:
        """Return the tool definitions for the next request, restricted after repeated losses."""
        restrictions = self._smaller_calls
        if restrictions is None:
            return self._schemas
        offered = (tool for tool in self._schemas if tool.name != restrictions.withheld_tool)
        if not restrictions.limit_schema or self._report is None:
            return tuple(offered)
        lost = {call.tool for call in self._report.lost_calls}
        return tuple(
            _limit_parameter(tool, tools[tool.name].grows) if tool.name in lost else tool
            for tool in offered
        )

    def reasoning_effort(self, configured: str | None) -> str | None:
        """Return the reasoning effort, lowered after reasoning that never ended."""
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
        """True while the model has not answered the request for its announced call."""
        return len(self.text) == self._announced_length

    @property
    def _after_refusal(self) -> bool:
        """True while no other model has added text to the text of a model that declined."""
        return len(self.text) == self._declined_length

    # --- while the answer comes ----------------------------------------------------------------

    def on_request(self) -> None:
        """Prepare for the answer to a new request."""
        self._text_before = self.text
        may_replace = self._may_replace or not self.text
        if self._prefilled:
            self._seam = Seam(self.text.rstrip(), may_replace=may_replace, prefilled=True)
        else:
            self._seam = Seam(
                self._continues + self.text,
                may_replace=may_replace,
                new_paragraph=self._awaiting_announced_call,
                may_end=self._after_refusal,
            )
        if self._has_reasoned:
            self._emit(ReasoningReplaced())
            self._has_reasoned = False

    def on_delta(self, delta: TextDelta | ReasoningDelta) -> None:
        """Process a delta: update the visible text and emit the change."""
        self.cancel_notice()
        self._last_output_at = self._clock.monotonic()
        if isinstance(delta, ReasoningDelta):
            self._has_reasoned = True
            self._emit(delta)
        elif self._prefilled:
            self._apply(self._strip_repeated_blanks(self._seam.feed(delta.text)))
        elif self._continues or self._text_before:
            self._apply(self._seam.feed(delta.text))
        else:
            self._pieces.append(delta.text)
            self._emit(delta)

    def _strip_repeated_blanks(self, update: TextUpdate) -> TextUpdate:
        """Remove leading blanks that already end the visible text."""
        if update.replaces:
            return update
        text = update.text
        while text and self._trailing_blanks.startswith(text[0]):
            text, self._trailing_blanks = text[1:], self._trailing_blanks[1:]
        if text:
            self._trailing_blanks = ""
        return TextUpdate(text)

    def on_result(self, result: AttemptResult) -> None:
        """Finish a request: release held text and remove repetition."""
        cut = isinstance(result.verdict, Cut)
        if self._prefilled:
            self._apply(self._strip_repeated_blanks(self._seam.close(cut=cut)))
            self.ignored_prefill = self._seam.restarted
        elif self._continues or self._text_before:
            self._apply(self._seam.close(cut=cut))
        if self._continues and not (cut or result.step.calls or self.text.strip()):
            self._apply(TextUpdate(result.step.text))  # a repetition is better than no answer
        if isinstance(result.error, Looping):
            self._remove_repetition(result.step.text)

    def _apply(self, update: TextUpdate) -> None:
        if update.replaces:
            self._replace_text(update.text)
        elif update.text:
            self.text += update.text
            self._emit(TextDelta(update.text))

    def _remove_repetition(self, text: str) -> None:
        """Replace the visible text by the text before the repetition."""
        self._looped = True
        new_paragraph = len(self._text_before) == self._announced_length
        seam = Seam(
            self._continues + self._text_before,
            may_replace=self._may_replace or not self._text_before,
            new_paragraph=new_paragraph,
        )
        kept = self._text_before
        for update in (seam.feed(text), seam.close()):
            kept = update.text if update.replaces else kept + update.text
        if kept != self.text:
            self._replace_text(kept)

    def _replace_text(self, text: str) -> None:
        self.text = text
        self._emit(TextReplaced(text))

    # --- the outcome ---------------------------------------------------------------------------

    def build_outcome(
        self,
        result: AttemptResult,
        salvage: Salvage,
        *,
        drafted_characters: int,
        after_tools: bool,
        has_other_target: bool,
        may_only_announce: bool = False,
        streamed: bool = True,
    ) -> RequestOutcome:
        """Summarize the last request for the recovery decision.

        `may_only_announce` is the model's trait from `agent.model.known_models`. `streamed` means
        that the request asked for a stream.
        """
        step = result.step
        could_act = may_only_announce and bool(self._schemas) and not step.calls
        return RequestOutcome(
            verdict=result.verdict,
            new_characters=max(0, len(self.text) - len(self._text_before)),
            repeated_ending=self._seam.repeated_ending
            and 0 < len(self.text) == len(self._text_before),
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
            opened_stream=streamed and step.opened,
        )

    # --- the next request ----------------------------------------------------------------------

    def prepare_retry(self, action: RetryRequest, raised_cap: int, lowered_cap: int) -> None:
        """Prepare the same request again, as a continuation of any visible text."""
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
        """Prepare a request for smaller calls, after calls were cut off."""
        self._report, self._smaller_calls = report, action
        self._continuation_reason = ContinuationReason.LOST_CALLS
        self._nudge = False
        if action.raise_cap:
            self.cap = raised_cap

    def reissue_calls(self, report: LostCallReport) -> None:
        """Prepare a request for calls that arrived complete but must not run."""
        self._report = report
        self._continuation_reason = ContinuationReason.LOST_CALLS
        self._nudge = False

    def request_announced_call(self) -> None:
        """Prepare a request for the call that the text announces."""
        self._announced_length = len(self.text)
        self._nudge = False

    def on_refusal(self) -> None:
        """Keep the text of a model that declined apart from the text of the next model."""
        self._declined_length = len(self.text)

    def on_target_switch(self) -> None:
        """Drop the adjustments made for the previous target."""
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
        """Return the report to the model about calls that did not run."""
        lost = tuple(
            LostCall(call.name, len(call.arguments.encode()), _draft_note(draft) if draft else "")
            for call, draft in zip(salvage.lost, drafts, strict=True)
        )
        unsealed = salvage.unsealed
        if smaller_calls and not lost:  # asking for the same call again has not helped
            lost = tuple(LostCall(call.name, len(call.arguments.encode())) for call in unsealed)
            unsealed = ()
        reported = {draft.id for draft in drafts if draft}
        return LostCallReport(
            lost_calls=lost,
            unsealed_tools=tuple(call.name for call in unsealed),
            done_calls=tuple(done_calls),
            limit_kilotokens=smaller_calls.limit_kilotokens if smaller_calls else 8,
            withheld_tool=smaller_calls.withheld_tool if smaller_calls else "",
            draft_notes=tuple(
                _draft_note(draft) for draft in unfinished_drafts if draft.id not in reported
            ),
        )

    # --- notices -------------------------------------------------------------------------------

    def schedule_notice(self, notice: Notice, wait_seconds: float, after_seconds: float) -> None:
        """Emit the notice unless output arrives within `after_seconds` of the last output.

        If the planned wait (`wait_seconds`) already exceeds that limit, emit the notice at once.
        """
        self.cancel_notice()
        silent = self._clock.monotonic() - self._last_output_at
        if silent + wait_seconds > after_seconds:
            self._emit(notice)
        else:
            loop = asyncio.get_running_loop()
            self._pending_notice = loop.call_later(after_seconds - silent, self._emit, notice)

    def cancel_notice(self) -> None:
        """Cancel the scheduled notice, if any."""
        if self._pending_notice:
            self._pending_notice.cancel()
            self._pending_notice = None


def _join_paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _draft_note(draft: FileDraft) -> str:
    return describe_draft(draft.id, draft.path, draft.size, draft.lines, draft.tail)


def _limit_parameter(schema: ToolSchema, parameter: str) -> ToolSchema:
    """Return the schema with a maximum length for one parameter."""
    properties: dict[str, Any] = schema.parameters.get("properties", {})
    if parameter not in properties:
        return schema
    limited = {
        **properties,
        parameter: {**properties[parameter], "maxLength": _MAX_PARAMETER_CHARACTERS},
    }
    return replace(schema, parameters={**schema.parameters, "properties": limited})
