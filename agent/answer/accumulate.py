"""Sans-IO: accumulator for the chunks of one model answer.

`feed` takes a chunk and returns the deltas to display. `result` may be called at any moment and
returns everything received so far: truncated and complete answers are judged by the same record.
"""

import enum
from collections.abc import Sequence
from typing import Any

import msgspec

from agent.answer.call_slots import CallSlots, StepCall
from agent.answer.reasoning_blocks import merge_part
from agent.answer.think_tags import ThinkSplitter
from agent.events import ReasoningDelta, TextDelta
from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    OpaqueChunk,
    OpenedChunk,
    PingChunk,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
    UsageChunk,
    WholeChunk,
)

DEFAULT_MAX_CHARACTERS = 2_000_000
"""Characters of one answer; a book has about a million."""

ANSWER_CUT_OFF = "\n\n✂️ This answer is too long, so I stopped it here."
"""Last words of a text that exceeds the limit."""


class FinishReason(enum.StrEnum):
    """Reason the model stopped, normalized across services."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSED = "refused"


class ProgressKind(enum.Enum):
    """Kind of output that the model is producing."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything received from one request, complete or truncated."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[StepCall, ...] = ()
    finish_reason: FinishReason | None = None
    raw_finish_reason: str = ""
    end_marker_seen: bool = False  # the protocol's end marker, such as `[DONE]`
    usage: UsageChunk | None = None
    received_characters: int = 0  # text, reasoning and arguments together
    request_id: str = ""
    opened: bool = False  # the service accepted the request, and its response began
    opaque_parts: tuple[dict[str, Any], ...] = ()
    """Reasoning parts to send back to the service unchanged."""

    unstreamed: bool = False  # the answer arrived as one document, even if a stream was requested

    @property
    def ended(self) -> bool:
        """True after terminal evidence: finish reason, end marker or standalone usage event."""
        counted = self.usage is not None and self.usage.alone
        return self.finish_reason is not None or self.end_marker_seen or counted


_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "completed": FinishReason.STOP,
    "pause_turn": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_call": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "max_output_tokens": FinishReason.LENGTH,
    "incomplete": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "content_filter": FinishReason.REFUSED,
    "refusal": FinishReason.REFUSED,
    "safety": FinishReason.REFUSED,
    "recitation": FinishReason.REFUSED,
    "blocklist": FinishReason.REFUSED,
    "prohibited_content": FinishReason.REFUSED,
    "sensitive": FinishReason.REFUSED,
}


def normalize_finish_reason(raw: str) -> FinishReason:
    """Map a service's finish reason to ours; unknown reasons count as `STOP`."""
    return _FINISH_REASONS.get(raw.strip().lower(), FinishReason.STOP)


