from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.providers.schemas import SCHEMA_REFUSED, simplify_schema

RICH: dict[str, Any] = {
    "type": "object",
    "title": "Search",
    "properties": {
        "pattern": {"type": "string", "pattern": "\\d+", "format": "regex", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1, "default": 5, "description": "How many."},
        "format": {"enum": ["pattern", {"format": "x"}]},
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}, "maxItems": 3},
        "either": {"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
    },
    "required": ["pattern"],
    "additionalProperties": False,
    "$defs": {"Place": {"type": "object", "properties": {"title": {"type": "string"}}}},
}


def test_only_types_and_structure_remain_and_property_names_stay() -> None:
    assert simplify_schema(RICH) == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "limit": {"type": "integer", "description": "How many."},
            "format": {"enum": ["pattern", {"format": "x"}]},
            "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
            "either": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        },
        "required": ["pattern"],
        "additionalProperties": False,
        "$defs": {"Place": {"type": "object", "properties": {"title": {"type": "string"}}}},
    }


@pytest.mark.parametrize(
    "said",
    [
        "Failed to initialize samplers: failed to parse grammar",
        "Unable to generate parser for this template: JSON schema conversion failed: Pattern must…",
        "Failed to convert the grammar from JSON schema: …",
        "The provided JSON schema contains features not supported by xgrammar.",
        "Unsupported JSON schema: uniqueItems",
    ],
)
def test_errors_about_schemas_are_recognized(said: str) -> None:
    assert SCHEMA_REFUSED.search(said.lower())


@pytest.mark.parametrize("said", ["no such model", "Unknown field: stream_options", "image"])
def test_other_errors_do_not_match(said: str) -> None:
    assert not SCHEMA_REFUSED.search(said.lower())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "enum", "pattern", "anyOf", "x"]),
            each,
            max_size=4,
        )
    ),
)


@given(JSON)
def test_any_schema_is_simplified_and_a_simplified_one_does_not_change(schema: Any) -> None:
    assert simplify_schema(simplify_schema(schema)) == simplify_schema(schema)
