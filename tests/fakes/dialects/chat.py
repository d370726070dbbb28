"""Chat Completions: chunks of one choice, and `[DONE]`."""

import json
from typing import Any

from tests.fakes.dialects.parts import Part
from tests.fakes.dialects.steps import (
    Blank,
    CallDelta,
    Done,
    Event,
    Fault,
    Finish,
    Head,
    Ping,
    Raw,
    Reasoning,
    Said,
    Text,
    Usage,
    Wait,
)
from tests.fakes.dialects.whole import Answer

REQUEST_ID = {"x-request-id": "req_scripted"}

_KINDS = {
    400: ("invalid_request_error", "invalid_request_error"),
    429: ("requests", "rate_limit_exceeded"),
}


class ChatStream:
    """A stream of `chat.completion.chunk`."""

    def __init__(self) -> None:
        self.headers = {"content-type": "text/event-stream", **REQUEST_ID}

    def feed(self, step: Head | Said | Wait) -> bytes:
        match step:
            case Text(said):
                return event(_choice({"content": said}))
            case Reasoning(said):
                return event(_choice({"reasoning_content": said}))
            case CallDelta():
                return event(_choice({"tool_calls": [_call_delta(step)]}))
            case Finish(reason):
                return event(_choice({}, reason))
            case Usage():
                return event({"choices": [], "usage": _usage(step)})
            case Blank():
                return event(_choice({}))
            case Done():
                return b"data: [DONE]\n\n"
            case Ping():
                return b": ping\n\n"
            case Event(fields):
                return b"data: " + fields + b"\n\n"
            case Fault():
                return b"data: " + fault(step) + b"\n\n"
            case Raw(raw):
                return raw
            case Head() | Wait():
                return b""

    def close(self) -> bytes:
        return b""


def event(fields: dict[str, Any]) -> bytes:
    """One chunk of the Chat Completions protocol."""
    common = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
    }
    return b"data: " + json.dumps({**common, **fields}).encode() + b"\n\n"


def whole(answer: Answer) -> bytes:
    """The same answer as one `chat.completion`."""
    parts = answer.parts
    thought = "".join(part.said for part in parts if part.kind == "reasoning")
    said = "".join(part.said for part in parts if part.kind == "text")
    calls = [_whole_call(part) for part in parts if part.kind == "call"]
    message: dict[str, Any] = {"role": "assistant", "content": said or None if calls else said}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": answer.finish}],
            **({"usage": _usage(answer.usage)} if answer.usage else {}),
        }
    ).encode()


def refusal(message: str) -> bytes:
    """The body of an error status."""
    return json.dumps({"error": {"message": message, "type": "scripted", "code": None}}).encode()


def fault(step: Fault) -> bytes:
    kind, code = kind_of(step.code)
    return json.dumps({"error": {"message": step.message, "type": kind, "code": code}}).encode()


def kind_of(code: int) -> tuple[str, str]:
    """How OpenAI names an error: its type and its code."""
    return _KINDS.get(code, ("server_error", "server_error"))


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _call_delta(step: CallDelta) -> dict[str, Any]:
    functions = (("name", step.name), ("arguments", step.arguments))
    fields: tuple[tuple[str, Any], ...] = (("index", step.index), ("id", step.id))
    call: dict[str, Any] = {k: v for k, v in fields if v is not None}
    function = {k: v for k, v in functions if v is not None}
    return {**call, "type": "function", "function": function}


def _whole_call(part: Part) -> dict[str, Any]:
    named = {} if part.name is None else {"name": part.name}
    identified = {} if part.id is None else {"id": part.id}
    return {**identified, "type": "function", "function": {**named, "arguments": part.said}}


def _usage(counted: Usage) -> dict[str, Any]:
    details = {"prompt_tokens_details": {"cached_tokens": counted.cached}}
    return {
        "prompt_tokens": counted.input,
        "completion_tokens": counted.output,
        "total_tokens": counted.input + counted.output,
        **(details if counted.cached is not None else {}),
    }
