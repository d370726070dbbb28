"""Sans-IO: what of a server's tool the model is shown. No server fills the model's window."""

from collections.abc import Mapping
from typing import Any

import msgspec

MAX_DESCRIPTION_LENGTH = 4_000  # characters
MAX_SCHEMA_BYTES = 24_000  # bytes; beyond, what only explains is left out
MAX_BARE_SCHEMA_BYTES = 48_000  # bytes; beyond, the arguments are not described at all

_EXPLANATORY_KEYS = frozenset({"$comment", "description", "examples", "title"})
_SCHEMA_MAP_KEYS = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
_DATA_KEYS = frozenset({"const", "default", "enum", "required"})


def shorten_description(text: str, server: str) -> str:
    """Shorten a description; where there is none, say whose tool it is."""
    text = text.strip() or f"A tool of {server}."
    return text if len(text) <= MAX_DESCRIPTION_LENGTH else f"{text[: MAX_DESCRIPTION_LENGTH - 1]}…"


def shrink_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give the schema of the arguments in a form and size that every model service takes."""
    shown = {key: value for key, value in schema.items() if key != "$schema"}
    shown = {"type": "object", "properties": {}, **shown}
    try:
        if _size(shown) <= MAX_SCHEMA_BYTES:
            return shown
        bare: dict[str, Any] = _strip_explanations(shown)
        if _size(bare) <= MAX_BARE_SCHEMA_BYTES:
            return bare
    except RecursionError:  # nested without end: nobody can make sense of it
        pass
    return {"type": "object", "properties": {}}


def label_argument(schema: Mapping[str, Any]) -> str:
    """Name the argument that tells a person best what a call is about: the first needed text."""
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


def _strip_explanations(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(schema, list):
        return [_strip_explanations(each) for each in schema]
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
        return {name: _strip_explanations(each) for name, each in value.items()}
    return _strip_explanations(value)