class Accumulator:
    """Accumulator for one answer.

    `id_prefix` starts the ids generated for calls that arrive without one; `taken_ids` are the call
    ids already used in the conversation. Beyond `max_characters` the answer ends, and `is_full` tells
    the caller to stop reading: a text then counts as complete, anything else as cut by a limit.
    """

    def __init__(
        self,
        tools: Sequence[ToolSchema],
        id_prefix: str,
        taken_ids: frozenset[str] = frozenset(),
        *,
        max_characters: int = DEFAULT_MAX_CHARACTERS,
    ) -> None:
        self.progress: ProgressKind | None = None  # kind of the latest progress
        self.received_characters = 0
        self.is_full = False
        self._max_characters = max_characters
        self._is_text_cut = False
        self._id_prefix = id_prefix
        self._taken_ids = taken_ids
        self._slots = CallSlots(tools)
        self._think_splitter = ThinkSplitter()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish_reason: FinishReason | None = None
        self._raw_finish_reason = ""
        self._end_marker_seen = False
        self._usage: UsageChunk | None = None
        self._request_id = ""
        self._opened = False
        self._opaque_parts: dict[int, dict[str, Any]] = {}
        self._unstreamed = False

    @property
    def ended(self) -> bool:
        """True after a finish reason or an end marker."""
        return self._finish_reason is not None or self._end_marker_seen

    def feed(self, chunk: Chunk) -> tuple[TextDelta | ReasoningDelta, ...]:
        """Add a chunk and return its deltas.

        `received_characters` grows if and only if the chunk made progress.
        """
        if self.is_full:
            return ()
        match chunk:
            case TextChunk(text):
                return self._on_text(text)
            case ReasoningChunk(text):
                return self._on_reasoning(text)
            case CallChunk():
                return self._on_call(chunk)
            case FinishChunk(reason):
                self._on_finish(reason)
            case UsageChunk():
                self._usage = chunk
            case DoneChunk():
                self._end_marker_seen = True
            case OpaqueChunk(index, fields):
                merge_part(self._opaque_parts, index, fields)
            case OpenedChunk(request_id):
                self._request_id = request_id
                self._opened = True
            case WholeChunk():
                self._unstreamed = True
            case PingChunk():
                pass
        return ()

    def close(self) -> tuple[TextDelta | ReasoningDelta, ...]:
        """Return the text that was held back; call once, after the last chunk."""
        thought, answer = self._think_splitter.close()
        return self._add_deltas(thought, answer + ANSWER_CUT_OFF * self._is_text_cut)

    def result(self) -> StepResult:
        """Return everything received so far."""
        counted = self._usage is not None and self._usage.alone
        # The finish reason `length` does not prove that the last call is complete.
        ended = self._finish_reason is not FinishReason.LENGTH and (self.ended or counted)
        return StepResult(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=self._slots.calls(self._id_prefix, self._taken_ids, ended=ended),
            finish_reason=self._finish_reason,
            raw_finish_reason=self._raw_finish_reason,
            end_marker_seen=self._end_marker_seen,
            usage=self._usage,
            received_characters=self.received_characters,
            request_id=self._request_id,
            opened=self._opened,
            opaque_parts=tuple(self._opaque_parts[index] for index in sorted(self._opaque_parts)),
            unstreamed=self._unstreamed,
        )

    def _on_text(self, text: str) -> tuple[TextDelta | ReasoningDelta, ...]:
        if not text:
            return ()
        received = self.received_characters + len(text)
        if received <= self._max_characters:  # without a call, because deltas are frequent
            self.received_characters = received
        else:
            text = self._take(text, FinishReason.STOP)
            if not text:
                return ()
        if self._think_splitter.passthrough:
            self.progress = ProgressKind.TEXT
            self._text.append(text)
            return (TextDelta(text),)
        return self._add_deltas(*self._think_splitter.feed(text))

    def _on_reasoning(self, text: str) -> tuple[TextDelta | ReasoningDelta, ...]:
        return self._add_deltas(self._take(text, FinishReason.LENGTH), "")

    def _take(self, text: str, ending: FinishReason) -> str:
        """Count a text and return the part within the limit; beyond it the answer ends."""
        room = self._max_characters - self.received_characters
        if len(text) > room:
            self.is_full, self._is_text_cut = True, ending is FinishReason.STOP
            self._finish_reason = ending
            text = text[:room]
        self.received_characters += len(text)
        return text

    def _add_deltas(self, thought: str, answer: str) -> tuple[TextDelta | ReasoningDelta, ...]:
        deltas: list[TextDelta | ReasoningDelta] = []
        if thought:
            self.progress = ProgressKind.REASONING
            self._reasoning.append(thought)
            deltas.append(ReasoningDelta(thought))
        if answer:
            self.progress = ProgressKind.TEXT
            self._text.append(answer)
            deltas.append(TextDelta(answer))
        return tuple(deltas)

    def _on_call(self, chunk: CallChunk) -> tuple[TextDelta | ReasoningDelta, ...]:
        if self._slots.feed(chunk):
            self._take(chunk.arguments or chunk.name or "", FinishReason.LENGTH)
            self.progress = ProgressKind.TOOL
        return ()

    def _on_finish(self, reason: str) -> None:
        finish = normalize_finish_reason(reason)
        # Some services send `stop` after a refusal; the refusal wins.
        if self._finish_reason is not FinishReason.REFUSED:
            self._finish_reason, self._raw_finish_reason = finish, reason
