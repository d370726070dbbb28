"""Sans-IO: schemas of tools, for services that make a grammar of them.

Such a service holds the model to the schema letter by letter, and refuses the whole request when a
schema says something that its grammars cannot. What is left here is the shape alone. The gate
checks a call's arguments against the schema as it was, so nothing is given up.
"""

import re
from typing import Any

SCHEMA_REFUSED = re.compile(
    r"grammar|schema conversion|unsupported (?:json )?schema|schema\b.{0,60}\bnot supported"
)
"""How services say, in lower case, that a schema is beyond them."""

_KEPT_KEYWORDS = frozenset(
    {
        *("type", "description", "properties", "required", "items", "enum", "const"),
        *("anyOf", "oneOf", "allOf", "additionalProperties", "$ref", "$defs", "definitions"),
    }
)
_SCHEMA_MAPS = frozenset({"properties", "$defs", "definitions"})
"""What holds schemas by names, which are anybody's."""


def simplify_schema(schema: Any) -> Any:  # noqa: ANN401 - JSON of others
    """Leave of a schema what every grammar can say."""
    if isinstance(schema, list):
        return [simplify_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: _simplify_value(word, said) for word, said in schema.items() if word in _KEPT_KEYWORDS
    }


def _simplify_value(word: str, said: Any) -> Any:  # noqa: ANN401
    if word in _SCHEMA_MAPS and isinstance(said, dict):
        return {name: simplify_schema(each) for name, each in said.items()}
    return said if word in {"enum", "const"} else simplify_schema(said)
