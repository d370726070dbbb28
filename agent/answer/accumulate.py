"""Sans-IO: collects the chunks of one model answer.

Feed every chunk; what comes back is what can be shown at once. `result` says what was received so
far, at any moment: an answer that broke off is judged by the very same record as a whole one.
"""

import enum
from collections.abc import Sequence
from typing import Any

import msgspec

from agent.answer.call_slots import Slots, StepCall
from agent.answer.reasoning_blocks import merge
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


class Finish(enum.StrEnum):
    """Why the model stopped, in one set of words for all services."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSED = "refused"


class Progress(enum.Enum):
    """What kind of thing the model is busy with."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"


class StepResult(msgspec.Struct, frozen=True):
    """What one request gave, whole or not."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[StepCall, ...] = ()
    finish: Finish | None = None
    finish_raw: str = ""
    done: bool = False  # the wire's own end mark came
    usage: UsageChunk | None = None
    received: int = 0  # characters of text, reasoning and arguments
    request_id: str = ""
    opaque: tuple[dict[str, Any], ...] = ()  # parts of the thinking that the service wants back
    whole: bool = False  # it came in one piece, whatever was asked for

    @property
    def ended(self) -> bool:
        """The service said, in one way or another, that the answer is over."""
        counted = self.usage is not None and self.usage.alone
        return self.finish is not None or self.done or counted


_FINISH = {
    "stop": Finish.STOP,
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "eos": Finish.STOP,
    "completed": Finish.STOP,
    "pause_turn": Finish.STOP,
    "tool_calls": Finish.TOOL_CALLS,
    "tool_call": Finish.TOOL_CALLS,
    "tool_use": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "max_output_tokens": Finish.LENGTH,
    "incomplete": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "content_filter": Finish.REFUSED,
    "refusal": Finish.REFUSED,
    "safety": Finish.REFUSED,
    "recitation": Finish.REFUSED,
    "blocklist": Finish.REFUSED,
    "prohibited_content": Finish.REFUSED,
    "sensitive": Finish.REFUSED,
}


def finish_of(raw: str) -> Finish:
    """Put a service's word into ours; a word nobody knows means that it stopped."""
    return _FINISH.get(raw.strip().lower(), Finish.STOP)


class Accumulator:
    """Collects one answer.

    `prefix` makes ids for calls that came without one, `taken` are the ids that the conversation
    already holds.
    """

    def __init__(
        self, tools: Sequence[ToolSchema], prefix: str, taken: frozenset[str] = frozenset()
    ) -> None:
        self.progress: Progress | None = None  # the latest kind
        self.received = 0
        self._prefix = prefix
        self._taken = taken
        self._slots = Slots(tools)
        self._think = ThinkSplitter()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish: Finish | None = None
        self._finish_raw = ""
        self._done = False
        self._usage: UsageChunk | None = None
        self._request_id = ""
        self._opaque: dict[int, dict[str, Any]] = {}
        self._whole = False

    @property
    def ended(self) -> bool:
        """The service gave its reason to stop, or its end mark."""
        return self._finish is not None or self._done

    def feed(self, chunk: Chunk) -> tuple[TextDelta | ReasoningDelta, ...]:
        """Take a chunk; `received` grows when, and only when, it made progress."""
        match chunk:
            case TextChunk(text):
                return self._said(text)
            case ReasoningChunk(text):
                return self._thought(text)
            case CallChunk():
                return self._called(chunk)
            case FinishChunk(reason):
                self._finished(reason)
            case UsageChunk():
                self._usage = chunk
            case DoneChunk():
                self._done = True
            case OpaqueChunk(index, fields):
                merge(self._opaque, index, fields)
            case OpenedChunk(request_id):
                self._request_id = request_id
            case WholeChunk():
                self._whole = True
            case PingChunk():
                pass
        return ()

    def close(self) -> tuple[TextDelta | ReasoningDelta, ...]:
        """The wire is over: give what was held back."""
        thought, answer = self._think.close()
        return self._shown(thought, answer)

    def result(self) -> StepResult:
        """Say what was received so far."""
        counted = self._usage is not None and self._usage.alone
        # An answer that was cut off at the length limit proves nothing about its last call.
        ended = self._finish is not Finish.LENGTH and (self.ended or counted)
        return StepResult(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=self._slots.calls(self._prefix, self._taken, ended=ended),
            finish=self._finish,
            finish_raw=self._finish_raw,
            done=self._done,
            usage=self._usage,
            received=self.received,
            request_id=self._request_id,
            opaque=tuple(self._opaque[index] for index in sorted(self._opaque)),
            whole=self._whole,
        )

    def _said(self, text: str) -> tuple[TextDelta | ReasoningDelta, ...]:
        if not text:
            return ()
        self.received += len(text)
        if self._think.plain:
            self.progress = Progress.TEXT
            self._text.append(text)
            return (TextDelta(text),)
        return self._shown(*self._think.feed(text))

    def _thought(self, text: str) -> tuple[TextDelta | ReasoningDelta, ...]:
        self.received += len(text)
        return self._shown(text, "")

    def _shown(self, thought: str, answer: str) -> tuple[TextDelta | ReasoningDelta, ...]:
        deltas: list[TextDelta | ReasoningDelta] = []
        if thought:
            self.progress = Progress.REASONING
            self._reasoning.append(thought)
            deltas.append(ReasoningDelta(thought))
        if answer:
            self.progress = Progress.TEXT
            self._text.append(answer)
            deltas.append(TextDelta(answer))
        return tuple(deltas)

    def _called(self, chunk: CallChunk) -> tuple[TextDelta | ReasoningDelta, ...]:
        if self._slots.feed(chunk):
            self.received += len(chunk.arguments or chunk.name or "")
            self.progress = Progress.TOOL
        return ()

    def _finished(self, reason: str) -> None:
        finish = finish_of(reason)
        # A refusal stays one, whatever polite word follows it.
        if self._finish is not Finish.REFUSED:
            self._finish, self._finish_raw = finish, reason
