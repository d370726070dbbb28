"""Sans-IO: Chat Completions, both ways: our request to its body, its events to our chunks.

Written for OpenAI and for everything that calls itself compatible: fields may be missing, null or of
another type, several choices may share one answer, reasoning has four names.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from agent import errors
from agent.providers.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    ModelRequest,
    PingChunk,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
    UsageChunk,
)
from agent.providers.openai.classify import complaint_in, failed_inside
from agent.providers.sse import SseComment, SseEvent, SseReader
from sessions.records import Message, ToolCall

# --- ours to theirs --------------------------------------------------------------------------


class Dialect(msgspec.Struct, frozen=True):
    """What a service wants to be told differently."""

    output_limit: str = "max_tokens"
    usage_option: bool = True  # it takes `stream_options`


def to_body(request: ModelRequest, dialect: Dialect) -> bytes:
    """Write the body of a streaming request."""
    body: dict[str, Any] = {"model": request.model, "messages": _messages(request), "stream": True}
    if dialect.usage_option:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.max_output_tokens is not None:
        body[dialect.output_limit] = request.max_output_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        body["reasoning_effort"] = request.reasoning_effort
    return msgspec.json.encode(body)


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    return system + [_message(message) for message in request.messages]


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [_call(call) for call in message.tool_calls]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name or "unnamed", "arguments": call.arguments}
    fields = {"id": call.id, "type": "function", "function": function}
    return fields | ({"extra_content": msgspec.Raw(call.extra)} if call.extra else {})


def _tool(tool: ToolSchema) -> dict[str, Any]:
    return {"type": "function", "function": tool}


# --- theirs to ours --------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: Any = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None
    extra_content: Any = None


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    thinking: Any = None
    refusal: Any = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None  # in an answer that was not streamed
    finish_reason: Any = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    error_type: Any = None
    error_message: Any = None
    last_one: Any = msgspec.field(default=None, name="lastOne")


_decode = msgspec.json.Decoder(_Event).decode
_PING = [PingChunk()]
_DONE = DoneChunk()


def from_event(event: SseEvent | SseComment) -> list[Chunk]:
    """Read one event; raises the `ProviderError` that the service put into the stream."""
    if isinstance(event, SseComment):
        return list(_PING)
    if event.data.strip() == b"[DONE]":
        return [_DONE]
    try:
        decoded = _decode(event.data)
    except msgspec.ValidationError:  # JSON of a shape that has nothing for us, such as `null`
        return list(_PING)
    except msgspec.DecodeError:
        raise _not_json(event) from None
    if decoded.error or decoded.error_message or event.name == "error":
        raise failed_inside(complaint_in(_error_of(decoded, event)))
    return list(_chunks(decoded)) or list(_PING)


class ChatReader:
    """Reads the body of one answer: a stream of events, or one piece of JSON all the same."""

    def __init__(self) -> None:
        self.done = False  # the wire's own end mark came: nothing of interest follows
        self._events = SseReader()
        self._whole: list[bytes] | None = None
        self._begun = False

    def feed(self, received: bytes) -> Iterator[Chunk]:
        """Take bytes; what stands before an error is given before it is raised."""
        if not self._begun:
            self._begun = bool(received.strip())
            self._whole = [] if received.lstrip().startswith(b"{") else None
        if self._whole is not None:
            self._whole.append(received)
            yield PingChunk()
            return
        for event in self._events.feed(received):
            for chunk in from_event(event):
                self.done = self.done or chunk is _DONE
                yield chunk
            if self.done:
                return

    def close(self) -> Iterator[Chunk]:
        """The body is over."""
        if self._whole is not None:
            yield from from_event(SseEvent("", b"".join(self._whole)))
            yield _DONE
        for event in self._events.close():
            # The last event may be a torn one.
            if isinstance(event, SseEvent) and _is_readable(event.data):
                yield from from_event(event)


def _is_readable(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.strip() == b"[DONE]"
    return True


def _not_json(event: SseEvent) -> errors.ProviderError:
    said = event.data.decode("utf-8", "replace")
    if event.name == "error":
        return failed_inside(complaint_in(said))
    return errors.Cut(f"the model service sent something unreadable: {said[:80]!r}")


def _error_of(decoded: _Event, event: SseEvent) -> object:
    if decoded.error:
        return decoded.error
    if decoded.error_message:
        return {"message": decoded.error_message, "type": decoded.error_type}
    return msgspec.json.decode(event.data)


def _chunks(event: _Event) -> Iterator[Chunk]:
    for choice in event.choices or ():
        delta = choice.delta or choice.message
        if delta is not None:
            yield from _said(delta)
        if choice.finish_reason:
            yield from _finish(str(choice.finish_reason), delta)
    if isinstance(event.usage, dict):
        yield from _usage(event.usage, alone=not event.choices)
    if event.last_one:
        yield DoneChunk()  # the model is done, the wire is not


def _said(delta: _Delta) -> Iterator[Chunk]:
    thought = (
        delta.reasoning_content or delta.reasoning or delta.reasoning_text or delta.thinking or ""
    )
    if thought:
        yield ReasoningChunk(_flat(thought))
    if delta.content:
        yield TextChunk(_flat(delta.content))
    if delta.refusal:
        yield TextChunk(_flat(delta.refusal))
        yield FinishChunk("refusal")
    if delta.tool_calls:
        yield from _calls(delta.tool_calls)
    if delta.function_call is not None:
        yield _call_chunk(_Call(index=0, function=delta.function_call), 0)


def _finish(reason: str, delta: _Delta | None) -> Iterator[Chunk]:
    if reason == "error":  # an aggregator passes its upstream's failure on as an answer
        raise failed_inside(complaint_in(_flat(delta.content) if delta else reason))
    yield FinishChunk(reason)


def _calls(calls: list[_Call]) -> Iterator[CallChunk]:
    for position, call in enumerate(calls):
        named = call.function is not None and call.function.name
        nameless = call.index is None and not call.id and not named
        yield _call_chunk(call, position if nameless and len(calls) > 1 else None)


def _call_chunk(call: _Call, position: int | None) -> CallChunk:
    function = call.function or _Function()
    arguments = function.arguments
    if arguments is not None and not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return CallChunk(
        index=_index(call.index) if call.index is not None else position,
        id=None if call.id is None else str(call.id),
        name=None if function.name is None else str(function.name),
        arguments=arguments,
        extra=None if call.extra_content is None else msgspec.json.encode(call.extra_content),
    )


def _index(index: object) -> int | None:
    try:
        return int(str(index))
    except ValueError:
        return None


def _usage(usage: dict[str, Any], *, alone: bool) -> Iterator[UsageChunk]:
    counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
    sent, made = (count if isinstance(count, int) else 0 for count in counts)
    yield UsageChunk(sent, made, alone)


def _flat(content: object) -> str:
    """Content may be text, a part with a text, or a list of such."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _flat(content.get("text") or "")
    if isinstance(content, list):
        return "".join(map(_flat, content))
    return ""
