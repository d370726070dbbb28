"""Sans-IO: codec of `/v1/chat/completions`: decodes requests, encodes answers."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agent.model.contract import AnswerFormat, SamplingOptions
from agent.model.usage import Usage
from gateway.http.api.answer_options import read_effort, read_format, read_stop, refuse_unsupported
from gateway.http.api.asked import (
    ApiRequest,
    RequestMessage,
    RequestPicture,
    body_digest,
    replace_nul,
)
from gateway.http.api.bodies import decode_body, missing_field
from gateway.http.api.chat_shapes import (
    AnswerChoice,
    AnswerMessage,
    AnswerToolCall,
    AssistantMessage,
    AudioPart,
    CachedTokens,
    CalledFunction,
    ChatAnswer,
    ChatChunk,
    ChatMessage,
    ChatRequest,
    ChatTool,
    ChatUsage,
    ChunkChoice,
    Delta,
    DeltaToolCall,
    DeveloperMessage,
    FilePart,
    PicturePart,
    ReasoningTokens,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from gateway.http.api.client_tools import FunctionDefinition, read_tools
from gateway.http.api.endings import AnswerOutcome, FinishReason
from gateway.http.api.failures import invalid_request
from gateway.http.api.pictures import read_audio, read_file, read_picture
from gateway.http.api.pieces import AnswerPiece, AnswerTextPiece, ToolEndPiece, ToolStartPiece
from gateway.http.api.plain.prefill import ask_to_continue
from gateway.http.api.plain.tasks import read_task
from gateway.http.api.tool_events import as_chunk, stream_event
from gateway.http.errors import ErrorBody
from gateway.turns.feed_events import FeedNotice
from sessions.records import MessageRole, ToolCall

# --- requests ----------------------------------------------------------------------------------

_FUNCTIONS_NOT_SUPPORTED = (
    "`functions` is the older form of `tools` and is not supported; use `tools`."
)

_NO_WEB_SEARCH = "`web_search_options` has no effect here."

_decoder = msgspec.json.Decoder(ChatRequest)


def read_request(content: bytes) -> ApiRequest:
    """Decode a request; raises `RequestRefused`. Unknown fields are ignored."""
    body = decode_body(_decoder, content)
    if body.functions:
        raise invalid_request(_FUNCTIONS_NOT_SUPPORTED, "functions", "unsupported_parameter")
    refuse_unsupported(
        n=body.n not in {None, 1},
        logprobs=bool(body.logprobs),
        modalities=bool(set(body.modalities or ()) - {"text"}),
    )
    tools = read_tools(
        _functions(body.tools or ()), body.tool_choice, parallel=body.parallel_tool_calls
    )
    options = body.stream_options
    limit = body.max_completion_tokens or body.max_tokens
    return ApiRequest(
        messages=tuple(_read_messages(body.messages)),
        system_prompt="\n\n".join(_system_prompts(body.messages)),
        model=(body.model or "").strip(),
        max_output_tokens=int(limit) if limit else None,
        temperature=body.temperature,
        reasoning_effort=read_effort(body.reasoning_effort),
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        options=replace(tools.options, sampling=_sampling(body), format=_format(body)),
        warnings=(*tools.warnings, *([] if body.web_search_options is None else [_NO_WEB_SEARCH])),
        task=read_task(body.metadata),
        digest=body_digest("chat", content),
        user=body.user or "",
    )


def _sampling(body: ChatRequest) -> SamplingOptions:
    return SamplingOptions(
        top_p=body.top_p,
        stop=read_stop(body.stop),
        seed=None if body.seed is None else int(body.seed),
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=body.logit_bias or {},
        verbosity=body.verbosity,
        service_tier=body.service_tier,
        user=body.user,
    )


def _format(body: ChatRequest) -> AnswerFormat | None:
    wanted = body.response_format
    if wanted is None:
        return None
    return read_format(wanted.type, wanted.json_schema, "response_format.json_schema")


def _functions(tools: Iterable[ChatTool]) -> Iterator[FunctionDefinition | str]:
    for number, tool in enumerate(tools):
        if tool.type != "function":
            yield tool.type
        elif tool.function is None:
            where = f"tools[{number}].function"
            raise missing_field(where)
        else:
            yield tool.function


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
    said = ask_to_continue(said)
    if not said or said[-1].role is MessageRole.ASSISTANT:
        msg = "The last message must have the role `user` or `tool`: it is the message to answer."
        raise invalid_request(msg, "messages")
    is_result = said[-1].role is MessageRole.TOOL
    if not is_result and not said[-1].text.strip() and not said[-1].pictures:
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
            case FilePart(file=file):
                where = f"messages[{number}].content[{place}].file.file_data"
                name = file.filename or ""
                pictures.append(read_file(file.file_data, where, len(pictures) + 1, name=name))
            case AudioPart(input_audio=audio):
                where = f"messages[{number}].content[{place}].input_audio.data"
                pictures.append(read_audio(audio.data, audio.format, where, len(pictures) + 1))
    return "\n".join(texts), tuple(pictures[first:])


# --- answers -----------------------------------------------------------------------------------


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
