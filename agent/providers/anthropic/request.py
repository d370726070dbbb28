"""Sans-IO: request bodies of the Messages API."""

import re
from typing import Any

import msgspec

from agent.answer.reasoning_blocks import decode_reasoning
from agent.model.contract import ModelRequest, ToolSchema
from agent.model.known_models import model_facts
from agent.providers.anthropic.dialect import (
    BINDING_BETA,
    AnthropicDialect,
    ThinkingMode,
    ThinkingOffMode,
)
from agent.providers.schemas import simplify_schema
from agent.request.pictures import PICTURE_OMITTED
from sessions.records import Message, MessageRole, ToolCall

# Names of the module, because every row of a history is compared.
_ASSISTANT, _TOOL = MessageRole.ASSISTANT, MessageRole.TOOL

DEFAULT_OUTPUT_TOKENS = 8192
"""Output limit for unknown models, because the protocol requires one."""

_THINKING_BUDGETS = {
    "low": (4096, 4),
    "medium": (10240, 8),
    "high": (24576, 10),
    "xhigh": (49152, 12),
}
"""Thinking budget by effort: the maximum in tokens and in sixteenths of the output limit.

The second number keeps the efforts apart under a low output limit and leaves room for an answer.
"""
_MIN_THINKING_BUDGET = 1024
_NO_THINKING_EFFORTS = frozenset({"none", "minimal"})
_MAX_TEMPERATURE = 1.0

ContentBlock = dict[str, Any]


def encode_request(request: ModelRequest, dialect: AnthropicDialect) -> bytes:
    """Encode the body of a request."""
    limit = _output_limit(request)
    thinking = _thinking(request, dialect, limit)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": limit,
        "stream": request.stream,
        "messages": _encode_messages(request, dialect, replay=thinking.on and dialect.replay),
    }
    if request.system.strip():
        body["system"] = request.system
    if thinking.config is not None:
        body["thinking"] = thinking.config
    elif request.temperature is not None and dialect.temperature:
        body["temperature"] = min(request.temperature, _MAX_TEMPERATURE)
    elif request.sampling.top_p is not None and dialect.temperature:
        body["top_p"] = request.sampling.top_p
    if output := _output_config(request, thinking.effort, dialect):
        body["output_config"] = output
    if request.sampling.stop:
        body["stop_sequences"] = list(request.sampling.stop)
    if request.sampling.user is not None:
        body["metadata"] = {"user_id": request.sampling.user}
    if dialect.cache:
        body["cache_control"] = {"type": "ephemeral"}
    return msgspec.json.encode(body | _encode_tools(request, dialect))


def _output_config(
    request: ModelRequest, effort: str | None, dialect: AnthropicDialect
) -> dict[str, Any]:
    output: dict[str, Any] = {}
    if effort is not None and dialect.effort:
        output["effort"] = effort
    wanted = request.answer_format
    if wanted and wanted.schema is not None and dialect.formats:
        output["format"] = {"type": "json_schema", "schema": wanted.schema}
    return output


def beta_header(request: ModelRequest, dialect: AnthropicDialect) -> str:
    """Return the value of the header `anthropic-beta`; empty if the request uses no beta feature."""
    thinking = _thinking(request, dialect, _output_limit(request))
    return BINDING_BETA if "block_binding" in (thinking.config or {}) else ""


def _output_limit(request: ModelRequest) -> int:
    return (
        request.max_output_tokens or model_facts(request.model).max_output or DEFAULT_OUTPUT_TOKENS
    )


# --- thinking --------------------------------------------------------------------------------


class _ThinkingConfig(msgspec.Struct, frozen=True):
    config: dict[str, Any] | None = None
    effort: str | None = None
    on: bool = False


_THINKING_OFF = _ThinkingConfig()


