"""Sans-IO: our request as the Messages protocol has it."""

import re
from typing import Any

import msgspec

from agent.answer.reasoning_blocks import read_thoughts
from agent.model.contract import ModelRequest, ToolSchema
from agent.model.known_models import facts
from agent.providers.anthropic.dialect import BINDING_BETA, Dialect, Form, Off
from agent.providers.schemas import shape_of
from agent.request.pictures import CANNOT_SEE
from sessions.records import Message, ToolCall

USUAL_OUTPUT = 8192
"""Output limit of a model that nothing is known of; the protocol demands one."""

_BUDGETS = {"low": (4096, 4), "medium": (10240, 8), "high": (24576, 10), "xhigh": (49152, 12)}
"""For each effort the most tokens of thought, and the most sixteenths of the output limit: each step
differs from the next one also where the limit is low, and an answer always has room.
"""
_LEAST_BUDGET = 1024
_NOT_TO_THINK = frozenset({"none", "minimal"})
_HOTTEST = 1.0

Block = dict[str, Any]


def to_body(request: ModelRequest, dialect: Dialect) -> bytes:
    """Write the body of a request."""
    limit = _output_limit(request)
    thinking = _thinking(request, dialect, limit)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": limit,
        "stream": request.stream,
        "messages": _messages(request, dialect, replay=thinking.on and dialect.replay),
    }
    if request.system.strip():
        body["system"] = request.system
    if thinking.config is not None:
        body["thinking"] = thinking.config
    elif request.temperature is not None and dialect.temperature:
        body["temperature"] = min(request.temperature, _HOTTEST)
    if thinking.effort is not None and dialect.effort:
        body["output_config"] = {"effort": thinking.effort}
    if dialect.cache:
        body["cache_control"] = {"type": "ephemeral"}
    return msgspec.json.encode(body | _tools(request, dialect))


def betas(request: ModelRequest, dialect: Dialect) -> str:
    """Name what the request uses that is not in the protocol for everybody yet."""
    thinking = _thinking(request, dialect, _output_limit(request))
    return BINDING_BETA if "block_binding" in (thinking.config or {}) else ""


def _output_limit(request: ModelRequest) -> int:
    return request.max_output_tokens or facts(request.model).max_output or USUAL_OUTPUT


# --- thinking --------------------------------------------------------------------------------


class _Thinking(msgspec.Struct, frozen=True):
    config: dict[str, Any] | None = None
    effort: str | None = None
    on: bool = False


_OFF = _Thinking()


