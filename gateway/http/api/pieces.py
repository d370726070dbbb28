"""Sans-IO: turn events converted to pieces of an API answer.

Text is only ever appended, every tool start has exactly one end, and notices pass through.
"""

import msgspec

from agent.events import (
    ReasoningDelta,
    ReasoningReplaced,
    StepDone,
    TextDelta,
    TextReplaced,
    ToolFinished,
    ToolStarted,
)
from gateway.observe.redact import Redactor
from gateway.observe.redact_stream import RedactingStream
from gateway.turns.answer import join_step_texts
from gateway.turns.feed_events import FeedEvent, FeedNotice

_STEP_SEPARATOR = "\n\n"


class AnswerTextPiece(msgspec.Struct, frozen=True):
    """Text to append to the answer."""

    text: str


class ReasoningPiece(msgspec.Struct, frozen=True):
    """Text to append to the reasoning."""

    text: str


class ToolStartPiece(msgspec.Struct, frozen=True):
    """The start of a tool; exactly one `ToolEndPiece` with the same id follows."""

    id: str
    tool: str
    label: str
    emoji: str


class ToolEndPiece(msgspec.Struct, frozen=True):
    """The end of a tool, successful or not."""

    id: str
    tool: str


AnswerPiece = AnswerTextPiece | ReasoningPiece | ToolStartPiece | ToolEndPiece | FeedNotice


class PieceBuilder:
    """Converter of one turn's events for one reader.

    The concatenated text equals the answer shown in a chat, unless the turn replaced text that was
    already sent.
    """

    def __init__(self, redactor: Redactor, *, with_reasoning: bool = False) -> None:
        self._redactor = redactor
        self._redacting_stream = RedactingStream(redactor)
        self._with_reasoning = with_reasoning
        self._redacting_reasoning = RedactingStream(redactor)
        self._reasoning: list[str] = []  # returned so far
        self._reasoning_restarted = False
        self._reasoning_held = False  # the end of the reasoning may be held back
        self._finished_steps: list[str] = []
        self._step_text: list[str] = []  # of the current step
        self._leading_blanks = ""  # of the current step, held back until text follows
        self._emitted_texts: list[str] = []  # text of the current step already returned
        self._has_earlier_text = False  # an earlier step has returned text
        self._running_tools: dict[str, str] = {}
        self._seen_call_ids: set[str] = set()

    @property
    def text(self) -> str:
        """The whole answer, as shown at the end in a chat."""
        return self._redactor.redact(
            join_step_texts((*self._finished_steps, "".join(self._step_text)))
        )

    @property
    def reasoning(self) -> str:
        """The reasoning of all steps, if pieces of reasoning are returned."""
        return "".join(self._reasoning)

    def add(self, news: FeedEvent) -> tuple[AnswerPiece, ...]:
        """Process an event and return the pieces to send."""
        if isinstance(news, ReasoningDelta | ReasoningReplaced):
            return self._add_reasoning(news)
        if not self._reasoning_held:
            return self._add_answer(news)
        return (*self._flush_reasoning(), *self._add_answer(news))

    def _add_answer(
        self, news: TextDelta | TextReplaced | StepDone | ToolStarted | ToolFinished | FeedNotice
    ) -> tuple[AnswerPiece, ...]:
        match news:
            case TextDelta():
                self._step_text.append(news.text)
                return self._add_text(news.text)
            case TextReplaced():
                self._step_text = [news.text]
                return self._replace_text(news.text)
            case StepDone():
                self._finished_steps.append("".join(self._step_text))
                self._step_text = []
                return self._start_step()
            case ToolStarted():
                return (*self._flush(), *self._start_tool(news))
            case ToolFinished():
                return self._end_tool(news.call_id)
            case FeedNotice():
                return (FeedNotice(news.id, self._redactor.redact(news.text)),)

    def finish(self) -> tuple[AnswerPiece, ...]:
        """Flush held text and end the tools still running, because the turn has ended."""
        left = list(self._running_tools)
        return (
            *self._flush_reasoning(),
            *self._flush(),
            *(piece for call in left for piece in self._end_tool(call)),
        )

    def _add_reasoning(
        self, news: ReasoningDelta | ReasoningReplaced
    ) -> tuple[ReasoningPiece, ...]:
        """Return more reasoning; reasoning that starts again is a new paragraph."""
        text = news.text
        if isinstance(news, ReasoningReplaced):
            self._reasoning_restarted = bool(self._reasoning)
        if text and self._reasoning_restarted:
            self._reasoning_restarted = False
            text = f"{_STEP_SEPARATOR}{text}"
        self._reasoning_held = True
        return self._reasoning_pieces(self._redacting_reasoning.add(text))

    def _flush_reasoning(self) -> tuple[ReasoningPiece, ...]:
        self._reasoning_held = False
        return self._reasoning_pieces(self._redacting_reasoning.flush())

    def _reasoning_pieces(self, text: str) -> tuple[ReasoningPiece, ...]:
        if not text or not self._with_reasoning:
            return ()
        self._reasoning.append(text)
        return (ReasoningPiece(text),)

    def _replace_text(self, text: str) -> tuple[AnswerPiece, ...]:
        """Continue after the text already sent, or start a new step if the replacement differs."""
        given = self._leading_blanks + "".join(self._emitted_texts)
        return self._add_text(text[len(given) :]) if text.startswith(given) else self._start_step()

    def _start_step(self) -> tuple[AnswerPiece, ...]:
        self._has_earlier_text = self._has_earlier_text or bool(self._emitted_texts)
        self._leading_blanks = ""
        self._emitted_texts.clear()
        return self._flush()

    def _add_text(self, text: str) -> tuple[AnswerPiece, ...]:
        if not self._emitted_texts and not (self._leading_blanks + text).strip():
            self._leading_blanks += text
            return ()
        if not text:
            return ()
        added = self._leading_blanks + text
        self._leading_blanks = ""
        between = _STEP_SEPARATOR if self._has_earlier_text and not self._emitted_texts else ""
        self._emitted_texts.append(added)
        return self._text_pieces(self._redacting_stream.add(between + added))

    def _flush(self) -> tuple[AnswerPiece, ...]:
        return self._text_pieces(self._redacting_stream.flush())

    def _text_pieces(self, text: str) -> tuple[AnswerPiece, ...]:
        return (AnswerTextPiece(text),) if text else ()

    def _start_tool(self, news: ToolStarted) -> tuple[AnswerPiece, ...]:
        if not news.call_id or news.tool.startswith("_") or news.call_id in self._seen_call_ids:
            return ()
        self._seen_call_ids.add(news.call_id)
        self._running_tools[news.call_id] = news.tool
        label = self._redactor.redact(news.label)
        return (ToolStartPiece(news.call_id, news.tool, label, news.emoji),)

    def _end_tool(self, call_id: str) -> tuple[AnswerPiece, ...]:
        tool = self._running_tools.pop(call_id, None)
        return () if tool is None else (ToolEndPiece(call_id, tool),)