def _thinking(request: ModelRequest, dialect: AnthropicDialect, limit: int) -> _ThinkingConfig:
    effort = request.reasoning_effort
    if not dialect.think:
        return _THINKING_OFF
    if effort in _NO_THINKING_EFFORTS:
        return _thinking_when_off(dialect)
    if dialect.form is ThinkingMode.NONE or effort is None:
        config = (
            _adaptive_config(dialect)
            if dialect.unasked and dialect.form is ThinkingMode.ADAPTIVE
            else None
        )
        return _ThinkingConfig(config, on=dialect.unasked)
    if dialect.form is ThinkingMode.ADAPTIVE:
        known = effort != "xhigh" or dialect.xhigh
        return _ThinkingConfig(_adaptive_config(dialect), effort if known else "high", on=True)
    max_tokens, sixteenths = _THINKING_BUDGETS[effort]
    budget = min(max_tokens, limit * sixteenths // 16)
    if budget < _MIN_THINKING_BUDGET or not _can_begin_thinking(request, dialect):
        return _THINKING_OFF
    return _ThinkingConfig({"type": "enabled", "budget_tokens": budget}, on=True)


def _thinking_when_off(dialect: AnthropicDialect) -> _ThinkingConfig:
    match dialect.off:
        case ThinkingOffMode.SILENT:
            return _THINKING_OFF
        case ThinkingOffMode.DISABLED | ThinkingOffMode.BETWEEN_TOOLS:
            return _ThinkingConfig({"type": dialect.off.value})
        case ThinkingOffMode.LOW:
            return _ThinkingConfig(_adaptive_config(dialect), "low", on=True)


def _adaptive_config(dialect: AnthropicDialect) -> dict[str, Any]:
    config: dict[str, Any] = {"type": "adaptive"}
    if dialect.summary:
        # Without a summary the stream is silent while the model thinks, like a dead connection.
        config["display"] = "summarized"
    if dialect.binding:
        # Messages before earlier thinking may have changed: summaries, notes, other tools.
        config["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return config


def _can_begin_thinking(request: ModelRequest, dialect: AnthropicDialect) -> bool:
    """True unless the request continues an answer that did not begin with thinking.

    The protocol rejects a thinking budget for such a continuation.
    """
    last = next((row for row in reversed(request.messages) if row.role == _ASSISTANT), None)
    if last is None:
        return True
    if not last.tool_calls:
        return last is not request.messages[-1]
    return dialect.replay and bool(_reasoning_blocks(last, request.model, dialect))


def _reasoning_blocks(row: Message, model: str, dialect: AnthropicDialect) -> list[ContentBlock]:
    reasoning = decode_reasoning(row.reasoning, by=f"anthropic/{model}")
    if reasoning is None:
        return []
    return [part for part in reasoning.parts if _is_complete_block(part, dialect)]


def _is_complete_block(part: ContentBlock, dialect: AnthropicDialect) -> bool:
    match part.get("type"):
        case "thinking":
            return bool(part.get("signature")) or not dialect.signed
        case "redacted_thinking":
            return bool(part.get("data"))
        case _:
            return False


# --- messages --------------------------------------------------------------------------------


def _encode_messages(
    request: ModelRequest, dialect: AnthropicDialect, *, replay: bool
) -> list[dict[str, Any]]:
    ids = _CallIds()
    messages: list[dict[str, Any]] = []
    for row in request.messages:
        is_assistant = row.role == _ASSISTANT
        blocks = _content_blocks(row, ids) + _picture_blocks(row, request, dialect)
        # A message that the model continues must not contain thinking.
        if blocks and is_assistant and replay and row is not request.messages[-1]:
            blocks = _reasoning_blocks(row, request.model, dialect) + blocks
        role = "assistant" if is_assistant else "user"
        if blocks and messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    _strip_trailing_blanks(messages)
    return messages


def _content_blocks(row: Message, ids: "_CallIds") -> list[ContentBlock]:
    """Encode a row, without empty text blocks, which the protocol rejects."""
    if row.role == _TOOL:
        result: ContentBlock = {
            "type": "tool_result",
            "tool_use_id": ids.get(row.tool_call_id or ""),
        }
        return [result | ({"content": row.content} if row.content.strip() else {})]
    text: list[ContentBlock] = (
        [{"type": "text", "text": row.content}] if row.content.strip() else []
    )
    return text + [_tool_use_block(call, ids) for call in row.tool_calls]


def _picture_blocks(
    row: Message, request: ModelRequest, dialect: AnthropicDialect
) -> list[ContentBlock]:
    """Encode a row's pictures, or a note in their place if they are omitted."""
    pictures = [request.pictures[file.path] for file in row.files if file.path in request.pictures]
    if pictures and not (dialect.pictures and dialect.these_pictures):
        return [{"type": "text", "text": PICTURE_OMITTED}]
    return [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": picture.media_type, "data": picture.data},
        }
        for picture in pictures
    ]


def _tool_use_block(call: ToolCall, ids: "_CallIds") -> ContentBlock:
    return {
        "type": "tool_use",
        "id": ids.get(call.id),
        "name": _sanitize_name(call.name) or "unnamed",
        "input": _raw_object(call.arguments),
    }


def _raw_object(arguments: str) -> msgspec.Raw:
    """Return the arguments unchanged if they are an object, else `{}`: the protocol needs an object."""
    raw = arguments.encode()
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return msgspec.Raw(b"{}")
    return msgspec.Raw(raw)


def _strip_trailing_blanks(messages: list[dict[str, Any]]) -> None:
    """Strip the text that the model continues, because the protocol rejects trailing white space."""
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last["type"] == "text":
            last["text"] = last["text"].rstrip()


class _CallIds:
    """Call ids restricted to the characters that the protocol allows, and still unique."""

    def __init__(self) -> None:
        self._by_call_id: dict[str, str] = {}
        self._used: set[str] = set()

    def get(self, call_id: str) -> str:
        if call_id not in self._by_call_id:
            base = _sanitize_name(call_id) or "call"
            unique, number = base, 2
            while unique in self._used:
                unique, number = f"{base}_{number}", number + 1
            self._used.add(unique)
            self._by_call_id[call_id] = unique
        return self._by_call_id[call_id]


def _sanitize_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


# --- tools -----------------------------------------------------------------------------------


def _encode_tools(request: ModelRequest, dialect: AnthropicDialect) -> dict[str, Any]:
    if request.tools:
        tools = [_encode_tool(tool, dialect) for tool in request.tools]
        return {"tools": tools, **_tool_options(request, dialect)}
    called = {
        _sanitize_name(call.name) or "unnamed"
        for row in request.messages
        for call in row.tool_calls
    }
    if not called:
        return {}
    # The protocol rejects a history with calls unless at least one tool is described.
    described = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(called)]
    return {"tools": described, "tool_choice": {"type": "none"}}


def _tool_options(request: ModelRequest, dialect: AnthropicDialect) -> dict[str, Any]:
    choice: dict[str, Any] = {}
    thinking = _thinking(request, dialect, _output_limit(request)).config or {}
    # The protocol rejects a forced call together with thinking; then the offered tools have to do.
    thinks = thinking.get("type", "disabled") != "disabled"
    if request.tool_choice and dialect.forced and not thinks:
        name = request.tool_choice.name
        choice = {"type": "tool", "name": name} if name else {"type": "any"}
    if request.parallel_tool_calls is not None:
        choice = {
            **(choice or {"type": "auto"}),
            "disable_parallel_tool_use": not request.parallel_tool_calls,
        }
    return {"tool_choice": choice} if choice else {}


def _encode_tool(tool: ToolSchema, dialect: AnthropicDialect) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters if dialect.schemas else simplify_schema(tool.parameters),
    }
    return described | ({"eager_input_streaming": True} if dialect.eager else {})
