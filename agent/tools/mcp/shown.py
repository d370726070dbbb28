"""Sans-IO: descriptions and schemas for the model, limited so that no server fills the context."""

from collections.abc import Mapping
from typing import Any

import msgspec

from sessions.values.frames import frame_notes, neutralize_output, to_single_line
from sessions.values.text import shorten

MAX_DESCRIPTION_LENGTH = 4_000
_MAX_INSTRUCTIONS_LENGTH = 2_000
_MAX_PROGRESS = 80  # characters
_MAX_SCHEMA_BYTES = 24_000  # a larger schema loses its descriptions
_MAX_BARE_SCHEMA_BYTES = 48_000  # a schema that is larger even without them is dropped

_EXPLANATORY_KEYS = frozenset({"$comment", "description", "examples", "title"})
_SCHEMA_MAP_KEYS = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
_DATA_KEYS = frozenset({"const", "default", "enum", "required"})


def shorten_description(text: str, server: str) -> str:
    """Neutralize and shorten a description; replace an empty one by the name of the server."""
    text = neutralize_output(text).strip() or f"A tool of {server}."
    return shorten(text, MAX_DESCRIPTION_LENGTH)


def shrink_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema in a form and size that all model services accept."""
    shown = {key: value for key, value in schema.items() if key != "$schema"}
    shown = {"type": "object", "properties": {}, **shown}
    try:
        shown = {key: _neutralize_explanations(value, key) for key, value in shown.items()}
        if _size(shown) <= _MAX_SCHEMA_BYTES:
            return shown
        bare: dict[str, Any] = _strip_explanations(shown)
        if _size(bare) <= _MAX_BARE_SCHEMA_BYTES:
            return bare
    except RecursionError:  # nested too deeply
        pass
    return {"type": "object", "properties": {}}


def describe_progress(progress: float, total: float | None, message: str | None) -> str:
    """Return the progress of a call on one line: a share if the total is known, and the message."""
    share = ""
    if total and 0 <= progress <= total:
        share = f"{progress / total:.0%}"
    return shorten(" ".join(filter(None, (share, to_single_line(message or "")))), _MAX_PROGRESS)


def quote_instructions(server: str, text: str) -> str:
    """Return the notes of a server for the system prompt, in a frame that they cannot leave."""
    return frame_notes(server, shorten(text.strip(), _MAX_INSTRUCTIONS_LENGTH))


def describe_missing_login(server: str) -> str:
    """Return the note of the system prompt about a server at which the person has no login."""
    return (
        f"The tools of the MCP server {server} are not available: the user has not logged in there. "
        f"If a request needs them, tell the user to send /mcp login {server} (on Slack: !mcp login "
        f"{server})."
    )


def label_argument(schema: Mapping[str, Any]) -> str:
    """Return the argument that describes a call best to people: the first required string."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return ""
    for name, property_ in properties.items():
        if name in required and isinstance(property_, dict) and property_.get("type") == "string":
            return str(name)
    return ""


def _size(schema: Mapping[str, Any]) -> int:
    return len(msgspec.json.encode(schema))


def _neutralize_explanations(schema: Any, key: str = "") -> Any:  # noqa: ANN401 - any JSON
    """Return the schema with neutralized texts for the model; names and values stay exact."""
    if isinstance(schema, str):
        return neutralize_output(schema) if key in _EXPLANATORY_KEYS else schema
    if isinstance(schema, list):
        return [_neutralize_explanations(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value if name in _DATA_KEYS else _neutralize_explanations(value, name)
        for name, value in schema.items()
    }


def _strip_explanations(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(schema, list):
        return [_strip_explanations(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _strip_value(key, value)
        for key, value in schema.items()
        if key not in _EXPLANATORY_KEYS
    }


def _strip_value(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON
    if key in _DATA_KEYS:
        return value
    if key in _SCHEMA_MAP_KEYS and isinstance(value, dict):
        return {name: _strip_explanations(item) for name, item in value.items()}
    return _strip_explanations(value)
