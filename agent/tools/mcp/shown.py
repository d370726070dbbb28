"""Sans-IO: what of a server's tool the model is shown. No server fills the model's window."""

from collections.abc import Mapping
from typing import Any

import msgspec

LONGEST_DESCRIPTION = 4_000  # characters
LARGEST_SCHEMA = 24_000  # bytes; beyond, what only explains is left out
LARGEST_BARE = 48_000  # bytes; beyond, the arguments are not described at all

_EXPLAINS = frozenset({"$comment", "description", "examples", "title"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_DATA = frozenset({"const", "default", "enum", "required"})


def description(text: str, server: str) -> str:
    """Shorten a description; where there is none, say whose tool it is."""
    text = text.strip() or f"A tool of {server}."
    return text if len(text) <= LONGEST_DESCRIPTION else f"{text[: LONGEST_DESCRIPTION - 1]}…"


def parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give the schema of the arguments in a form and size that every model service takes."""
    shown = {key: value for key, value in schema.items() if key != "$schema"}
    shown = {"type": "object", "properties": {}, **shown}
    try:
        if _size(shown) <= LARGEST_SCHEMA:
            return shown
        bare: dict[str, Any] = _bare(shown)
        if _size(bare) <= LARGEST_BARE:
            return bare
    except RecursionError:  # nested without end: nobody can make sense of it
        pass
    return {"type": "object", "properties": {}}


def label(schema: Mapping[str, Any]) -> str:
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


def _bare(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _part(key, value) for key, value in schema.items() if key not in _EXPLAINS}


def _part(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON
    if key in _DATA:
        return value
    if key in _NAMED and isinstance(value, dict):
        return {name: _bare(each) for name, each in value.items()}
    return _bare(value)
