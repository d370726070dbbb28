"""Sans-IO: the Responses API: encoding of requests, decoding of events.

A response is a list of items: reasoning, messages and calls. Each item is announced, streamed as
deltas and repeated in full at the end; the last event repeats all items. Deltas are passed on
as they arrive; a repetition only supplies the parts that no delta contained.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agent import errors
from agent.answer.reasoning_blocks import decode_reasoning
from agent.model.contract import (
    AnswerFormat,
    CallChunk,
    Chunk,
    FinishChunk,
    ModelRequest,
    OpaqueChunk,
    ReasoningChunk,
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
from sessions.records import Message, MessageRole

# Names of the module, because every row of a history is compared.
_ASSISTANT, _TOOL = MessageRole.ASSISTANT, MessageRole.TOOL

# --- requests --------------------------------------------------------------------------------

OPTIONAL_FEATURES = {
    "thoughts": re.compile(
        r"encrypted.content.*(?:verified|decrypted|issued|parsed)|\brs_\w|type:? .?reasoning"
        r"|reasoning.? item|not persisted|required following item"
    ),
    "summary": re.compile(r"summary|summaries"),
    "include": re.compile(r"\binclude\b|encrypted.content"),
    "store": re.compile(r"\bstore\b"),
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

`thoughts` is the reasoning of earlier answers; when `grammar` is omitted, tool schemas are simplified.
"""


def encode_request(request: ModelRequest, omitted_features: frozenset[str]) -> bytes:
    """Encode the body of a request without these of the `OPTIONAL_FEATURES`."""
    body: dict[str, Any] = {
        "model": request.model,
        "input": [
            item for row in request.messages for item in _encode_row(row, request, omitted_features)
        ],
    }
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        plain = "grammar" in omitted_features
        body["tools"] = [_encode_tool(tool, plain=plain) for tool in request.tools]
        body |= _tool_options(request, omitted_features)
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        effort = known_effort(request.reasoning_effort, omitted_features)
        body |= {"reasoning": _reasoning_options(effort, omitted_features)} if effort else {}
    body |= _sampling_options(request, omitted_features)
    if text := _text_options(request, omitted_features):
        body["text"] = text
    if "store" not in omitted_features:
        body["store"] = False
    if "include" not in omitted_features:
        body["include"] = ["reasoning.encrypted_content"]
    body["stream"] = request.stream
    return msgspec.json.encode(body)


def _sampling_options(request: ModelRequest, omitted_features: frozenset[str]) -> dict[str, Any]:
    """Return the options that the protocol has; it has no `stop`, `seed`, penalties or bias."""
    options = request.sampling
    fields = {"top_p": options.top_p, "user": options.user}
    if "service_tier" not in omitted_features:
        fields["service_tier"] = options.service_tier
    return {name: value for name, value in fields.items() if value is not None}


def _text_options(request: ModelRequest, omitted_features: frozenset[str]) -> dict[str, Any]:
    text: dict[str, Any] = {}
    wanted = request.answer_format
    omitted = "format" in omitted_features or (
        request.tools and "format_beside_tools" in omitted_features
    )
    if wanted and not omitted:
        text["format"] = _encode_format(wanted)
    if request.sampling.verbosity is not None and "verbosity" not in omitted_features:
        text["verbosity"] = request.sampling.verbosity
    return text


def _encode_format(wanted: AnswerFormat) -> dict[str, Any]:
    if wanted.schema is None:
        return {"type": "json_object"}
    described = {"description": wanted.description} if wanted.description else {}
    return {
        "type": "json_schema",
        "name": wanted.name,
        "schema": wanted.schema,
        "strict": wanted.strict,
        **described,
    }