def _thinking(request: ModelRequest, dialect: Dialect, limit: int) -> _Thinking:
    effort = request.reasoning_effort
    if not dialect.think:
        return _OFF
    if effort in _NOT_TO_THINK:
        return _switched_off(dialect)
    if dialect.form is Form.NONE or effort is None:
        config = _adaptive(dialect) if dialect.unasked and dialect.form is Form.ADAPTIVE else None
        return _Thinking(config, on=dialect.unasked)
    if dialect.form is Form.ADAPTIVE:
        known = effort != "xhigh" or dialect.xhigh
        return _Thinking(_adaptive(dialect), effort if known else "high", on=True)
    most, share = _BUDGETS[effort]
    budget = min(most, limit * share // 16)
    if budget < _LEAST_BUDGET or not _may_begin_thinking(request, dialect):
        return _OFF
    return _Thinking({"type": "enabled", "budget_tokens": budget}, on=True)


def _switched_off(dialect: Dialect) -> _Thinking:
    match dialect.off:
        case Off.SILENT:
            return _OFF
        case Off.DISABLED | Off.BETWEEN_TOOLS:
            return _Thinking({"type": dialect.off.value})
        case Off.LOW:
            return _Thinking(_adaptive(dialect), "low", on=True)


def _adaptive(dialect: Dialect) -> dict[str, Any]:
    config: dict[str, Any] = {"type": "adaptive"}
    if dialect.summary:
        # Without it nothing comes while the model thinks, as if the connection were dead.
        config["display"] = "summarized"
    if dialect.binding:
        # What stands before an earlier thought may have changed: summaries, notes, other tools.
        config["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return config


def _may_begin_thinking(request: ModelRequest, dialect: Dialect) -> bool:
    """Under a budget an answer that goes on must have begun with thinking."""
    last = next((row for row in reversed(request.messages) if row.role == "assistant"), None)
    if last is None:
        return True
    if not last.tool_calls:
        return last is not request.messages[-1]
    return dialect.replay and bool(_thoughts(last, request.model, dialect))


def _thoughts(row: Message, model: str, dialect: Dialect) -> list[Block]:
    thoughts = read_thoughts(row.reasoning, by=f"anthropic/{model}")
    return [part for part in thoughts.parts if _whole(part, dialect)] if thoughts else []


def _whole(part: Block, dialect: Dialect) -> bool:
    match part.get("type"):
        case "thinking":
            return bool(part.get("signature")) or not dialect.signed
        case "redacted_thinking":
            return bool(part.get("data"))
        case _:
            return False


# --- messages --------------------------------------------------------------------------------


def _messages(request: ModelRequest, dialect: Dialect, *, replay: bool) -> list[dict[str, Any]]:
    ids = _Ids()
    messages: list[dict[str, Any]] = []
    for row in request.messages:
        is_assistant = row.role == "assistant"
        blocks = _said(row, ids) + _shown(row, request, dialect)
        # What the model is to continue must not hold thoughts.
        if blocks and is_assistant and replay and row is not request.messages[-1]:
            blocks = _thoughts(row, request.model, dialect) + blocks
        role = "assistant" if is_assistant else "user"
        if blocks and messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    _strip_end(messages)
    return messages


def _said(row: Message, ids: "_Ids") -> list[Block]:
    """Give a row's blocks; an empty text is refused, so it is none."""
    if row.role == "tool":
        result: Block = {"type": "tool_result", "tool_use_id": ids.of(row.tool_call_id or "")}
        return [result | ({"content": row.content} if row.content.strip() else {})]
    text: list[Block] = [{"type": "text", "text": row.content}] if row.content.strip() else []
    return text + [_call(call, ids) for call in row.tool_calls]


def _shown(row: Message, request: ModelRequest, dialect: Dialect) -> list[Block]:
    """Give a row's pictures, or a word in their place."""
    found = [request.pictures[file.path] for file in row.files if file.path in request.pictures]
    if found and not (dialect.pictures and dialect.these_pictures):
        return [{"type": "text", "text": CANNOT_SEE}]
    return [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": each.media_type, "data": each.data},
        }
        for each in found
    ]


def _call(call: ToolCall, ids: "_Ids") -> Block:
    return {
        "type": "tool_use",
        "id": ids.of(call.id),
        "name": _tame(call.name) or "unnamed",
        "input": _object(call.arguments),
    }


def _object(arguments: str) -> msgspec.Raw:
    """Give the arguments' very text, if it is an object; the protocol takes nothing else."""
    raw = arguments.encode()
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return msgspec.Raw(b"{}")
    return msgspec.Raw(raw)


def _strip_end(messages: list[dict[str, Any]]) -> None:
    """A text that the model is to continue must not end in white space."""
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last["type"] == "text":
            last["text"] = last["text"].rstrip()


class _Ids:
    """Ids of calls with no other characters than the protocol takes, still all different."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._used: set[str] = set()

    def of(self, call_id: str) -> str:
        if call_id not in self._given:
            wanted = _tame(call_id) or "call"
            free, number = wanted, 2
            while free in self._used:
                free, number = f"{wanted}_{number}", number + 1
            self._used.add(free)
            self._given[call_id] = free
        return self._given[call_id]


def _tame(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


# --- tools -----------------------------------------------------------------------------------


def _tools(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    if request.tools:
        return {"tools": [_tool(tool, dialect) for tool in request.tools]}
    called = {_tame(call.name) or "unnamed" for row in request.messages for call in row.tool_calls}
    if not called:
        return {}
    # A conversation with calls in it is refused when no tool is described.
    described = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(called)]
    return {"tools": described, "tool_choice": {"type": "none"}}


def _tool(tool: ToolSchema, dialect: Dialect) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters if dialect.schemas else shape_of(tool.parameters),
    }
    return described | ({"eager_input_streaming": True} if dialect.eager else {})
