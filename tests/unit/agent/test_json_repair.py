import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.answer.json_repair import repair_json


@pytest.mark.parametrize(
    ("arguments", "strict"),
    [
        pytest.param('{"a": 1}', '{"a": 1}', id="nothing to do"),
        pytest.param('{"a": 1,}', '{"a": 1}', id="comma in object"),
        pytest.param('{"a": [1, 2 , \n]}', '{"a": [1, 2  \n]}', id="comma in list"),
        pytest.param('{"a": True}', '{"a": true}', id="True"),
        pytest.param('{"a": [False, None]}', '{"a": [false, null]}', id="False and None"),
        pytest.param('{"a": "x\ny\t\x01"}', '{"a": "x\\ny\\t\\u0001"}', id="control characters"),
        pytest.param('{"a": "\\\\\n"}', '{"a": "\\\\\\n"}', id="line feed after a backslash"),
        pytest.param('```json\n{"a": 1}\n```', '{"a": 1}', id="fence"),
        pytest.param(' ```\n{"a": 1}\n``` \n', '{"a": 1}', id="fence without language"),
        pytest.param('```{"a": 1}```', '{"a": 1}', id="fence on one line"),
        pytest.param('```json\n{"a": "```",}\n```', '{"a": "```"}', id="fence inside and outside"),
    ],
)
def test_unambiguous_mistakes_are_repaired(arguments: str, strict: str) -> None:
    assert repair_json(arguments) == strict


@pytest.mark.parametrize("inside", ["True, None", ",]", ",}", "{,", "// x", '\\",}', "\\u000a"])
def test_string_contents_are_not_changed(inside: str) -> None:
    arguments = f'{{"a": "{inside}"}}'
    assert repair_json(arguments) == arguments


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"amount": 1', id="a brace is missing"),
        pytest.param('{"a": {"b": 1,}', id="an outer brace is missing"),
        pytest.param('{"a": "x', id="a quote is missing"),
        pytest.param('{"a": "x}', id="a quote before the brace is missing"),
        pytest.param('{"a": 1}}', id="one brace too many"),
        pytest.param('{"a": "say "hi""}', id="quotes inside quotes"),
        pytest.param("{'a': 1}", id="single quotes"),
        pytest.param("{a: 1}", id="no quotes"),
        pytest.param('{"a": NaN}', id="not a number"),
        pytest.param('{"a": 1 "b": 2}', id="no comma"),
        pytest.param('{"a": [1,,]}', id="two commas"),
        pytest.param("{,}", id="a comma alone in an object"),
        pytest.param('{"a": [ , ]}', id="a comma alone in a list"),
        pytest.param('{"a": "x\\\ny"}', id="escaped raw line feed"),
        pytest.param('{"a": "\\', id="a backslash at the end"),
        pytest.param('{"a": True1}', id="unknown word"),
        pytest.param("[1,]", id="not an object"),
        pytest.param("None", id="nothing"),
        pytest.param('```json\n{"a": 1}', id="unclosed fence"),
        pytest.param('{"a": 1}\n```', id="unopened fence"),
        pytest.param('{"a": "\ud800",}', id="lone surrogate"),
        pytest.param('{"a": ' + "[" * 5000 + "]" * 5000 + ",}", id="too deep"),
        pytest.param("", id="empty"),
    ],
)
def test_ambiguous_text_is_rejected(arguments: str) -> None:
    assert repair_json(arguments) is None


def test_quotes_do_not_slow_down_the_repair() -> None:
    assert repair_json('{"a": "' + '\\"' * 200_000 + "}") is None
    assert repair_json(" " * 200_000 + "}" + "," * 200_000) is None


WORDS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(WORDS, VALUES, max_size=3)


def sloppy(value: Any) -> str:
    """Write a value with all four mistakes at once."""
    match value:
        case dict():
            members = "".join(f"{sloppy(key)}:\n{sloppy(each)} , " for key, each in value.items())
            return f"{{ {members}}}"
        case list():
            return f"[{''.join(f'{sloppy(each)},' for each in value)}]"
        case str():
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{quoted}"'
        case _:
            return repr(value)


@given(OBJECTS)
def test_mistakes_in_any_object_are_repaired_without_changing_its_meaning(
    value: dict[str, Any],
) -> None:
    strict = repair_json(f"```json\n{sloppy(value)}\n```")
    assert strict is not None
    assert json.loads(strict) == value
    assert msgspec.json.decode(strict) == value


@settings(deadline=None)  # each example is cut at every position
@given(OBJECTS, st.data())
def test_truncated_json_is_never_completed(value: dict[str, Any], data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([sloppy(value), json.dumps(value)]))
    for end in range(len(whole)):
        assert repair_json(whole[:end]) is None
        assert repair_json(f"```\n{whole[:end]}\n```") is None


@given(st.text(alphabet=st.sampled_from('{}[]",:\\ \n`1aTrueNone'), max_size=40))
def test_braces_brackets_and_quotes_are_never_added_or_removed(text: str) -> None:
    strict = repair_json(text)
    if strict is not None:
        marks = re.compile(r'[^{}\[\]"]')
        assert marks.sub("", strict) == marks.sub("", text)
        assert isinstance(json.loads(strict), dict)
