import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.answer.partial_json import PartialString, read_string_members

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        pytest.param("", {}, id="empty"),
        pytest.param(" {", {}, id="only the brace"),
        pytest.param("[1]", {}, id="not an object"),
        pytest.param('{"pa', {}, id="inside a key"),
        pytest.param('{"path"', {}, id="after a key"),
        pytest.param('{"path":', {}, id="before a value"),
        pytest.param('{"path" : "', {"path": PartialString("", complete=False)}, id="empty so far"),
        pytest.param(
            '{"path":"a', {"path": PartialString("a", complete=False)}, id="inside a value"
        ),
        pytest.param(
            '{"path":"a"', {"path": PartialString("a", complete=True)}, id="a whole value"
        ),
        pytest.param(
            '{"a":"b\\', {"a": PartialString("b", complete=False)}, id="after a backslash"
        ),
        pytest.param(
            '{"a":"b\\n', {"a": PartialString("b\n", complete=False)}, id="a whole escape"
        ),
        pytest.param(
            '{"a":"b\\u00e', {"a": PartialString("b", complete=False)}, id="inside four digits"
        ),
        pytest.param(
            '{"a":"\\ud83d', {"a": PartialString("", complete=False)}, id="half a character"
        ),
        pytest.param(
            '{"a":"\\ud83d\\', {"a": PartialString("", complete=False)}, id="half and a backslash"
        ),
        pytest.param(
            '{"a":"\\uD83d\\uDe0',
            {"a": PartialString("", complete=False)},
            id="half and a truncated escape",
        ),
        pytest.param(
            '{"a":"\\ud83d\\ude00', {"a": PartialString("😀", complete=False)}, id="both halves"
        ),
        pytest.param(
            '{"a":"x\\ude00y"', {"a": PartialString("x", complete=False)}, id="a lone second half"
        ),
        pytest.param(
            '{"a":"x\\qy"', {"a": PartialString("x", complete=False)}, id="no such escape"
        ),
        pytest.param(
            '{"a":"x\ny"', {"a": PartialString("x\ny", complete=True)}, id="a raw line end"
        ),
        pytest.param('{"n":12', {}, id="inside a number"),
        pytest.param(
            '{"n":-1.5e3,"a":"b"}', {"a": PartialString("b", complete=True)}, id="after a number"
        ),
        pytest.param(
            '{"n":[{"a":"]}"},"{"],"a":"b"', {"a": PartialString("b", complete=True)}, id="nested"
        ),
        pytest.param('{"n":{"a":"b"', {}, id="inside an inner object"),
        pytest.param('{"n":{"a":"b', {}, id="inside an inner text"),
        pytest.param('{"n":{"a":12', {}, id="inside an inner number"),
        pytest.param('{"a":"b" "c":"d"', {"a": PartialString("b", complete=True)}, id="no comma"),
        pytest.param('{"a":?,"c":"d"}', {}, id="no value"),
        pytest.param('{"a":"b","a":"c', {"a": PartialString("c", complete=False)}, id="twice"),
    ],
)
def test_received_string_members_are_read(prefix: str, found: dict[str, PartialString]) -> None:
    assert read_string_members(prefix) == found


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.booleans(), st.booleans(), st.data())
def test_any_truncation_yields_prefixes_of_the_real_values(
    true: dict[str, Any], ascii_only: bool, spaced: bool, data: st.DataObject
) -> None:
    written = json.dumps(true, ensure_ascii=ascii_only, indent=2 if spaced else None)
    cut = data.draw(st.integers(0, len(written)))
    found = read_string_members(written[:cut])
    strings = [key for key, value in true.items() if isinstance(value, str)]
    assert list(found) == strings[: len(found)]
    for key, member in found.items():
        assert true[key].startswith(member.text)
        assert not member.complete or member.text == true[key]
    assert all(member.complete for member in list(found.values())[:-1])
    if cut == len(written):
        assert {key: member.text for key, member in found.items()} == {
            key: true[key] for key in strings
        }


STYLES = {
    "plain": lambda char: json.dumps(char, ensure_ascii=False)[1:-1],
    "escaped": lambda char: "".join(
        f"\\u{int.from_bytes(pair, 'big'):04X}"
        for pair in zip(*[iter(char.encode("utf-16-be"))] * 2, strict=True)
    ),
    "short": lambda char: json.dumps(char)[1:-1],
}


@example([("😀", "escaped"), ("a", "plain")], 0.5)
@given(
    st.lists(
        st.tuples(st.characters(exclude_categories=["Cs"]), st.sampled_from(sorted(STYLES))),
        max_size=30,
    ),
    st.floats(0, 1),
)
def test_only_completely_written_characters_are_read(
    written: list[tuple[str, str]], share: float
) -> None:
    head = '{"content":"'
    pieces = [STYLES[style](char) for char, style in written]
    body = "".join(pieces)
    cut = int(share * len(body))
    there, size = "", 0
    for (char, _), piece in zip(written, pieces, strict=True):
        size += len(piece)
        if size <= cut:
            there += char
    assert read_string_members(head + body[:cut]) == {
        "content": PartialString(there, complete=False)
    }


def test_a_very_long_string_is_read_in_linear_time() -> None:
    text = 'a"\\\n😀' * 400_000
    written = json.dumps({"content": text})
    assert read_string_members(written[:-2])["content"] == PartialString(text, complete=False)
    nested = json.dumps({"n": [[text]], "a": "b"})
    assert read_string_members(nested) == {"a": PartialString("b", complete=True)}
