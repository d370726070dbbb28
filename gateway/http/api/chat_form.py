"""Sans-IO: codec of `/v1/chat/completions`: decodes requests, encodes answers."""

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from agent.model.usage import Usage
from gateway.http.api.asked import (
    ApiRequest,
    RequestMessage,
    RequestPicture,
    body_digest,
    replace_nul,
)
from gateway.http.api.bodies import TOOLS_NOT_SUPPORTED, decode_body
from gateway.http.api.chat_shapes import (
    AnswerChoice,
    AnswerMessage,
    AssistantMessage,
    CachedTokens,
    ChatAnswer,
    ChatChunk,
    ChatMessage,
    ChatRequest,
    ChatUsage,
    ChunkChoice,
    Delta,
    DeveloperMessage,
    PicturePart,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from gateway.http.api.endings import AnswerOutcome, FinishReason
from gateway.http.api.failures import invalid_request
from gateway.http.api.pictures import read_picture
from gateway.http.api.pieces import AnswerPiece, AnswerTextPiece, ToolEndPiece, ToolStartPiece
from gateway.http.api.tool_events import stream_event
from gateway.http.errors import ErrorBody
from gateway.turns.feed_events import FeedNotice
from sessions.records import MessageRole, ToolCall

# --- requests ----------------------------------------------------------------------------------

_decode = msgspec.json.Decoder(ChatRequest).decode


def read_request(content: bytes) -> ApiRequest:
    """Decode a request; raises `RequestRefused`. Unknown fields are ignored."""
    body = decode_body(_decode, content)
    if (body.tools and body.tool_choice != "none") or body.functions:
        raise invalid_request(
            TOOLS_NOT_SUPPORTED, "tools" if body.tools else "functions", "unsupported_parameter"
        )
    if body.n not in {None, 1}:
        msg = "A request gets one answer; `n` can only be 1."
        raise invalid_request(msg, "n", "unsupported_parameter")
    *before, message = _read_messages(body.messages)
    options = body.stream_options
    limit = body.max_completion_tokens or body.max_tokens
    return ApiRequest(
        message=message,
        history=tuple(before),
        system_prompt="\n\n".join(_system_prompts(body.messages)),
        model=(body.model or "").strip(),
        max_output_tokens=int(limit) if limit else None,
        temperature=body.temperature,
        reasoning_effort=body.reasoning_effort,
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        digest=body_digest("chat", content),
        user=body.user or "",
    )


def _system_prompts(messages: list[ChatMessage]) -> Iterator[str]:
    for number, message in enumerate(messages):
        if isinstance(message, SystemMessage | DeveloperMessage):
            text, _ = _read_content(message, number, [])
            if text.strip():
                yield text


def _read_messages(messages: list[ChatMessage]) -> list[RequestMessage]:
    pictures: list[RequestPicture] = []
    said = []
    for number, message in enumerate(messages):
        if isinstance(message, SystemMessage | DeveloperMessage):
            continue
        text, own = _read_content(message, number, pictures)
        match message:
            case AssistantMessage():
                said.append(
                    RequestMessage(
                        role=MessageRole.ASSISTANT,
                        text=text,
                        pictures=own,
                        tool_calls=_read_tool_calls(message),
                    )
                )
            case ToolMessage():
                said.append(
                    RequestMessage(
                        role=MessageRole.TOOL,
                        text=text,
                        pictures=own,
                        tool_calls=(),
                        tool_call_id=message.tool_call_id,
                    )
                )
            case UserMessage():
                said.append(RequestMessage(role=MessageRole.USER, text=text, pictures=own))
    if not said or said[-1].role != MessageRole.USER:
        msg = "The last message must have the role `user`: it is the message to answer."
        raise invalid_request(msg, "messages")
    if not said[-1].text.strip() and not said[-1].pictures:
        msg = "The last message is empty."
        raise invalid_request(msg, f"messages[{len(messages) - 1}].content")
    return said


def _read_tool_calls(message: AssistantMessage) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
    )


def _read_content(
    message: ChatMessage, number: int, pictures: list[RequestPicture]
) -> tuple[str, tuple[RequestPicture, ...]]:
    """Return text and pictures of a message; also appends to `pictures`, all of the request."""
    if not isinstance(message.content, list):
        return replace_nul(message.content or ""), ()
    texts, first = [], len(pictures)
    for place, part in enumerate(message.content):
        match part:
            case TextPart():
                texts.append(replace_nul(part.text))
            case RefusalPart():
                texts.append(replace_nul(part.refusal))
            case PicturePart():
                where = f"messages[{number}].content[{place}].image_url.url"
                pictures.append(read_picture(part.image_url.url, where, len(pictures) + 1))
    return "\n".join(texts), tuple(pictures[first:])


# --- answers -----------------------------------------------------------------------------------


class ChatEncoder:
    """Encoder of one answer, as events or whole."""

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        *,
        include_usage: bool = False,
        chunk_like: bool = False,
    ) -> None:
        self._id = f"chatcmpl-{answer_id}"
        self._created = created
        self._model = model
        self._include_usage = include_usage
        # OpenAI's own libraries parse every event as a chunk, whatever its name.
        self._chunk_like = chunk_like
        self._text_sent = False

    def encode_start(self) -> bytes:
        """Encode the first event of an answer."""
        return self._encode_chunk(Delta(role="assistant", content=""))

    def encode_piece(self, piece: AnswerPiece) -> bytes:
        """Encode a piece of the answer."""
        match piece:
            case AnswerTextPiece():
                self._text_sent = True
                return self._encode_chunk(Delta(content=piece.text))
            case ToolStartPiece() | ToolEndPiece() | FeedNotice():
                name, payload = stream_event(piece, chunk_like=self._chunk_like)
                return b"event: " + name.encode() + b"\n" + _encode_data(payload)

    def encode_end(self, outcome: AnswerOutcome) -> bytes:
        """Encode the last events: finish reason, usage, error, `[DONE]`."""
        events = [
            self._encode_chunk(Delta(refusal=outcome.refusal or UNSET), outcome.finish_reason)
        ]
        if self._include_usage:
            events.append(_encode_data(self._build_chunk([], _usage(outcome.usage))))
        if outcome.failure:
            events.append(
                _encode_data(ErrorBody(outcome.failure.to_error(partial=self._text_sent)))
            )
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def encode_answer(self, text: str, outcome: AnswerOutcome) -> bytes:
        """Encode the whole answer."""
        content = text if text or not outcome.refusal else None
        message = AnswerMessage(content, outcome.refusal or None)
        answer = ChatAnswer(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[AnswerChoice(message, outcome.finish_reason)],
            usage=_usage(outcome.usage),
            error=outcome.failure.to_error(partial=bool(text)) if outcome.failure else UNSET,
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


def _encode_data(data: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        CachedTokens(usage.cached_tokens),
    )
