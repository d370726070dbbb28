"""Sans-IO: Chat Completions: encoding of requests, decoding of events.

Compatible services deviate from OpenAI's protocol: fields may be missing, null or of another type,
one answer may be spread over several choices, and reasoning has four names.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from agent import errors
from agent.answer.reasoning_blocks import decode_reasoning
from agent.errors import ProviderError
from agent.model.contract import (
    AnswerFormat,
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    ModelRequest,
    OpaqueChunk,
    ReasoningChunk,
    SamplingOptions,
    TextChunk,
    ToolSchema,
)
from agent.providers.classify import classify_stream_error, parse_service_error
from agent.providers.openai.odd_forms import flatten_text, known_effort, parse_index, read_usage
from agent.providers.openai.pictures import (
    PICTURE_REFUSED,
    PICTURES_UNSUPPORTED,
    data_url,
    split_pictures,
)
from agent.providers.schemas import (
    EFFORT_REFUSED,
    FORMAT_REFUSED,
    SCHEMA_REFUSED,
    simplify_schema,
)
from agent.providers.transport.body import BEAT, DONE, PING, BodyReader, read_event, read_json
from agent.providers.transport.sse import SseComment, SseEvent
from sessions.records import Message, MessageRole, ToolCall

# Names of the module, because every row of a history is compared.
_USER, _ASSISTANT, _TOOL = MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL

# --- requests --------------------------------------------------------------------------------

OPTIONAL_FEATURES = {
    "stream_options": re.compile(r"stream_options"),
    "max_tokens": re.compile(r"max_completion_tokens\W+instead"),
    "thoughts": re.compile(r"reasoning_details|reasoning_content"),
    "tool_choice": re.compile(r"tool_choice|tool choice"),
    "verbosity": re.compile(r"verbosity"),
    "service_tier": re.compile(r"service_tier"),
    "xhigh": EFFORT_REFUSED,
    "least_effort": EFFORT_REFUSED,
    "parallel": re.compile(r"parallel_tool_calls"),
    "grammar": SCHEMA_REFUSED,
    "format_beside_tools": FORMAT_REFUSED,
    "format": FORMAT_REFUSED,
    "pictures": PICTURES_UNSUPPORTED,
    "these_pictures": PICTURE_REFUSED,
}
"""Features that services may reject, with patterns for their errors.

