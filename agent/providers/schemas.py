"""Sans-IO: schemas of tools, for services that make a grammar of them.

Such a service holds the model to the schema letter by letter, and refuses the whole request when a
schema says something that its grammars cannot. What is left here is the shape alone. The gate
checks a call's arguments against the schema as it was, so nothing is given up.
"""

import re
from typing import Any

GRAMMAR = re.compile(
    r"grammar|schema conversion|unsupported (?:json )?schema|schema\b.{0,60}\bnot supported"
)
"""How services say, in lower case, that a schema is beyond them."""

_SHAPE = frozenset(
    {
        *("type", "description", "properties", "required", "items", "enum", "const"),
        *("anyOf", "oneOf", "allOf", "additionalProperties", "$ref", "$defs", "definitions"),
    }
)
_NAMED = frozenset({"properties", "$defs", "definitions"})
"""What holds schemas by names, which are anybody's."""


def shape_of(schema: Any) -> Any:  # noqa: ANN401 - JSON of others
    """Leave of a schema what every grammar can say."""
    if isinstance(schema, list):
        return [shape_of(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {word: _part(word, said) for word, said in schema.items() if word in _SHAPE}


def _part(word: str, said: Any) -> Any:  # noqa: ANN401
    if word in _NAMED and isinstance(said, dict):
        return {name: shape_of(each) for name, each in said.items()}
    return said if word in {"enum", "const"} else shape_of(said)
