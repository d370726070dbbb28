from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.reasoning_blocks import (
    ReasoningBlocks,
    decode_reasoning,
    encode_reasoning,
    merge_part,
)

SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s1g"}


@pytest.mark.parametrize(
    "thoughts",
    [
        ReasoningBlocks("anthropic/m", "hm", (SIGNED,)),
        ReasoningBlocks("anthropic/m", "hm"),
        ReasoningBlocks(
            "openai-responses/m", parts=({"type": "reasoning", "encrypted_content": "x"},)
        ),
    ],
)
def test_reasoning_is_decoded_only_for_its_own_target(thoughts: ReasoningBlocks) -> None:
    row = encode_reasoning(thoughts)
    assert row is not None
    assert decode_reasoning(row, thoughts.by) == thoughts
    assert decode_reasoning(row, "openai/other") is None


def test_empty_reasoning_is_not_stored() -> None:
    assert encode_reasoning(ReasoningBlocks("openai/m")) is None
    assert decode_reasoning(None, "openai/m") is None


@pytest.mark.parametrize(
    ("pieces", "parts"),
    [
        pytest.param(
            [(0, {"type": "thinking", "thinking": "h"}), (0, {"thinking": "m"})],
            [{"type": "thinking", "thinking": "hm"}],
            id="text grows",
        ),
        pytest.param(
            [(0, {"signature": "s1"}), (0, {"signature": "g"})],
            [{"signature": "s1g"}],
            id="a signature grows",
        ),
        pytest.param(
            [(0, {"type": "thinking"}), (0, {"type": "redacted"})],
            [{"type": "redacted"}],
            id="other fields are replaced",
        ),
        pytest.param(
            [(0, {"summary": [{"text": "a"}]}), (0, {"summary": [{"text": "b"}]})],
            [{"summary": [{"text": "b"}]}],
            id="values that are not text are replaced",
        ),
        pytest.param(
            [(0, {"text": None}), (0, {"text": "a"}), (0, {"text": None})],
            [{"text": None}],
            id="null is replaced",
        ),
        pytest.param(
            [(1, {"text": "b"}), (0, {"text": "a"}), (1, {"text": "c"})],
            [{"text": "bc"}, {"text": "a"}],
            id="parts are separated by index",
        ),
    ],
)
def test_pieces_are_merged_into_parts(
    pieces: list[tuple[int, dict[str, Any]]], parts: list[dict[str, Any]]
) -> None:
    found: dict[int, dict[str, Any]] = {}
    for index, fields in pieces:
        merge_part(found, index, fields)
    assert list(found.values()) == parts


@given(st.lists(st.text(max_size=5), min_size=1, max_size=6))
def test_the_result_does_not_depend_on_how_a_text_is_split(pieces: list[str]) -> None:
    found: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        merge_part(found, 7, {"thinking": piece})
    assert found == {7: {"thinking": "".join(pieces)}}


def test_merging_does_not_modify_earlier_pieces() -> None:
    given_fields = {"text": "a"}
    found: dict[int, dict[str, Any]] = {}
    merge_part(found, 0, given_fields)
    merge_part(found, 0, {"text": "b"})
    assert given_fields == {"text": "a"}


def test_default_values_are_not_encoded() -> None:
    assert encode_reasoning(ReasoningBlocks("m", "hm")) == msgspec.json.encode(
        {"by": "m", "text": "hm"}
    )
