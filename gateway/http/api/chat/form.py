"""Sans-IO: encoder of `/v1/chat/completions` answers, as events or whole."""

import msgspec
from msgspec import UNSET, UnsetType

from agent.model.usage import Usage
from gateway.http.api.chat.shapes import (
    AnswerChoice,
    AnswerMessage,
    AnswerToolCall,
    CachedTokens,
    CalledFunction,
    ChatAnswer,
    ChatChunk,
    ChatUsage,
    ChunkChoice,
    Delta,
    DeltaToolCall,
    ReasoningTokens,
)
from gateway.http.api.endings import AnswerOutcome, FinishReason
from gateway.http.api.pieces import (
    AnswerPiece,
    AnswerTextPiece,
    ReasoningPiece,
    ToolEndPiece,
    ToolStartPiece,
)
from gateway.http.api.tool_events import as_chunk, stream_event
from gateway.http.errors import ErrorBody
from gateway.turns.feed_events import FeedNotice
from sessions.records import ToolCall


class ChatEncoder:
    """Encoder of one answer, as events or whole."""

    failures_are_errors = True

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        *,
        include_usage: bool = False,
    ) -> None:
        self._id = f"chatcmpl-{answer_id}"
        self._created = created
        self._model = model
        self._include_usage = include_usage
        self._sent_texts: list[str] = []

    def encode_start(self) -> bytes:
        """Encode the first event of an answer."""
        return self._encode_chunk(Delta(role="assistant", content=""))

    def encode_piece(self, piece: AnswerPiece) -> bytes:
        """Encode a piece of the answer."""
        match piece:
            case AnswerTextPiece():
                self._sent_texts.append(piece.text)
                return self._encode_chunk(Delta(content=piece.text))
            case ReasoningPiece():
                return self._encode_chunk(Delta(reasoning_content=piece.text))
            case ToolStartPiece() | ToolEndPiece() | FeedNotice():
                name, payload = stream_event(piece)
                # Many clients parse every event as a chunk, whatever its name.
                chunk = as_chunk(payload, id_=self._id, created=self._created, model=self._model)
                return b"event: " + name.encode() + b"\n" + _encode_data(chunk)

    def encode_end(self, outcome: AnswerOutcome) -> bytes:
        """Encode the last events: finish reason, usage, error, `[DONE]`."""
        events = [
            self._encode_chunk(Delta(tool_calls=[_delta_call(index, call)]))
            for index, call in enumerate(outcome.client_calls)
        ]
        refusal = outcome.refusal_beside("".join(self._sent_texts))
        events.append(self._encode_chunk(Delta(refusal=refusal or UNSET), outcome.finish_reason))
        if self._include_usage:
            events.append(_encode_data(self._build_chunk([], _usage(outcome.usage))))
        if outcome.failure:
            events.append(
                _encode_data(ErrorBody(outcome.failure.to_error(partial=bool(self._sent_texts))))
            )
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def encode_answer(self, text: str, outcome: AnswerOutcome) -> bytes:
        """Encode the whole answer."""
        content = text if text or not (outcome.refusal or outcome.client_calls) else None
        message = AnswerMessage(
            content,
            outcome.refusal_beside(text) or None,
            tool_calls=[_answer_call(call) for call in outcome.client_calls] or UNSET,
            reasoning_content=outcome.reasoning or UNSET,
        )
        answer = ChatAnswer(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[AnswerChoice(message, outcome.finish_reason)],
            usage=_usage(outcome.usage),
        )
        return msgspec.json.encode(answer)

    def _encode_chunk(self, delta: Delta, finish: FinishReason | None = None) -> bytes:
        usage = None if self._include_usage else UNSET
        return _encode_data(self._build_chunk([ChunkChoice(delta, finish)], usage))

    def _build_chunk(
        self, choices: list[ChunkChoice], usage: ChatUsage | UnsetType | None
    ) -> ChatChunk:
        return ChatChunk(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        )


def _answer_call(call: ToolCall) -> AnswerToolCall:
    return AnswerToolCall(id=call.id, function=CalledFunction(call.name, call.arguments))


def _delta_call(index: int, call: ToolCall) -> DeltaToolCall:
    function = CalledFunction(call.name, call.arguments)
    return DeltaToolCall(index=index, id=call.id, function=function)


def _encode_data(data: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        CachedTokens(usage.cached_tokens),
        ReasoningTokens(usage.reasoning_tokens) if usage.reasoning_tokens else UNSET,
    )
