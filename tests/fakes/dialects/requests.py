"""What a request says, in no protocol's words."""

from typing import Any

import msgspec

from tests.fakes.dialects.steps import ProtocolName


class Asked(msgspec.Struct, frozen=True):
    """One request to a model.

    A message is {"role", "content", "tool_calls": [{"id", "name", "arguments"}], "tool_call_id"}
    with all of these keys; the role is user, assistant or tool. The system prompt is not among
    them. Arguments are the characters that were sent.
    """

    system: str
    messages: list[dict[str, Any]]
    tools: dict[str, Any]  # name to JSON schema
    max_tokens: int | None

    @property
    def last_user_text(self) -> str:
        said = (m["content"] for m in reversed(self.messages) if m["role"] == "user")
        return next((each for each in said if each), "")


def read_request(protocol: ProtocolName, raw: bytes) -> Asked:
    match protocol:
        case "chat":
            return _chat(msgspec.json.decode(raw))
        case "anthropic":
            return _anthropic(msgspec.json.decode(raw, type=_MessagesBody))
        case "responses":
            return _responses(msgspec.json.decode(raw))


def last_user_text(body: dict[str, Any]) -> str:
    """What the user said last, in a body of any protocol."""
    asked = _responses(body) if "input" in body else _chat({"messages": body.get("messages", [])})
    return asked.last_user_text


def _message(
    role: str,
    content: str = "",
    tool_calls: list[dict[str, str]] | None = None,
    tool_call_id: str | None = None,
) -> dict[str, Any]:
    return {
        "role": role,
        "content": content,
        "tool_calls": tool_calls or [],
        "tool_call_id": tool_call_id,
    }


def _flat(content: Any) -> str:
    """Text, whether it came as such or in parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


# --- Chat Completions ------------------------------------------------------------------------


def _chat(body: dict[str, Any]) -> Asked:
    sent = body.get("messages", [])
    instructing = {"system", "developer"}
    return Asked(
        system="\n\n".join(_flat(m["content"]) for m in sent if m["role"] in instructing),
        messages=[_chat_message(m) for m in sent if m["role"] not in instructing],
        tools={
            each["function"]["name"]: each["function"].get("parameters", {})
            for each in body.get("tools", [])
        },
        max_tokens=body.get("max_completion_tokens", body.get("max_tokens")),
    )


def _chat_message(sent: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {"id": call["id"], **{key: call["function"][key] for key in ("name", "arguments")}}
        for call in sent.get("tool_calls") or []
    ]
    return _message(sent["role"], _flat(sent.get("content")), calls, sent.get("tool_call_id"))


# --- Messages --------------------------------------------------------------------------------


class _Block(msgspec.Struct):
    type: str = "text"
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: Any = None


class _Sent(msgspec.Struct):
    role: str
    content: str | list[_Block]


class _Offered(msgspec.Struct):
    name: str
    input_schema: dict[str, Any] = {}


class _MessagesBody(msgspec.Struct):
    system: Any = None
    messages: list[_Sent] = []
    tools: list[_Offered] = []
    max_tokens: int | None = None


def _anthropic(body: _MessagesBody) -> Asked:
    return Asked(
        system=_flat(body.system),
        messages=[message for sent in body.messages for message in _anthropic_messages(sent)],
        tools={each.name: each.input_schema for each in body.tools},
        max_tokens=body.max_tokens,
    )


def _anthropic_messages(sent: _Sent) -> list[dict[str, Any]]:
    """One message, or the results of tools and what the user said besides."""
    if isinstance(sent.content, str):
        return [_message(sent.role, sent.content)]
    results = [
        _message("tool", _flat(block.content), tool_call_id=block.tool_use_id)
        for block in sent.content
        if block.type == "tool_result"
    ]
    calls = [
        {"id": block.id, "name": block.name, "arguments": bytes(block.input).decode()}
        for block in sent.content
        if block.type == "tool_use"
    ]
    said = "".join(block.text for block in sent.content)
    return [*results, _message(sent.role, said, calls)] if said or not results else results


# --- Responses -------------------------------------------------------------------------------


def _responses(body: dict[str, Any]) -> Asked:
    sent = body.get("input", [])
    items = [{"role": "user", "content": sent}] if isinstance(sent, str) else sent
    system = [body.get("instructions") or ""]
    messages: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item["role"] in {"system", "developer"}:
            system.append(_flat(item["content"]))
        elif kind == "message":
            messages.append(_message(item["role"], _flat(item["content"])))
        elif kind == "function_call":
            _add_call(messages, item)
        elif kind == "function_call_output":
            output = _flat(item["output"])
            messages.append(_message("tool", output, tool_call_id=item["call_id"]))
    return Asked(
        system="\n\n".join(filter(None, system)),
        messages=messages,
        tools={
            each["name"]: each.get("parameters", {})
            for each in body.get("tools", [])
            if each.get("type") == "function"
        },
        max_tokens=body.get("max_output_tokens"),
    )


def _add_call(messages: list[dict[str, Any]], item: dict[str, Any]) -> None:
    """A call belongs to what the assistant said just before it."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append(_message("assistant"))
    call = {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
    messages[-1]["tool_calls"].append(call)
