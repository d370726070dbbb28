"""Sans-IO: encoder of `/v1/messages` answers, as events or whole."""

from collections.abc import Iterator
from typing import Any

import msgspec

from agent.model.usage import Usage
from gateway.http.api.endings import AnswerOutcome, FinishReason
from gateway.http.api.messages.shapes import (
    AnswerBlock,
    AnswerTextBlock,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputAddition,
    MessageDelta,
    MessagesAnswer,
    MessagesEvent,
    MessagesPing,
    MessageStart,
    MessageStop,
    MessagesUsage,
    StopDelta,
    StopReason,
    TextAddition,
    ThinkingAddition,
    ThinkingBlock,
    ToolUseBlock,
)
from gateway.http.api.pieces import AnswerPiece, AnswerTextPiece, ReasoningPiece
from gateway.http.api.tool_events import stream_event
from gateway.http.messages_errors import as_messages_failure
from sessions.records import ToolCall

_STOP_REASONS: dict[FinishReason, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_event_name = {each: str(each.__struct_config__.tag) for each in MessagesEvent.__args__}


class MessagesEncoder:
    """Encoder of one answer."""

    failures_are_errors = True

    def __init__(self, answer_id: str, model: str) -> None:
        self._id = f"msg_{answer_id}"
        self._model = model
        self._index = -1  # of the newest block
        self._open: type[AnswerTextBlock | ThinkingBlock] | None = None  # type of the open block
        self._content_sent = False

    # --- events ---------------------------------------------------------------------------------

    def encode_start(self) -> bytes:
        """Encode the first event of an answer."""
        return _encode_event(MessageStart(self._answer([], None, MessagesUsage())))

    def encode_piece(self, piece: AnswerPiece) -> bytes:
        """Encode a piece of the answer.

        Events of the agent are pings with more fields: strict clients refuse unknown types.
        """
        if isinstance(piece, AnswerTextPiece):
            opened = self._open_block(AnswerTextBlock(""))
            return opened + self._delta(TextAddition(piece.text))
        if isinstance(piece, ReasoningPiece):
            return self._open_block(ThinkingBlock("")) + self._delta(ThinkingAddition(piece.text))
        name, payload = stream_event(piece)
        fields: dict[str, Any] = {"event": name} | msgspec.to_builtins(payload)
        return _encode_event(MessagesPing(fields))

    def encode_end(self, outcome: AnswerOutcome) -> bytes:
        """Encode the last events: the calls, the stop reason and the usage, or the error."""
        if outcome.failure:
            failure = as_messages_failure(outcome.failure)
            error = msgspec.json.encode(failure.to_body(partial=self._content_sent))
            return self._close_block() + b"event: error\ndata: " + error + b"\n\n"
        events = []
        if outcome.refusal and not self._content_sent:
            events.append(self._open_block(AnswerTextBlock("")))
            events.append(self._delta(TextAddition(outcome.refusal)))
        events.append(self._close_block())
        events.extend(self._call_events(outcome.client_calls))
        stop = StopDelta(_STOP_REASONS[outcome.finish_reason])
        events.append(_encode_event(MessageDelta(stop, _usage(outcome.usage))))
        events.append(_encode_event(MessageStop()))
        return b"".join(events)

    def encode_answer(self, text: str, outcome: AnswerOutcome) -> bytes:
        """Encode the whole answer."""
        blocks: list[AnswerBlock] = []
        if outcome.reasoning:
            blocks.append(ThinkingBlock(outcome.reasoning))
        if shown := text or outcome.refusal:
            blocks.append(AnswerTextBlock(shown))
        for call in outcome.client_calls:
            arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
            blocks.append(ToolUseBlock(call.id, call.name, arguments))
        reason = _STOP_REASONS[outcome.finish_reason]
        return msgspec.json.encode(self._answer(blocks, reason, _usage(outcome.usage)))

    def _call_events(self, calls: tuple[ToolCall, ...]) -> Iterator[bytes]:
        for call in calls:
            self._index += 1
            yield _encode_event(BlockStart(self._index, ToolUseBlock(call.id, call.name, {})))
            yield self._delta(InputAddition(call.arguments or "{}"))
            yield _encode_event(BlockStop(self._index))

    def _open_block(self, block: AnswerTextBlock | ThinkingBlock) -> bytes:
        """Open a block of this type, unless one is open."""
        self._content_sent = True
        if self._open is type(block):
            return b""
        closed = self._close_block()
        self._index += 1
        self._open = type(block)
        return closed + _encode_event(BlockStart(self._index, block))

    def _close_block(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _encode_event(BlockStop(self._index))

    def _delta(self, addition: TextAddition | ThinkingAddition | InputAddition) -> bytes:
        return _encode_event(BlockDelta(self._index, addition))

    def _answer(
        self, content: list[AnswerBlock], reason: StopReason | None, usage: MessagesUsage
    ) -> MessagesAnswer:
        return MessagesAnswer(
            id=self._id, model=self._model, content=content, stop_reason=reason, usage=usage
        )


def _encode_event(event: MessagesEvent) -> bytes:
    name = _event_name[type(event)].encode()
    return b"event: " + name + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _usage(usage: Usage) -> MessagesUsage:
    return MessagesUsage(
        input_tokens=max(0, usage.input_tokens - usage.cached_tokens),
        output_tokens=usage.output_tokens,
        cache_read_input_tokens=usage.cached_tokens,
    )