def _tool_options(request: ModelRequest, omitted_features: frozenset[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    choice = request.tool_choice
    if choice and "tool_choice" not in omitted_features:
        named = {"type": "function", "name": choice.name}
        options["tool_choice"] = named if choice.name else "required"
    if request.parallel_tool_calls is not None and "parallel" not in omitted_features:
        options["parallel_tool_calls"] = request.parallel_tool_calls
    return options


def _reasoning_options(effort: str, omitted_features: frozenset[str]) -> dict[str, str]:
    silent = "summary" in omitted_features or effort == "none"
    return {"effort": effort} if silent else {"effort": effort, "summary": "auto"}


def _encode_row(
    row: Message, request: ModelRequest, omitted_features: frozenset[str]
) -> Iterator[dict[str, Any]]:
    if row.role == _TOOL:
        yield {
            "type": "function_call_output",
            "call_id": row.tool_call_id,
            "output": row.content,
        }
        return
    if row.role != _ASSISTANT:
        text, pictures = split_pictures(row, request, omitted_features)
        message = _encode_message(row.role, "input_text", text)
        if pictures and not text:
            message["content"].clear()
        message["content"] += [
            {"type": "input_image", "detail": "auto", "image_url": data_url(picture)}
            for picture in pictures
        ]
        yield message
        return
    # The protocol rejects reasoning that is not followed by a message or call.
    if "thoughts" not in omitted_features and (row.content or row.tool_calls):
        yield from _encode_reasoning(row, request.model)
    if row.content:
        yield _encode_message("assistant", "output_text", row.content)
    for call in row.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name or "unnamed",
            "arguments": call.arguments,
        }


def _encode_message(role: str, kind: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _encode_reasoning(row: Message, model: str) -> Iterator[dict[str, Any]]:
    reasoning = decode_reasoning(row.reasoning, by=f"openai-responses/{model}")
    for part in reasoning.parts if reasoning is not None else ():
        # A part without content is only an id, and the service has not stored the item.
        if part.get("encrypted_content") or part.get("content"):
            yield part


def _encode_tool(tool: ToolSchema, *, plain: bool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": simplify_schema(tool.parameters) if plain else tool.parameters,
        "strict": tool.strict,
    }


# --- events ----------------------------------------------------------------------------------


class _ResponsesEvent(msgspec.Struct, kw_only=True):
    type: Any = None
    delta: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    item_id: Any = None
    item: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    response: Any = None
    error: Any = None
    object: Any = None


_EVENT_DECODER = msgspec.json.Decoder(_ResponsesEvent)

_FAILED_STATUSES = frozenset({"incomplete", "failed", "cancelled"})
"""Statuses of a response that override the name of its last event."""

ContentPosition = tuple[object, object]
"""An item, and a part of that item."""


class _ResponsesCall:
    """A call that is being received."""

    def __init__(self, index: int, call_id: object, name: object, initial_arguments: str) -> None:
        self.index = index
        self.id = call_id
        self.name = name
        self.initial_arguments = initial_arguments  # from the announcement, usually empty
        self.pieces: list[str] = []
        self.ended = False


class ResponsesReader(BodyReader):
    """A reader for the body of one response."""

    def __init__(self) -> None:
        super().__init__(self._event_chunks)
        self._streamed_parts: set[ContentPosition] = set()  # message parts received as deltas
        self._reasoning_event_type: str | None = None  # summary or full reasoning
        self._last_reasoning_part: ContentPosition | None = None
        self._reasoning_items: set[object] = set()  # items whose reasoning was passed on
        self._opaque_count = 0  # reasoning parts passed on for replay
        self._calls: list[_ResponsesCall] = []
        self._calls_by_position: dict[object, _ResponsesCall] = {}
        self._refused = False
        self._handlers: dict[str, Callable[[_ResponsesEvent], Iterator[Chunk]]] = {
            "response.output_text.delta": self._on_text,
            "response.output_text.done": self._on_text_done,
            "response.refusal.delta": self._on_refusal,
            "response.refusal.done": self._on_refusal_done,
            "response.reasoning_summary_text.delta": self._on_reasoning,
            "response.reasoning_text.delta": self._on_reasoning,
            "response.output_item.added": self._on_item_added,
            "response.function_call_arguments.delta": self._on_arguments,
            "response.function_call_arguments.done": self._on_arguments_done,
            "response.output_item.done": self._on_item_done,
            "response.completed": self._on_response_end,
            "response.incomplete": self._on_response_end,
            "response.failed": self._on_response_end,
            "response.cancelled": self._on_response_end,
        }

    def _event_chunks(self, event: SseEvent | SseComment) -> Iterator[Chunk]:
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
        if event.name == "error" or decoded.type == "error" or decoded.object == "error":
            raise classify_stream_error(parse_service_error(_error_record(decoded, event)))
        if decoded.object == "response":  # not streamed
            yield from self._read_response(read_json(event.data, dict[str, Any]), "")
            return
        if decoded.error and decoded.type is None:
            raise classify_stream_error(parse_service_error(_error_record(decoded, event)))
        decoded.type = str(decoded.type or event.name)
        handle = self._handlers.get(decoded.type)
        is_empty = True
        for chunk in handle(decoded) if handle is not None else ():
            is_empty = False
            yield chunk
        if is_empty:
            yield PING

    def _on_text(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        self._streamed_parts.add((event.output_index, event.content_index))
        if event.delta:
            yield TextChunk(flatten_text(event.delta))

    def _on_refusal(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        self._refused = True
        yield from self._on_text(event)

    def _on_text_done(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        yield from self._add_missing_text((event.output_index, event.content_index), event.text)

    def _on_refusal_done(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        self._refused = True
        yield from self._add_missing_text((event.output_index, event.content_index), event.refusal)

    def _add_missing_text(self, place: ContentPosition, text: object) -> Iterator[Chunk]:
        item, part = place
        if self._streamed_parts & {place, (item, None), (None, part), (None, None)}:
            return
        self._streamed_parts.add(place)
        if text:
            yield TextChunk(flatten_text(text))

    def _on_reasoning(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        self._reasoning_event_type = self._reasoning_event_type or event.type
        if event.type != self._reasoning_event_type or not event.delta:
            return  # the same reasoning in the other form
        place = event.output_index, (event.summary_index, event.content_index)
        is_new_part = self._last_reasoning_part not in {None, place}
        self._last_reasoning_part = place
        self._reasoning_items.add(event.output_index)
        text = flatten_text(event.delta)
        yield ReasoningChunk("\n\n" + text if is_new_part else text)

    def _on_item_added(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        item = event.item
        if isinstance(item, dict) and item.get("type") == "function_call":
            yield from self._begin_call(event.output_index, item)

    def _begin_call(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        index = parse_index(place)
        call_id = item.get("call_id") or item.get("id")
        announced = item.get("arguments")
        call = _ResponsesCall(
            len(self._calls) if index is None else index,
            call_id,
            item.get("name"),
            announced if isinstance(announced, str) else "",
        )
        self._calls.append(call)
        self._calls_by_position[place if place is not None else item.get("id")] = call
        name = None if call.name is None else str(call.name)
        yield CallChunk(call.index, None if call_id is None else str(call_id), name)

    def _on_arguments(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        call = self._call_at(event)
        if call is None or call.ended:  # a complete call takes no more arguments
            return
        if isinstance(event.delta, str) and event.delta:
            call.pieces.append(event.delta)
            yield CallChunk(call.index, arguments=event.delta)

    def _on_arguments_done(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        call = self._call_at(event)
        if call is not None:
            yield from _reconcile_arguments(call, event.arguments)

    def _call_at(self, event: _ResponsesEvent) -> _ResponsesCall | None:
        place = event.item_id if event.output_index is None else event.output_index
        # Some services send no position at all; then the most recent call is meant.
        last = self._calls[-1] if self._calls and place is None else None
        return self._calls_by_position.get(place, last)

    def _on_item_done(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        if isinstance(event.item, dict):
            yield from self._read_item(event.output_index, event.item)

    def _read_item(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        match item.get("type"):
            case "message":
                yield from self._read_message(place, item)
            case "reasoning":
                yield from self._read_reasoning(place, item)
            case "function_call":
                yield from self._read_call(place, item)
            case _:  # output of a tool of the service itself
                pass

    def _read_message(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        for number, part in enumerate(_only_dicts(item.get("content"))):
            self._refused = self._refused or part.get("type") == "refusal"
            yield from self._add_missing_text(
                (place, number), part.get("text") or part.get("refusal")
            )

    def _read_reasoning(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        if place not in self._reasoning_items:
            parts = _only_dicts(item.get("summary")) or _only_dicts(item.get("content"))
            text = "\n\n".join(filter(None, (flatten_text(part) for part in parts)))
            if text:
                yield ReasoningChunk(text)
        index = parse_index(place)
        kept = {name: value for name, value in item.items() if name != "status"}
        yield OpaqueChunk(self._opaque_count if index is None else index, kept)
        self._opaque_count += 1

    def _read_call(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        call = self._find_call(place, item)
        if call is None:
            yield from self._begin_call(place, item)
            call = self._calls[-1]
        yield from _reconcile_arguments(call, item.get("arguments"))
        # An item cut off by the output limit is repeated as well, but with an incomplete call.
        if item.get("status") != "incomplete" and not call.ended:
            call.ended = True
            yield CallChunk(call.index, ended=True)

    def _find_call(self, place: object, item: dict[str, Any]) -> _ResponsesCall | None:
        call_id = item.get("call_id") or item.get("id")
        call = self._calls_by_position.get(place if place is not None else item.get("id"))
        if call is not None and call.id in {None, call_id}:
            return call
        return next((call for call in reversed(self._calls) if call.id == call_id), None)

    def _on_response_end(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        response = event.response if isinstance(event.response, dict) else {}
        yield from self._read_response(response, event.type.removeprefix("response."))

    def _read_response(self, response: dict[str, Any], named: str) -> Iterator[Chunk]:
        """Read a full response: from the last event, or with an empty `named` without streaming."""
        own_status = response.get("status")
        status = own_status if own_status in _FAILED_STATUSES or not named else named
        yield from self._read_remaining(_only_dicts(response.get("output")))
        if isinstance(response.get("usage"), dict):
            yield read_usage(response["usage"], ("input_tokens", "output_tokens"), alone=False)
        match status:
            case "failed" | "cancelled" | "in_progress" | "queued":
                raise _failure_error(response, str(status))
            case "incomplete":
                yield FinishChunk(_why_incomplete(response))
            case _ if self._refused:
                yield FinishChunk("refusal")
            case _:
                yield FinishChunk("tool_calls" if self._calls else "stop")
        yield DONE

    def _read_remaining(self, output: list[dict[str, Any]]) -> Iterator[Chunk]:
        """Read the items of a full response that were not received before."""
        has_text, has_reasoning = bool(self._streamed_parts), bool(self._opaque_count)
        if self._reasoning_items:
            self._reasoning_items.update(range(len(output)))
        for place, item in enumerate(output):
            kind = item.get("type")
            received = (kind == "message" and has_text) or (kind == "reasoning" and has_reasoning)
            if not received:
                yield from self._read_item(place, item)


def _reconcile_arguments(call: _ResponsesCall, repeated: object) -> Iterator[Chunk]:
    """Compare repeated arguments with the received deltas; yield the part that was missing.

    The deltas have already been passed on, so a repetition can only extend them. Raises
    `ConnectionLost` if the two versions contradict each other.
    """
    received = "".join(call.pieces)
    full = repeated if isinstance(repeated, str) and repeated else call.initial_arguments
    if not full or full == received:
        return
    if full.startswith(received) and (_is_object(full) or not _is_object(received)):
        call.pieces = [full]
        yield CallChunk(call.index, arguments=full[len(received) :])
        return
    if _share_beginning(full, received) and (_is_object(received) or not _is_object(full)):
        return
    msg = f"the model service sent two different versions of the arguments of {call.name}"
    raise errors.ConnectionLost(msg)


def _share_beginning(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except msgspec.DecodeError:
        return False


def _error_record(decoded: _ResponsesEvent, event: SseEvent) -> object:
    return {"error": decoded.error} if decoded.error else read_json(event.data, dict[str, Any])


def _failure_error(response: dict[str, Any], status: str) -> errors.ProviderError:
    error = response.get("error")
    if error:
        return classify_stream_error(parse_service_error({"error": error}))
    return errors.ConnectionLost(f"the model service ended the answer as {status}")


def _why_incomplete(response: dict[str, Any]) -> str:
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return "content_filter" if reason == "content_filter" else "length"


def _only_dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