When `max_tokens` is omitted, the limit is sent as `max_completion_tokens`; when `grammar` is
omitted, tool schemas are simplified.
"""

_OMITTED_OPTIONS = frozenset({"verbosity", "service_tier"})

_MODELS_NEEDING_REASONING = ("deepseek", "kimi")
"""Models that reject their own tool calls in the history without the reasoning before them."""


class ChatDialect(msgspec.Struct, frozen=True):
    """Differences between services."""

    output_limit_field: str = "max_tokens"
    omitted_features: frozenset[str] = frozenset()  # keys of `OPTIONAL_FEATURES`


def encode_request(request: ModelRequest, dialect: ChatDialect) -> bytes:
    """Encode the body of a request."""
    body: dict[str, Any] = {"model": request.model, "messages": _encode_messages(request, dialect)}
    if request.stream:
        body["stream"] = True
        if "stream_options" not in dialect.omitted_features:
            body["stream_options"] = {"include_usage": True}
    if request.tools:
        plain = "grammar" in dialect.omitted_features
        body["tools"] = [_encode_tool(tool, plain=plain) for tool in request.tools]
        body |= _tool_options(request, dialect.omitted_features)
    if request.max_output_tokens is not None:
        renamed = "max_tokens" in dialect.omitted_features
        limit = "max_completion_tokens" if renamed else dialect.output_limit_field
        body[limit] = request.max_output_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        effort = known_effort(request.reasoning_effort, dialect.omitted_features)
        body |= {"reasoning_effort": effort} if effort else {}
    body |= _sampling_options(request.sampling, dialect.omitted_features)
    if request.answer_format and not _omits_format(request, dialect.omitted_features):
        body["response_format"] = _encode_format(request.answer_format)
    return msgspec.json.encode(body)


def _sampling_options(options: SamplingOptions, omitted_features: frozenset[str]) -> dict[str, Any]:
    given: dict[str, Any] = msgspec.to_builtins(options)  # without defaults
    for feature in _OMITTED_OPTIONS & omitted_features:
        given.pop(feature, None)
    return given


def _omits_format(request: ModelRequest, omitted_features: frozenset[str]) -> bool:
    beside_tools = request.tools and "format_beside_tools" in omitted_features
    return bool(beside_tools) or "format" in omitted_features


def _encode_format(wanted: AnswerFormat) -> dict[str, Any]:
    if wanted.schema is None:
        return {"type": "json_object"}
    described = {"description": wanted.description} if wanted.description else {}
    schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict, **described}
    return {"type": "json_schema", "json_schema": schema}


def _tool_options(request: ModelRequest, omitted_features: frozenset[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    choice = request.tool_choice
    if choice and "tool_choice" not in omitted_features:
        named = {"type": "function", "function": {"name": choice.name}}
        options["tool_choice"] = named if choice.name else "required"
    if request.parallel_tool_calls is not None and "parallel" not in omitted_features:
        options["parallel_tool_calls"] = request.parallel_tool_calls
    return options


def _encode_messages(request: ModelRequest, dialect: ChatDialect) -> list[dict[str, Any]]:
    messages = [{"role": "system", "content": request.system}] if request.system else []
    replay = "thoughts" not in dialect.omitted_features
    for row in request.messages:
        message = _encode_message(row)
        if row.files and row.role == _USER:
            message["content"] = _content_with_pictures(row, request, dialect.omitted_features)
        if row.reasoning is not None and replay and row.role == _ASSISTANT:
            message |= _reasoning_fields(row, request.model)
        messages.append(message)
    return messages


def _content_with_pictures(
    row: Message, request: ModelRequest, omitted_features: frozenset[str]
) -> str | list[dict[str, Any]]:
    text, pictures = split_pictures(row, request, omitted_features)
    if not pictures:
        return text
    parts = [{"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in pictures]
    return [*([{"type": "text", "text": text}] if text else []), *parts]


def _encode_message(message: Message) -> dict[str, Any]:
    if message.role == _TOOL:
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [_encode_call(call) for call in message.tool_calls]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}


def _reasoning_fields(row: Message, model: str) -> dict[str, Any]:
    """Return a model's earlier reasoning in the fields that the service expects."""
    reasoning = decode_reasoning(row.reasoning, by=f"openai/{model}")
    if reasoning is None:
        return {}
    if reasoning.parts:
        return {"reasoning_details": reasoning.parts}
    needed = row.tool_calls and any(name in model.lower() for name in _MODELS_NEEDING_REASONING)
    return {"reasoning_content": reasoning.text} if needed else {}


def _encode_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name or "unnamed", "arguments": call.arguments}
    fields = {"id": call.id, "type": "function", "function": function}
    return fields | ({"extra_content": msgspec.Raw(call.extra)} if call.extra else {})


def _encode_tool(tool: ToolSchema, *, plain: bool) -> dict[str, Any]:
    if plain:
        tool = msgspec.structs.replace(tool, parameters=simplify_schema(tool.parameters))
    return {"type": "function", "function": tool}


# --- events ----------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: Any = None
    arguments: Any = None


