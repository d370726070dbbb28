"""Anthropic's Messages: content blocks one after the other, between message_start and _stop."""

import json
from typing import Any

import msgspec

from tests.fakes.dialects.parts import Part, Parts, as_event, json_object
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

REQUEST_ID = {"request-id": "req_scripted"}

_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_FIELDS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}


class MessagesStream:
    """The events of one message."""

    def __init__(self, expected: Usage) -> None:
        self.headers = {"content-type": "text/event-stream; charset=utf-8", **REQUEST_ID}
        self._usage = expected
        self._parts = Parts()
        self._index = -1
        self._open: Part | None = None
        self._reason: str | None = None
        self._owed = False  # the reason is known, but not yet what it all cost

    def feed(self, step: Head | Said | Wait) -> bytes:
        if isinstance(step, Usage):
            self._usage = step
            self._owed = False
            return self._message_delta()
        return self.close() + self._write(step)

    def close(self) -> bytes:
        owed, self._owed = self._owed, False
        return self._message_delta() if owed else b""

    def _write(self, step: Head | Said | Wait) -> bytes:
        match step:
            case Head(bare):
                return b"" if bare else _event("message_start", message=_message(self._usage))
            case Text() | Reasoning() | CallDelta():
                return self._piece(step)
            case Finish(reason):
                self._reason, self._owed = _REASONS.get(reason, reason), True
                return self._stop_block()
            case Blank():
                return self._blank()
            case Done():
                return _event("message_stop")
            case Ping():
                return _event("ping")
            case Event(fields):
                return as_event(fields)
            case Fault():
                return b"event: error\ndata: " + fault(step) + b"\n\n"
            case Raw(raw):
                return raw
            case _:
                return b""

    def _piece(self, step: Text | Reasoning | CallDelta) -> bytes:
        part, began = self._parts.take_in_order(step)
        begun = self._start_block(part) if began or part is not self._open else b""
        piece = step.arguments if isinstance(step, CallDelta) else step.said
        return begun + (b"" if piece is None else self._delta(*_FIELDS[part.kind], piece))

    def _blank(self) -> bytes:
        if self._open is None:
            return self._piece(Text(""))
        return self._delta(*_FIELDS[self._open.kind], "")

    def _start_block(self, part: Part) -> bytes:
        ended = self._stop_block()
        self._open = part
        self._index += 1
        return ended + _event("content_block_start", index=self._index, content_block=_empty(part))

    def _stop_block(self) -> bytes:
        if self._open is None:
            return b""
        thinking = self._open.kind == "reasoning"
        self._open = None
        signed = self._delta("signature_delta", "signature", _signature(self._index))
        return (signed if thinking else b"") + _event("content_block_stop", index=self._index)

    def _delta(self, kind: str, field: str, piece: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, field: piece})

    def _message_delta(self) -> bytes:
        delta = {"stop_reason": self._reason, "stop_sequence": None}
        return _event("message_delta", delta=delta, usage=_counted(self._usage))


def whole(answer: Answer) -> bytes:
    """The same answer as one message."""
    content = [_block(part, index) for index, part in enumerate(answer.parts)]
    reason = None if answer.finish is None else _REASONS.get(answer.finish, answer.finish)
    return msgspec.json.encode(
        {
            "id": "msg_scripted",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": _counted(answer.usage or Usage()),
        }
    )


def refusal(code: int, message: str) -> bytes:
    """The body of an error status."""
    kind = _ERRORS.get(code, "api_error")
    error = {"type": "error", "error": {"type": kind, "message": message}}
    return json.dumps({**error, "request_id": "req_scripted"}).encode()


def fault(step: Fault) -> bytes:
    return refusal(step.code, step.message)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _message(counted: Usage) -> dict[str, Any]:
    begun = msgspec.structs.replace(counted, output=1)
    empty = json.loads(whole(Answer((), None, begun)))
    assert isinstance(empty, dict)
    return empty


def _counted(counted: Usage) -> dict[str, Any]:
    cached = counted.cached or 0
    return {
        "input_tokens": counted.input - cached,  # here the input leaves out what was cached
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": counted.output,
    }


def _empty(part: Part) -> dict[str, Any]:
    match part.kind:
        case "text":
            return {"type": "text", "text": ""}
        case "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "call":
            return {"type": "tool_use", "id": part.call_id, "name": part.call_name, "input": {}}


def _block(part: Part, index: int) -> dict[str, Any]:
    match part.kind:
        case "text":
            return {"type": "text", "text": part.said}
        case "reasoning":
            return {"type": "thinking", "thinking": part.said, "signature": _signature(index)}
        case "call":
            # Arguments that were cut cannot be said here: the real service has an object, too.
            known = json_object(part.said) is not None
            return {**_empty(part), "input": msgspec.Raw(part.said.encode()) if known else {}}


def _signature(index: int) -> str:
    return f"signature-{index}"
