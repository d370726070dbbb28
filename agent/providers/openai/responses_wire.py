"""Sans-IO: Responses, both ways: our request to its body, its events to our chunks.

An answer is a list of items: thoughts, messages, calls. Each is announced, comes in pieces, and is
stated once more as a whole when it is done; the last event states them all again. Pieces are taken
as they come; a statement counts only for what did not come in pieces.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agent import errors
from agent.answer.reasoning_blocks import read_thoughts
from agent.model.contract import (
    CallChunk,
    Chunk,
    FinishChunk,
    ModelRequest,
    OpaqueChunk,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
)
from agent.providers.classify import complaint_in, failed_inside
from agent.providers.openai.odd_forms import flat, usage_chunk, whole_number
from agent.providers.openai.pictures import NO_PICTURES, REFUSED_PICTURE, data_url, pictures_of
from agent.providers.schemas import GRAMMAR, shape_of
from agent.providers.transport.body import BEAT, DONE, PING, BodyReader, read_event, read_json
from agent.providers.transport.sse import SseComment, SseEvent
from sessions.records import Message

# --- ours to theirs --------------------------------------------------------------------------

OPTIONAL = {
    "thoughts": re.compile(
        r"encrypted.content.*(?:verified|decrypted|issued|parsed)|\brs_\w|type:? .?reasoning"
        r"|reasoning.? item|not persisted|required following item"
    ),
    "summary": re.compile(r"summary|summaries"),
    "include": re.compile(r"\binclude\b|encrypted.content"),
    "store": re.compile(r"\bstore\b"),
    "grammar": GRAMMAR,
    "pictures": NO_PICTURES,
    "these_pictures": REFUSED_PICTURE,
}
"""What a service may refuse, and how it says so. `thoughts` are those of earlier answers; without
`grammar` the schemas of tools say no more than their shape."""


def to_body(request: ModelRequest, without: frozenset[str]) -> bytes:
    """Write the body of a request, without some of `OPTIONAL`."""
    body: dict[str, Any] = {
        "model": request.model,
        "input": [item for row in request.messages for item in _items(row, request, without)],
    }
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        plain = "grammar" in without
        body["tools"] = [_tool(tool, plain=plain) for tool in request.tools]
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        body["reasoning"] = _reasoning(request.reasoning_effort, without)
    if "store" not in without:
        body["store"] = False
    if "include" not in without:
        body["include"] = ["reasoning.encrypted_content"]
    body["stream"] = request.stream
    return msgspec.json.encode(body)


def _reasoning(effort: str, without: frozenset[str]) -> dict[str, str]:
    silent = "summary" in without or effort == "none"
    return {"effort": effort} if silent else {"effort": effort, "summary": "auto"}


def _items(
    row: Message, request: ModelRequest, without: frozenset[str]
) -> Iterator[dict[str, Any]]:
    if row.role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": row.tool_call_id,
            "output": row.content,
        }
        return
    if row.role != "assistant":
        text, pictures = pictures_of(row, request, without)
        said = _said(row.role, "input_text", text)
        if pictures and not text:
            said["content"].clear()
        said["content"] += [
            {"type": "input_image", "detail": "auto", "image_url": data_url(each)}
            for each in pictures
        ]
        yield said
        return
    if "thoughts" not in without and (
        row.content or row.tool_calls
    ):  # thoughts may not stand alone
        yield from _thoughts(row, request.model)
    if row.content:
        yield _said("assistant", "output_text", row.content)
    for call in row.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name or "unnamed",
            "arguments": call.arguments,
        }


def _said(role: str, kind: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _thoughts(row: Message, model: str) -> Iterator[dict[str, Any]]:
    thoughts = read_thoughts(row.reasoning, by=f"openai-responses/{model}")
    for part in thoughts.parts if thoughts is not None else ():
        # Without its content a thought is only a name for what the service has not kept.
        if part.get("encrypted_content") or part.get("content"):
            yield part


def _tool(tool: ToolSchema, *, plain: bool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": shape_of(tool.parameters) if plain else tool.parameters,
        "strict": False,
    }


# --- theirs to ours --------------------------------------------------------------------------


class _Event(msgspec.Struct):
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


_EVENT = msgspec.json.Decoder(_Event)

_ENDED_BADLY = frozenset({"incomplete", "failed", "cancelled"})
"""What the answer says of itself is surer than the name of the event that brings it."""

Place = tuple[object, object]
"""Where something stands: its item, and the part of the item."""


class _Call:
    """A call under construction."""

    def __init__(self, index: int, call_id: object, name: object, announced: str) -> None:
        self.index = index
        self.id = call_id
        self.name = name
        self.announced = announced  # arguments that came with the announcement, usually none
        self.pieces: list[str] = []
        self.ended = False


class ResponsesReader(BodyReader):
    """Reads the body of one answer."""

    def __init__(self) -> None:
        super().__init__(self._event)
        self._spoken: set[Place] = set()  # parts of messages of which pieces came
        self._thinks: str | None = None  # which of the two kinds of thoughts is shown
        self._thought: Place | None = None  # the part of the thoughts that came last
        self._thinking: set[object] = set()  # items of which thoughts were shown
        self._kept = 0  # parts of the thinking that were given for replay
        self._calls: list[_Call] = []
        self._open: dict[object, _Call] = {}  # by their place in the answer
        self._refused = False
        self._handlers: dict[str, Callable[[_Event], Iterator[Chunk]]] = {
            "response.output_text.delta": self._text,
            "response.output_text.done": self._text_stated,
            "response.refusal.delta": self._refusal,
            "response.refusal.done": self._refusal_stated,
            "response.reasoning_summary_text.delta": self._reasoning,
            "response.reasoning_text.delta": self._reasoning,
            "response.output_item.added": self._announced,
            "response.function_call_arguments.delta": self._arguments,
            "response.function_call_arguments.done": self._arguments_stated,
            "response.output_item.done": self._item_done,
            "response.completed": self._over,
            "response.incomplete": self._over,
            "response.failed": self._over,
            "response.cancelled": self._over,
        }

    def _event(self, event: SseEvent | SseComment) -> Iterator[Chunk]:
        if isinstance(event, SseComment):
            yield BEAT
            return
        if event.data.strip() == b"[DONE]":
            yield DONE
            return
        decoded = read_event(event, _EVENT)
        if decoded is None:
            yield PING
            return
        if event.name == "error" or decoded.type == "error" or decoded.object == "error":
            raise failed_inside(complaint_in(_error_of(decoded, event)))
        if decoded.object == "response":  # not streamed
            yield from self._answer(read_json(event.data, dict[str, Any]), "")
            return
        if decoded.error and decoded.type is None:
            raise failed_inside(complaint_in(_error_of(decoded, event)))
        decoded.type = str(decoded.type or event.name)
        handle = self._handlers.get(decoded.type)
        nothing = True
        for chunk in handle(decoded) if handle is not None else ():
            nothing = False
            yield chunk
        if nothing:
            yield PING

    def _text(self, event: _Event) -> Iterator[Chunk]:
        self._spoken.add((event.output_index, event.content_index))
        if event.delta:
            yield TextChunk(flat(event.delta))

    def _refusal(self, event: _Event) -> Iterator[Chunk]:
        self._refused = True
        yield from self._text(event)

    def _text_stated(self, event: _Event) -> Iterator[Chunk]:
        yield from self._stated((event.output_index, event.content_index), event.text)

    def _refusal_stated(self, event: _Event) -> Iterator[Chunk]:
        self._refused = True
        yield from self._stated((event.output_index, event.content_index), event.refusal)

    def _stated(self, place: Place, text: object) -> Iterator[Chunk]:
        item, part = place
        if self._spoken & {place, (item, None), (None, part), (None, None)}:
            return
        self._spoken.add(place)
        if text:
            yield TextChunk(flat(text))

    def _reasoning(self, event: _Event) -> Iterator[Chunk]:
        self._thinks = self._thinks or event.type
        if event.type != self._thinks or not event.delta:
            return  # the same thoughts, told a second time in another form
        place = event.output_index, (event.summary_index, event.content_index)
        apart = self._thought not in {None, place}
        self._thought = place
        self._thinking.add(event.output_index)
        yield ReasoningChunk("\n\n" + flat(event.delta) if apart else flat(event.delta))

    def _announced(self, event: _Event) -> Iterator[Chunk]:
        item = event.item
        if isinstance(item, dict) and item.get("type") == "function_call":
            yield from self._begin(event.output_index, item)

    def _begin(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        index = whole_number(place)
        call_id = item.get("call_id") or item.get("id")
        announced = item.get("arguments")
        call = _Call(
            len(self._calls) if index is None else index,
            call_id,
            item.get("name"),
            announced if isinstance(announced, str) else "",
        )
        self._calls.append(call)
        self._open[place if place is not None else item.get("id")] = call
        name = None if call.name is None else str(call.name)
        yield CallChunk(call.index, None if call_id is None else str(call_id), name)

    def _arguments(self, event: _Event) -> Iterator[Chunk]:
        call = self._call_at(event)
        if call is None or call.ended:  # a call that was declared whole does not grow
            return
        if isinstance(event.delta, str) and event.delta:
            call.pieces.append(event.delta)
            yield CallChunk(call.index, arguments=event.delta)

    def _arguments_stated(self, event: _Event) -> Iterator[Chunk]:
        call = self._call_at(event)
        if call is not None:
            yield from _settle(call, event.arguments)

    def _call_at(self, event: _Event) -> _Call | None:
        place = event.item_id if event.output_index is None else event.output_index
        # Some services name no place at all; then it can only be the call that began last.
        last = self._calls[-1] if self._calls and place is None else None
        return self._open.get(place, last)

    def _item_done(self, event: _Event) -> Iterator[Chunk]:
        if isinstance(event.item, dict):
            yield from self._item(event.output_index, event.item)

    def _item(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        match item.get("type"):
            case "message":
                yield from self._message_done(place, item)
            case "reasoning":
                yield from self._reasoning_done(place, item)
            case "function_call":
                yield from self._call_done(place, item)
            case _:  # what a tool of the service's own did
                pass

    def _message_done(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        for number, part in enumerate(_dicts(item.get("content"))):
            self._refused = self._refused or part.get("type") == "refusal"
            yield from self._stated((place, number), part.get("text") or part.get("refusal"))

    def _reasoning_done(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        if place not in self._thinking:
            told = _dicts(item.get("summary")) or _dicts(item.get("content"))
            text = "\n\n".join(filter(None, (flat(part) for part in told)))
            if text:
                yield ReasoningChunk(text)
        index = whole_number(place)
        kept = {name: value for name, value in item.items() if name != "status"}
        yield OpaqueChunk(self._kept if index is None else index, kept)
        self._kept += 1

    def _call_done(self, place: object, item: dict[str, Any]) -> Iterator[Chunk]:
        call = self._known(place, item)
        if call is None:
            yield from self._begin(place, item)
            call = self._calls[-1]
        yield from _settle(call, item.get("arguments"))
        # An item that the output limit cut off is stated as well, but it is not whole.
        if item.get("status") != "incomplete" and not call.ended:
            call.ended = True
            yield CallChunk(call.index, ended=True)

    def _known(self, place: object, item: dict[str, Any]) -> _Call | None:
        call_id = item.get("call_id") or item.get("id")
        here = self._open.get(place if place is not None else item.get("id"))
        if here is not None and here.id in {None, call_id}:
            return here
        return next((call for call in reversed(self._calls) if call.id == call_id), None)

    def _over(self, event: _Event) -> Iterator[Chunk]:
        response = event.response if isinstance(event.response, dict) else {}
        yield from self._answer(response, event.type.removeprefix("response."))

    def _answer(self, response: dict[str, Any], named: str) -> Iterator[Chunk]:
        """Read the last event, which has a name, or an answer in one piece, which has none."""
        stated = response.get("status")
        status = stated if stated in _ENDED_BADLY or not named else named
        yield from self._remaining(_dicts(response.get("output")))
        if isinstance(response.get("usage"), dict):
            yield usage_chunk(response["usage"], ("input_tokens", "output_tokens"), alone=False)
        match status:
            case "failed" | "cancelled" | "in_progress" | "queued":
                raise _failure(response, str(status))
            case "incomplete":
                yield FinishChunk(_why_incomplete(response))
            case _ if self._refused:
                yield FinishChunk("refusal")
            case _:
                yield FinishChunk("tool_calls" if self._calls else "stop")
        yield DONE

    def _remaining(self, output: list[dict[str, Any]]) -> Iterator[Chunk]:
        """Take what the whole answer has of which nothing came before."""
        spoken, kept = bool(self._spoken), bool(self._kept)
        if self._thinking:
            self._thinking.update(range(len(output)))
        for place, item in enumerate(output):
            kind = item.get("type")
            if not (kind == "message" and spoken) and not (kind == "reasoning" and kept):
                yield from self._item(place, item)


def _settle(call: _Call, stated: object) -> Iterator[Chunk]:
    """Compare arguments as they were stated with the pieces that came; add what is missing.

    The pieces are already on their way, so only a longer statement can still win, and only if it
    begins like them. If the two contradict each other nobody knows what the model meant.
    """
    came = "".join(call.pieces)
    told = stated if isinstance(stated, str) and stated else call.announced
    if not told or told == came:
        return
    if told.startswith(came) and (_is_object(told) or not _is_object(came)):
        call.pieces = [told]
        yield CallChunk(call.index, arguments=told[len(came) :])
        return
    if _begins_alike(told, came) and (_is_object(came) or not _is_object(told)):
        return
    msg = f"the model service gave two different versions of the arguments of {call.name}"
    raise errors.Cut(msg)


def _begins_alike(told: str, came: str) -> bool:
    return told.startswith(came) or came.startswith(told)


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except msgspec.DecodeError:
        return False


def _error_of(decoded: _Event, event: SseEvent) -> object:
    return {"error": decoded.error} if decoded.error else read_json(event.data, dict[str, Any])


def _failure(response: dict[str, Any], status: str) -> errors.ProviderError:
    error = response.get("error")
    if error:
        return failed_inside(complaint_in({"error": error}))
    return errors.Cut(f"the model service ended the answer as {status}")


def _why_incomplete(response: dict[str, Any]) -> str:
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return "content_filter" if reason == "content_filter" else "length"


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
