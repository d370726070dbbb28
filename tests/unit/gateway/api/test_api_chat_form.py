"""Decoding of `/v1/chat/completions` requests."""

import base64
import contextlib
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.answer_options import ClientToolChoice, ToolMode
from gateway.http.api.asked import ApiRequest
from gateway.http.api.chat.body import read_request
from gateway.http.api.failures import RequestRefused
from gateway.http.api.pictures import MAX_PICTURE_BYTES, read_picture
from sessions.records import ToolCall


def asked(*messages: Any, **more: Any) -> ApiRequest:
    return read_request(msgspec.json.encode({"messages": messages, **more}))


def by(role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}}


def test_last_message_is_the_request_and_the_others_are_history() -> None:
    found = asked(by("system", "s"), by("user", "one"), by("assistant", "two"), by("user", "three"))
    assert found.messages[-1].text == "three"
    assert [(each.role, each.text) for each in found.messages[:-1]] == [
        ("user", "one"),
        ("assistant", "two"),
    ]
    assert found.system_prompt == "s"


def test_tool_calls_and_results_are_part_of_the_history() -> None:
    found = asked(
        by("user", "one"),
        by("assistant", None, tool_calls=[CALL]),
        by("tool", "result", tool_call_id="c1"),
        by("user", "two"),
    )
    _, call, result, _ = found.messages
    assert call.tool_calls == (ToolCall("c1", "read", '{"a":1}'),)
    assert (result.role, result.text, result.tool_call_id) == ("tool", "result", "c1")


def test_text_parts_are_joined_by_line_breaks() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert asked(by("user", parts)).messages[-1].text == "a\nb"


def test_nul_characters_are_replaced() -> None:
    assert asked(by("user", "a\0b")).messages[-1].text == "a\N{REPLACEMENT CHARACTER}b"


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert asked(by("user", "x"), max_tokens=5).max_output_tokens == 5
    found = asked(by("user", "x"), max_tokens=5, max_completion_tokens=7)
    assert found.max_output_tokens == 7


FUNCTION = {"type": "function", "function": {"name": "read", "description": "Read."}}


def test_tools_and_their_choice_are_decoded() -> None:
    tools = [FUNCTION, {"type": "web_search"}]
    found = asked(by("user", "x"), tools=tools, tool_choice="required", parallel_tool_calls=False)
    (tool,) = found.options.tools
    assert (tool.name, tool.description, tool.strict) == ("read", "Read.", False)
    assert found.options.tool_choice == ClientToolChoice(mode=ToolMode.REQUIRED)
    assert found.options.parallel_tool_calls is False
    (warning,) = found.warnings
    assert "web_search" in warning


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "read"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [FUNCTION]},
        },
    ],
)
def test_a_choice_can_name_tools(choice: Any) -> None:
    found = asked(by("user", "x"), tools=[FUNCTION], tool_choice=choice)
    assert found.options.tool_choice == ClientToolChoice(mode=ToolMode.REQUIRED, names=("read",))


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{"type": "function"}], "tools[0].function"),
        ([FUNCTION, FUNCTION], "tools"),
        ([{"type": "function", "function": {"name": ""}}], "tools[0].function.name"),
    ],
)
def test_wrong_tools_are_refused(tools: Any, param: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        asked(by("user", "x"), tools=tools)
    assert refused.value.failure.param == param


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (
            {"reasoning_effort": "most"},
            "use one of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.",
            "reasoning_effort",
        ),
        ({"verbosity": "most"}, "use one of `low`, `medium`, `high`.", "verbosity"),
        ({"messages": [by("king", "x")]}, "`assistant`", "messages[0].role"),
        ({"max_tokens": 0}, "Expected a number >= 1", "max_tokens"),
        ({"temperature": "warm"}, "Expected a number or null, got `str`.", "temperature"),
    ],
)
def test_a_wrong_value_is_refused_in_words(body: Any, message: str, param: str) -> None:
    with pytest.raises(RequestRefused, match=re.escape(message)) as refused:
        read_request(msgspec.json.encode({"messages": [by("user", "x")]} | body))
    assert refused.value.failure.param == param


def test_an_option_without_effect_is_a_warning() -> None:
    found = asked(by("user", "x"), web_search_options={})
    assert found.warnings == ("`web_search_options` has no effect here.",)


def test_different_bodies_have_different_digests() -> None:
    same = asked(by("user", "x")).digest
    assert asked(by("user", "x")).digest == same
    assert asked(by("user", "y")).digest != same


@pytest.mark.parametrize("kind", ["image/png", "IMAGE/PNG", "image/png;name=a.png"])
def test_data_url_picture_is_read(kind: str) -> None:
    found = read_picture(f"data:{kind};base64,{base64.b64encode(b'abc').decode()}", "p", 3)
    assert (found.name, found.media_type, found.content) == ("picture-3.png", "image/png", b"abc")


def test_oversized_picture_is_refused_with_its_size() -> None:
    url = f"data:image/png;base64,{base64.b64encode(bytes(MAX_PICTURE_BYTES + 1)).decode()}"
    with pytest.raises(RequestRefused, match="too large") as error:
        read_picture(url, "p", 1)
    assert error.value.failure.status == 400


_plain = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3)
_values = _plain | st.lists(_plain, max_size=2) | st.dictionaries(st.just("text"), _plain)
_keys = st.sampled_from(
    ["messages", "model", "stream", "tools", "n", "stream_options", "max_tokens"]
)
_message = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "system", "assistant", "tool", "x"]) | _values,
        "content": _values | st.lists(st.fixed_dictionaries({"type": _values, "text": _values})),
        "tool_calls": _values,
    },
)


@settings(deadline=None)
@given(st.dictionaries(_keys, _values) | st.builds(lambda m: {"messages": m}, st.lists(_message)))
def test_any_json_body_is_decoded_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RequestRefused):
        last = read_request(msgspec.json.encode(body)).messages[-1]
        assert last.text.strip() or last.role == "tool"


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(content: bytes) -> None:
    with pytest.raises(RequestRefused):
        read_request(content)
