"""Sans-IO: `/v1/chat/completions`: reads its requests, writes its answers."""

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from agent.model.usage import Usage
from gateway.http.api.asked import Asked, Picture, Said, clean, digest_of
from gateway.http.api.bodies import OWN_TOOLS, read_body
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
)
from gateway.http.api.endings import FinishReason, Outcome
from gateway.http.api.failures import unfit
from gateway.http.api.pictures import picture
from gateway.http.api.pieces import More, Piece
from gateway.http.api.tool_events import told
from gateway.http.errors import ErrorBody
from sessions.records import ToolCall

# --- what comes in -----------------------------------------------------------------------------

_read = msgspec.json.Decoder(ChatRequest).decode


def read_request(content: bytes) -> Asked:
    """Read a request; raises `Refused`. What is not known here is let pass, as others do."""
    body = read_body(_read, content)
    if (body.tools and body.tool_choice != "none") or body.functions:
        raise unfit(OWN_TOOLS, "tools" if body.tools else "functions", "unsupported_parameter")
    if body.n not in {None, 1}:
        msg = "There is one answer to a request; `n` can only be 1."
        raise unfit(msg, "n", "unsupported_parameter")
    *before, message = _said(body.messages)
    options = body.stream_options
    limit = body.max_completion_tokens or body.max_tokens
    return Asked(
        message=message,
        before=tuple(before),
        system="\n\n".join(_prompts(body.messages)),
        model=(body.model or "").strip(),
        max_output_tokens=int(limit) if limit else None,
        temperature=body.temperature,
        effort=body.reasoning_effort,
        stream=bool(body.stream),
        usage=bool(options and options.include_usage),
        digest=digest_of("chat", content),
    )


def _prompts(messages: list[ChatMessage]) -> Iterator[str]:
    for number, message in enumerate(messages):
        if isinstance(message, SystemMessage | DeveloperMessage):
            text, _ = _content(message, number, [])
            if text.strip():
                yield text


def _said(messages: list[ChatMessage]) -> list[Said]:
    pictures: list[Picture] = []
    said = []
    for number, message in enumerate(messages):
        if isinstance(message, SystemMessage | DeveloperMessage):
            continue
        text, own = _content(message, number, pictures)
        match message:
            case AssistantMessage():
                said.append(Said("assistant", text, own, _calls(message)))
            case ToolMessage():
                said.append(Said("tool", text, own, (), message.tool_call_id))
            case _:
                said.append(Said("user", text, own))
    if not said or said[-1].role != "user":
        msg = "The last message must be one of role `user`: that is the one that is answered."
        raise unfit(msg, "messages")
    if not said[-1].text.strip() and not said[-1].pictures:
        msg = "There is nothing in the last message."
        raise unfit(msg, f"messages[{len(messages) - 1}].content")
    return said


def _calls(message: AssistantMessage) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
    )


def _content(
    message: ChatMessage, number: int, pictures: list[Picture]
) -> tuple[str, tuple[Picture, ...]]:
    """Give words and pictures; `pictures` are all those of the request so far."""
    if not isinstance(message.content, list):
        return clean(message.content or ""), ()
    texts, first = [], len(pictures)
    for place, part in enumerate(message.content):
        match part:
            case TextPart():
                texts.append(clean(part.text))
            case RefusalPart():
                texts.append(clean(part.refusal))
            case PicturePart():
                where = f"messages[{number}].content[{place}].image_url.url"
                pictures.append(picture(part.image_url.url, where, len(pictures) + 1))
    return "\n".join(texts), tuple(pictures[first:])


# --- what goes out -----------------------------------------------------------------------------


class ChatForm:
    """Writes one answer, as events or whole."""

    def __init__(
        self, answer_id: str, model: str, created: int, *, usage: bool = False, sdk: bool = False
    ) -> None:
        self._id = f"chatcmpl-{answer_id}"
        self._created = created
        self._model = model
        self._usage = usage
        # OpenAI's own libraries take every event for a chunk, whatever it is called.
        self._chunk_like = sdk
        self._told = False  # some of the answer

    def begin(self) -> bytes:
        """Write the first event of an answer."""
        return self._chunk(Delta(role="assistant", content=""))

    def piece(self, piece: Piece) -> bytes:
        """Write what is told of a turn."""
        match piece:
            case More():
                self._told = True
                return self._chunk(Delta(content=piece.text))
            case _:
                name, said = told(piece, chunk_like=self._chunk_like)
                return b"event: " + name.encode() + b"\n" + _data(said)

    def end(self, outcome: Outcome) -> bytes:
        """Write how it ended."""
        events = [self._chunk(Delta(refusal=outcome.declined or UNSET), outcome.finish)]
        if self._usage:
            events.append(_data(self._piece_of([], _usage(outcome.usage))))
        if outcome.failure:
            events.append(_data(ErrorBody(outcome.failure.error(partial=self._told))))
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def whole(self, text: str, outcome: Outcome) -> bytes:
        """Write the answer in one piece."""
        content = text if text or not outcome.declined else None
        message = AnswerMessage(content, outcome.declined or None)
        answer = ChatAnswer(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[AnswerChoice(message, outcome.finish)],
            usage=_usage(outcome.usage),
            error=outcome.failure.error(partial=bool(text)) if outcome.failure else UNSET,
        )
        return msgspec.json.encode(answer)

    def _chunk(self, delta: Delta, finish: FinishReason | None = None) -> bytes:
        usage = None if self._usage else UNSET
        return _data(self._piece_of([ChunkChoice(delta, finish)], usage))

    def _piece_of(
        self, choices: list[ChunkChoice], usage: ChatUsage | UnsetType | None
    ) -> ChatChunk:
        return ChatChunk(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        )


def _data(data: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        usage.input_tokens, usage.output_tokens, usage.tokens, CachedTokens(usage.cached_tokens)
    )
