"""Sans-IO: simplified tool schemas for services that compile schemas into grammars.

Such a service constrains the model's output with the grammar, and rejects the whole request for a
schema with an unsupported keyword. A simplified schema keeps only types and structure. Validation
does not get weaker: the tool gate checks arguments against the full schema.
"""

import re
from typing import Any

SCHEMA_REFUSED = re.compile(
    r"grammar|schema conversion|unsupported (?:json )?schema|schema\b.{0,60}\bnot supported"
)
"""Matches lower-case error messages about an unsupported schema."""

FORMAT_REFUSED = re.compile(
    r"response_format|json_schema|json_object|text\.format|structured output|grammar"
)
"""Matches lower-case error messages about a format of the answer."""

EFFORT_REFUSED = re.compile(r"reasoning[._ ]?effort|xhigh")
"""Matches lower-case error messages about a reasoning effort."""

_KEPT_KEYWORDS = frozenset(
    {
        *("type", "description", "properties", "required", "items", "enum", "const"),
        *("anyOf", "oneOf", "allOf", "additionalProperties", "$ref", "$defs", "definitions"),
    }
)
_SCHEMA_MAPS = frozenset({"properties", "$defs", "definitions"})
"""Keywords whose value maps arbitrary names to schemas."""


def simplify_schema(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a copy of the schema with only the keywords that every grammar supports."""
    if isinstance(schema, list):
        return [simplify_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        keyword: _simplify_value(keyword, value)
        for keyword, value in schema.items()
        if keyword in _KEPT_KEYWORDS
    }


def _simplify_value(keyword: str, value: Any) -> Any:  # noqa: ANN401
    if keyword in _SCHEMA_MAPS and isinstance(value, dict):
        return {name: simplify_schema(item) for name, item in value.items()}
    return value if keyword in {"enum", "const"} else simplify_schema(value)
