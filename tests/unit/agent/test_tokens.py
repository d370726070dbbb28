import base64
import hashlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.contract import ToolSchema
from agent.request.tokens import estimate_message, estimate_request, estimate_tokens, estimate_tool
from sessions.records import Message, ToolCall

BYTES = base64.b64encode(b"".join(hashlib.sha256(bytes([n])).digest() for n in range(60))).decode()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param("Hello world", 2, id="words"),
        pytest.param("Hello, world!", 4, id="punctuation"),
        pytest.param("if (a >= b) {", 7, id="code"),
        pytest.param("2026", 2, id="three digits are one token"),
        pytest.param("123456", 2, id="six digits are two"),
        pytest.param("a b\nc", 3, id="single blanks belong to words"),
        pytest.param("a:\n        b", 4, id="indentation is one token"),
        pytest.param("你好世界", 3, id="chinese"),
        pytest.param("Привет", 2, id="russian"),
        pytest.param("😀😀", 2, id="emoji"),
        pytest.param("x你", 2, id="two scripts"),
        pytest.param("src/platforms/core/markdown/split", 9, id="a path is words"),
        pytest.param("lib/python3/site/packages/x86", 11, id="a path with digits is words"),
        pytest.param("1" * 60, 20, id="a long number is digits"),
        pytest.param("thisIsAnIdentifierOfThirtySix", 1, id="a long name is a word"),
        pytest.param("d41d8cd98f00b204e9800998ecf8427e", 22, id="a hash is not words"),
        pytest.param('"d41d8cd98f00b204e9800998ecf8427e"', 24, id="quotes around a hash"),
        pytest.param("a" * 60, 40, id="a run too long for a word"),
        pytest.param("Users/Dev2/aXb3/Q9zz/T7uuK4", 18, id="encoded bytes with slashes"),
    ],
)
def test_tokens_are_estimated_from_typical_pieces(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_encoded_bytes_are_estimated_by_their_length() -> None:
    assert estimate_tokens(BYTES) == pytest.approx(len(BYTES) / 1.5, rel=0.1)
    assert estimate_tokens(f"key: {BYTES}.") == pytest.approx(len(BYTES) / 1.5 + 3, rel=0.1)


def test_english_prose_has_about_four_and_a_half_characters_per_token() -> None:
    prose = (
        "The harbour was quiet in the early morning, and only two fishing boats had come back. "
        "A man in a green coat counted the crates on the pier, wrote a number on each of them, "
        "and asked whether anybody had seen the lighthouse keeper since Tuesday. "
    )
    assert 4.0 < len(prose * 20) / estimate_tokens(prose * 20) < 5.5


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("The quick brown fox, 123 times. " * 2400, id="prose"),
        pytest.param("        return self._value[0] or None\n" * 2000, id="code"),
        pytest.param("a" * 75_000, id="one letter"),
        pytest.param("a1" * 37_500, id="one long run"),
        pytest.param("=" * 75_000, id="horizontal rule"),
        pytest.param(" " * 75_000, id="blanks"),
        pytest.param("a/" * 37_500, id="slashes"),
        pytest.param("你好" * 37_500, id="chinese"),
        pytest.param("Привет мир " * 7000, id="russian"),
        pytest.param("😀" * 75_000, id="emoji"),
    ],
)
def test_long_texts_are_estimated_quickly(text: str) -> None:
    def once() -> float:
        before = time.process_time()
        estimate_tokens(text)
        return time.process_time() - before

    assert min(once() for _ in range(5)) < 0.03  # takes a fifth of this on an idle machine


@given(st.text(max_size=300), st.text(max_size=300))
def test_joining_texts_hardly_changes_the_estimate(one: str, other: str) -> None:
    apart = estimate_tokens(one) + estimate_tokens(other)
    assert estimate_tokens(f"{one}\n{other}") <= apart + 1
    assert estimate_tokens(one) <= len(one) * 1.0 + 1


@given(st.text())
def test_any_text_can_be_estimated(text: str) -> None:
    assert estimate_tokens(text) >= (1 if any(c.isalnum() and c.isascii() for c in text) else 0)


def test_lone_surrogates_can_be_estimated() -> None:
    assert estimate_tokens("a \ud83d b") >= 2


def test_tool_calls_count_with_their_arguments() -> None:
    plain = Message("assistant", "I look.")
    calling = Message("assistant", "I look.", tool_calls=(ToolCall("c1", "read", '{"path":"a"}'),))
    bigger = Message("assistant", "I look.", tool_calls=(ToolCall("c1", "read", '{"path":"a b"}'),))
    sizes = [estimate_message(each) for each in (plain, calling, bigger)]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[0] >= estimate_tokens("I look.") + 3


def test_tool_definitions_count_with_their_schema() -> None:
    bare = ToolSchema("read", "Read a file.", {"type": "object"})
    more = ToolSchema("read", "Read a file.", {"type": "object", "required": ["path"]})
    assert estimate_tokens("Read a file.") < estimate_tool(bare) < estimate_tool(more)


def test_the_estimate_of_a_request_is_the_sum_of_its_parts() -> None:
    rows = (Message("user", "Hi there"), Message("assistant", "Hello"))
    tool = ToolSchema("read", "Read a file.", {"type": "object"})
    empty = estimate_request("", ())
    assert 0 < empty < 10
    alone = estimate_request("", rows)
    assert alone == empty + sum(map(estimate_message, rows))
    assert estimate_request("", rows, (tool,)) == alone + estimate_tool(tool)
    assert estimate_request("Be brief.", rows) > alone + estimate_tokens("Be brief.")
