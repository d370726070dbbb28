"""OpenAI's Responses: output items one after the other, between response.created and .completed."""

import json
from typing import Any

from tests.fakes.dialects.chat import REQUEST_ID, kind_of
from tests.fakes.dialects.parts import Part, Parts, as_event
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
    cannot_say,
)
from tests.fakes.dialects.whole import Answer

# status, and why the response is incomplete
_ENDS = {
    "stop": ("completed", None),
    "tool_calls": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "content_filter": ("incomplete", "content_filter"),
    "refusal": ("incomplete", "content_filter"),
    "failed": ("failed", None),
}
_PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}
_DELTAS = {
    "text": "response.output_text",
    "reasoning": "response.reasoning_summary_text",
    "call": "response.function_call_arguments",
}


class ResponsesStream:
    """The events of one response."""

    def __init__(self) -> None:
        self.headers = {"content-type": "text/event-stream; charset=utf-8", **REQUEST_ID}
        self._number = -1  # of the last event
        self._parts = Parts()
        self._output: list[dict[str, Any]] = []
        self._open: Part | None = None
        self._usage: Usage | None = None
        self._owed: str | None = None  # the reason is known, but not yet what it all cost

    def feed(self, step: Head | Said | Wait) -> bytes:
        if isinstance(step, Usage):
            self._usage = step
            return self.close()
        return self.close() + self._write(step)

    def close(self) -> bytes:
        reason, self._owed = self._owed, None
        if reason is None:
            return b""
        ended = _response(self._output, reason, self._usage)
        return self._event(f"response.{ended['status']}", response=ended)

    def _write(self, step: Head | Said | Wait) -> bytes:
        match step:
            case Head(bare):
                return b"" if bare else self._so_far("created") + self._so_far("in_progress")
            case Text() | Reasoning() | CallDelta():
                return self._piece(step)
            case Finish(reason):
                return self._finish(step, reason)
            case Blank():
                return self._so_far("in_progress")
            case Ping():
                return b": ping\n\n"
            case Event(fields):
                return as_event(fields)
            case Fault(message, code):
                return self._event("error", code=kind_of(code)[1], message=message, param=None)
            case Raw(raw):
                return raw
            case Done() | Wait() | Usage():
                return b""

    def _finish(self, step: Finish, reason: str) -> bytes:
        if reason not in _ENDS:
            raise cannot_say(step, f"known are {', '.join(_ENDS)}")
        self._owed = reason
        return self._end_item(_ENDS[reason][0])

    def _so_far(self, name: str) -> bytes:
        return self._event(f"response.{name}", response=_response(self._output, None, None))

    def _piece(self, step: Text | Reasoning | CallDelta) -> bytes:
        part, began = self._parts.take_in_order(step)
        begun = self._begin_item(part) if began or part is not self._open else b""
        piece = step.arguments if isinstance(step, CallDelta) else step.said
        if piece is None:
            return begun
        more: dict[str, Any] = {"logprobs": []} if part.kind == "text" else {}
        return begun + self._inside(f"{_DELTAS[part.kind]}.delta", part, delta=piece, **more)

    def _begin_item(self, part: Part) -> bytes:
        ended = self._end_item("completed")
        self._open = part
        item = _item(part, len(self._output), "in_progress", "")
        added = self._event("response.output_item.added", output_index=len(self._output), item=item)
        return ended + added + self._part_event("added", part, "")

    def _end_item(self, status: str) -> bytes:
        part, self._open = self._open, None
        if part is None:
            return b""
        field = "arguments" if part.kind == "call" else "text"
        more: dict[str, Any] = {field: part.said}
        if part.kind == "text":
            more["logprobs"] = []
        said = self._inside(f"{_DELTAS[part.kind]}.done", part, **more)
        said += self._part_event("done", part, part.said)
        index = len(self._output)
        self._output.append(_item(part, index, status, part.said))
        return said + self._event(
            "response.output_item.done", output_index=index, item=self._output[-1]
        )

    def _part_event(self, name: str, part: Part, said: str) -> bytes:
        match part.kind:
            case "text":
                return self._inside(f"response.content_part.{name}", part, part=_text_part(said))
            case "reasoning":
                shown = {"type": "summary_text", "text": said}
                return self._inside(f"response.reasoning_summary_part.{name}", part, part=shown)
            case "call":
                return b""

    def _inside(self, kind: str, opened: Part, /, **fields: Any) -> bytes:
        """An event of the item that is open."""
        index = len(self._output)
        place = {"text": {"content_index": 0}, "reasoning": {"summary_index": 0}, "call": {}}
        where = {"item_id": _item_id(opened, index), "output_index": index, **place[opened.kind]}
        return self._event(kind, **where, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        data = json.dumps({"type": kind, "sequence_number": self._number, **fields})
        return f"event: {kind}\ndata: {data}\n\n".encode()


def whole(answer: Answer) -> bytes:
    """The same answer as one response."""
    reason = answer.finish
    if reason is not None and reason not in _ENDS:
        raise cannot_say(Finish(reason), f"known are {', '.join(_ENDS)}")
    last = "in_progress" if reason is None else _ENDS[reason][0]
    items = [
        _item(part, index, last if index == len(answer.parts) - 1 else "completed", part.said)
        for index, part in enumerate(answer.parts)
    ]
    return json.dumps(_response(items, reason, answer.usage)).encode()


def _response(
    output: list[dict[str, Any]], reason: str | None, counted: Usage | None
) -> dict[str, Any]:
    status, why = ("in_progress", None) if reason is None else _ENDS[reason]
    failed = {"code": "server_error", "message": "scripted error"}
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 1,
        "model": "scripted",
        "error": failed if status == "failed" else None,
        "incomplete_details": {"reason": why} if why else None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": _counted(counted) if counted else None,
        "output": list(output),
        "status": status,
    }


def _counted(counted: Usage) -> dict[str, Any]:
    return {
        "input_tokens": counted.input,
        "input_tokens_details": {"cached_tokens": counted.cached or 0, "cache_write_tokens": 0},
        "output_tokens": counted.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counted.input + counted.output,
    }


def _item(part: Part, index: int, status: str, said: str) -> dict[str, Any]:
    begun = status == "in_progress" and not said
    item: dict[str, Any] = {"id": _item_id(part, index), "status": status}
    match part.kind:
        case "text":
            content = [] if begun else [_text_part(said)]
            return {**item, "type": "message", "role": "assistant", "content": content}
        case "reasoning":
            summary = [] if begun else [{"type": "summary_text", "text": said}]
            sealed = "" if begun else f"sealed-{index}"
            return {**item, "type": "reasoning", "summary": summary, "encrypted_content": sealed}
        case "call":
            named = {"call_id": part.call_id, "name": part.call_name}
            return {**item, "type": "function_call", **named, "arguments": said}


def _item_id(part: Part, index: int) -> str:
    return f"{_PREFIXES[part.kind]}_{index}"


def _text_part(said: str) -> dict[str, Any]:
    return {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