class _ChatCall(msgspec.Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None
    extra_content: Any = None


class _Delta(msgspec.Struct, kw_only=True):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    thinking: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: list[_ChatCall | None] | _ChatCall | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None  # in a response without streaming
    finish_reason: Any = None


class _ChatEvent(msgspec.Struct, kw_only=True):
    choices: list[_Choice | None] | None = None
    usage: Any = None
    error: Any = None
    error_type: Any = None
    error_message: Any = None
    object: Any = None
    last_one: Any = msgspec.field(default=None, name="lastOne")


_EVENT_DECODER = msgspec.json.Decoder(_ChatEvent)

_FAILURE_REASONS = {
    "network_error": errors.ConnectionLost,
    "insufficient_system_resource": errors.Overloaded,
}
"""Finish reasons that mean a failure of the service; the text before them still counts."""


class ChatReader(BodyReader):
    """A reader for the body of one response."""

    def __init__(self) -> None:
        super().__init__(event_chunks)


def event_chunks(event: SseEvent | SseComment) -> Iterator[Chunk]:
    """Convert one event to chunks; raises the `ProviderError` for an error inside the stream."""
    if isinstance(event, SseComment):
        yield BEAT
        return
    if event.data.strip() == b"[DONE]":
        yield DONE
        return
    decoded = read_event(event, _EVENT_DECODER)
    if decoded is None:
        yield PING
        return
    if _is_error(decoded, event):
        raise classify_stream_error(parse_service_error(_error_record(decoded, event)))
    is_empty = True
    for chunk in _payload_chunks(decoded):
        is_empty = False
        yield chunk
    if is_empty:
        yield PING


def _is_error(decoded: _ChatEvent, event: SseEvent) -> bool:
    named = event.name == "error" or decoded.object == "error"
    return bool(named or decoded.error or decoded.error_message)


def _error_record(decoded: _ChatEvent, event: SseEvent) -> object:
    return {"error": decoded.error} if decoded.error else read_json(event.data, dict[str, Any])


def _payload_chunks(event: _ChatEvent) -> Iterator[Chunk]:
    for choice in event.choices or ():
        if choice is not None:
            yield from _choice_chunks(choice)
    if isinstance(event.usage, dict):
        names = "prompt_tokens", "completion_tokens"
        yield read_usage(event.usage, names, alone=not event.choices)
    if event.last_one:
        yield DoneChunk()  # not `DONE`: more events may follow


def _choice_chunks(choice: _Choice) -> Iterator[Chunk]:
    delta = choice.delta or choice.message
    reason = str(choice.finish_reason or "")
    if reason.lower() == "error":
        raise _failure_error(reason, delta)
    if delta is not None:
        yield from _delta_chunks(delta)
    if reason.lower() in _FAILURE_REASONS:
        raise _FAILURE_REASONS[reason.lower()](reason)
    if reason:
        yield FinishChunk(reason)


def _failure_error(reason: str, delta: _Delta | None) -> ProviderError:
    """Read a failure that an aggregator passes on as the text of the answer."""
    text = flatten_text(delta.content) if delta is not None else ""
    return classify_stream_error(parse_service_error(text or reason))


def _delta_chunks(delta: _Delta) -> Iterator[Chunk]:
    reasoning = flatten_text(
        delta.reasoning_content or delta.reasoning or delta.reasoning_text or delta.thinking
    )
    if delta.reasoning_details:
        details = [part for part in _as_list(delta.reasoning_details) if isinstance(part, dict)]
        reasoning = reasoning or "".join(map(_detail_text, details))
        yield from (_opaque_chunk(detail, position) for position, detail in enumerate(details))
    if reasoning:
        yield ReasoningChunk(reasoning)
    if delta.content:
        yield TextChunk(flatten_text(delta.content))
    if delta.refusal:
        yield TextChunk(flatten_text(delta.refusal))
        yield FinishChunk("refusal")
    if delta.tool_calls:
        yield from _call_chunks([call for call in _as_list(delta.tool_calls) if call is not None])
    if delta.function_call is not None:
        yield _call_chunk(_ChatCall(index=0, function=delta.function_call), 0)


_DETAIL_KINDS = {"reasoning.text": 0, "reasoning.summary": 1, "reasoning.encrypted": 2}


def _opaque_chunk(detail: dict[str, Any], position: int) -> OpaqueChunk:
    """Give details of different kinds different indexes, because they may share one on the wire."""
    index = parse_index(detail.get("index"))
    kind = _DETAIL_KINDS.get(str(detail.get("type")), len(_DETAIL_KINDS))
    fields = {name: value for name, value in detail.items() if value is not None}
    place = position if index is None else index
    return OpaqueChunk(place * (len(_DETAIL_KINDS) + 1) + kind, fields)


def _detail_text(detail: dict[str, Any]) -> str:
    return flatten_text(detail.get("text") or detail.get("summary"))


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _call_chunks(calls: list[_ChatCall]) -> Iterator[CallChunk]:
    for position, call in enumerate(calls):
        name = call.function.name if call.function is not None else None
        anonymous = call.index is None and not call.id and not name
        yield _call_chunk(call, position if anonymous and len(calls) > 1 else None)


def _call_chunk(call: _ChatCall, position: int | None) -> CallChunk:
    function = call.function or _Function()
    arguments = function.arguments
    if arguments is not None and not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return CallChunk(
        index=parse_index(call.index) if call.index is not None else position,
        id=None if call.id is None else str(call.id),
        name=None if function.name is None else str(function.name),
        arguments=arguments,
        extra=None if call.extra_content is None else msgspec.json.encode(call.extra_content),
    )
