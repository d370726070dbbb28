"""Decoding of `/v1/responses` requests, and encoding of answers."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.usage import Usage
from gateway.http.api.asked import ApiRequest
from gateway.http.api.endings import AnswerOutcome
from gateway.http.api.failures import HttpFailure, RequestRefused
from gateway.http.api.pieces import AnswerPiece, AnswerTextPiece, ToolEndPiece, ToolStartPiece
from gateway.http.api.responses.body import read_request
from gateway.http.api.responses.form import ResponsesEncoder
from gateway.http.api.responses.input_items import encode_page
from gateway.inbound.request_options import EarlierMessage, RequestOptions
from gateway.turns.feed_events import FeedNotice
from platforms.core.contract import Address, File, InboundMessage, Sender, Text
from sessions.records import MessageRole, ToolCall
from tests.fakes.responses_order import from_wire

PICTURE = "data:image/png;base64,QUJD"


def asked(given_input: Any, **more: Any) -> ApiRequest:
    return read_request(msgspec.json.encode({"input": given_input, **more}))


def by(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "read", "arguments": '{"a":1}'}


def result(name: str, output: Any = "result") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": output}


# --- requests --------------------------------------------------------------------------------


def test_string_input_is_a_message_of_the_user() -> None:
    found = asked("one", instructions=" ", model=" m ")
    assert (found.messages[-1].role, found.messages[-1].text, found.system_prompt) == (
        "user",
        "one",
        "",
    )
    assert (found.model, len(found.messages), found.retrievable) == ("m", 1, True)


def test_last_message_is_the_request_and_the_others_are_history() -> None:
    found = asked([by("user", "one"), by("assistant", "two", type="message"), by("user", "three")])
    assert found.messages[-1].text == "three"
    assert [(each.role, each.text) for each in found.messages[:-1]] == [
        ("user", "one"),
        ("assistant", "two"),
    ]


def test_system_and_developer_messages_follow_the_instructions() -> None:
    found = asked([by("system", "a"), by("user", "x"), by("developer", "b")], instructions="i")
    assert found.system_prompt == "i\n\na\n\nb"


def test_consecutive_tool_calls_are_one_assistant_message() -> None:
    items = [
        by("user", "one"),
        by("assistant", "let me see"),
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
        call("c1"),
        call("c2"),
        result("c1"),
        result("c2", [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]),
        call("c3"),
        result("c3"),
        by("user", "two"),
    ]
    _, first, one, two, second, three, _ = asked(items).messages
    calls = tuple(ToolCall(name, "read", '{"a":1}') for name in ("c1", "c2", "c3"))
    assert (first.text, first.tool_calls) == ("let me see", calls[:2])
    assert [(each.role, each.text, each.tool_call_id) for each in (one, two, three)] == [
        ("tool", "result", "c1"),
        ("tool", "a\nb", "c2"),
        ("tool", "result", "c3"),
    ]
    assert (second.text, second.tool_calls) == ("", calls[2:])


def test_pictures_stay_with_their_messages() -> None:
    def looking(text: str) -> dict[str, Any]:
        parts = [
            {"type": "input_text", "text": text},
            {"type": "input_image", "image_url": PICTURE},
        ]
        return by("user", parts)

    found = asked([looking("a"), looking("b")])
    assert [each.name for each in found.messages[0].pictures] == ["picture-1.png"]
    assert [each.name for each in found.messages[-1].pictures] == ["picture-2.png"]


WISHES: dict[str, tuple[dict[str, Any], str, object]] = {
    "length": ({"max_output_tokens": 5}, "max_output_tokens", 5),
    "temperature": ({"temperature": 0.25}, "temperature", 0.25),
    "effort": ({"reasoning": {"effort": "high"}}, "reasoning_effort", "high"),
    "stream": ({"stream": True}, "stream", True),
    "previous": ({"previous_response_id": "resp_1"}, "previous_id", "resp_1"),
    "store false": ({"store": False}, "retrievable", False),
    "store true": ({"store": True}, "retrievable", True),
    "store null": ({"store": None}, "retrievable", True),
    "tools not used": ({"tools": [], "tool_choice": "none"}, "system_prompt", ""),
    "plain text": ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, "system_prompt", ""),
    "unknown": ({"whatever": [1], "include": ["x"], "service_tier": "auto"}, "system_prompt", ""),
    "in the background": ({"background": True}, "background", True),
    "not in the background": ({"background": False, "conversation": None}, "system_prompt", ""),
}


@pytest.mark.parametrize(("more", "name", "value"), WISHES.values(), ids=WISHES)
def test_options_are_decoded(more: dict[str, Any], name: str, value: object) -> None:
    assert getattr(asked("x", **more), name) == value


BAD = {"type": "nothing"}
REFUSED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "no input": ({}, "input", "`input` is missing"),
    "blank": ({"input": " \n"}, "input", "is empty"),
    "nothing": ({"input": []}, "input", "role `user`"),
    "no user message": ({"input": [by("assistant", "x")]}, "input", "role `user`"),
    "blank message": ({"input": [by("user", "")]}, "input", "is empty"),
    "role": ({"input": [by("king", "x")]}, "input[0].role", "king"),
    "no role": ({"input": [{"type": "message", "content": "x"}]}, "input[0].role", "role"),
    "reference": (
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        "input[0]",
        "not supported",
    ),
    "other item": ({"input": [{"type": "web_search_call"}]}, "input[0].type", "web_search_call"),
    "file": (
        {"input": [by("user", [{"type": "input_file", "file_id": "f"}])]},
        "input[0].content[0]",
        "input_file",
    ),
    "picture by id": (
        {"input": [by("user", [{"type": "input_image", "file_id": "f"}])]},
        "input[0].content[0]",
        "input_image",
    ),
    "tools": ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name", "is missing"),
    "background": ({"input": "x", "background": True, "store": False}, "background", "stored"),
    "conversation": ({"input": "x", "conversation": "c"}, "conversation", "X-Holdfast-Session"),
    "prompt": ({"input": "x", "prompt": {"id": "p"}}, "prompt", "instructions"),
    "format without name": (
        {"input": "x", "text": {"format": {"type": "json_schema"}}},
        "text.format.name",
        "is missing",
    ),
    "unusable schema": (
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "a", "schema": BAD}}},
        "text.format.schema",
        "cannot be used",
    ),
    "several answers": ({"input": "x", "n": 2}, "n", "one answer"),
    "probabilities": ({"input": "x", "top_logprobs": 3}, "top_logprobs", "one answer"),
    "length": ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", ">= 1"),
    "metadata": ({"input": "x", "metadata": {"a": "b" * 513}}, "metadata[...]", "<= 512"),
}


@pytest.mark.parametrize(("body", "param", "words"), REFUSED.values(), ids=REFUSED)
def test_unsupported_requests_are_refused_in_one_sentence(
    body: dict[str, Any], param: str | None, words: str
) -> None:
    with pytest.raises(RequestRefused) as error:
        read_request(msgspec.json.encode(body))
    failure = error.value.failure
    assert (failure.status, failure.type, failure.param) == (400, "invalid_request_error", param)
    assert words in failure.message


def test_picture_given_by_address_is_marked_for_download() -> None:
    url = "https://example.org/a"
    said = [by("user", [{"type": "input_image", "image_url": url}])]
    (picture,) = asked(said).messages[-1].pictures
    assert (picture.url, picture.content) == (url, b"")
    assert picture.param == "input[0].content[0].image_url"


def test_digest_depends_on_endpoint_and_body() -> None:
    assert asked("x").digest == asked("x").digest != asked("y").digest


_plain = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3)
_parts = st.lists(st.fixed_dictionaries({"type": st.sampled_from(["input_text", "input_image"])}))
_item = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning"]),
        "role": st.sampled_from(["user", "system", "assistant", "x"]),
        "content": _plain | _parts,
        "output": _plain | _parts,
        "call_id": _plain,
    },
)
_more = st.dictionaries(
    st.sampled_from(["model", "store", "stream", "tools", "metadata", "reasoning", "text"]), _plain
)


@settings(deadline=None)
@given(st.builds(lambda i, more: {"input": i, **more}, _plain | st.lists(_item), _more))
def test_any_json_body_is_decoded_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RequestRefused):
        last = read_request(msgspec.json.encode(body)).messages[-1]
        assert last.text.strip() or last.role is MessageRole.TOOL  # a tool may return nothing


# --- answers ---------------------------------------------------------------------------------

BROKEN = HttpFailure(status=502, message="It broke.")
ENDS = {
    "complete": (AnswerOutcome("stop"), "completed", "response.completed"),
    "too long": (AnswerOutcome("length"), "incomplete", "response.incomplete"),
    "declined": (
        AnswerOutcome("content_filter", refusal="No."),
        "incomplete",
        "response.incomplete",
    ),
    "broken": (AnswerOutcome("error", BROKEN), "failed", "response.failed"),
    "stopped": (
        AnswerOutcome("error", HttpFailure(status=409, message="Stopped.", code="stopped")),
        "cancelled",
        "response.failed",
    ),
}


def form(*, javascript: bool = False) -> ResponsesEncoder:
    return ResponsesEncoder("resp_1", "m", 7, b'{"metadata":{}}', javascript=javascript)


@pytest.mark.parametrize("texts", [(), ("one",), ("one ", "two")], ids=len)
@pytest.mark.parametrize(("outcome", "status", "name"), ENDS.values(), ids=ENDS)
def test_streamed_answer_equals_whole_answer_for_every_outcome(
    outcome: AnswerOutcome, status: str, name: str, texts: tuple[str, ...]
) -> None:
    outcome = msgspec.structs.replace(outcome, usage=Usage(3, 4, 2))
    writer = form()
    told = [
        writer.encode_start(),
        *(writer.encode_piece(AnswerTextPiece(text)) for text in texts),
        writer.encode_end(outcome),
    ]
    found = from_wire(b"".join(told))
    assert (found.text, found.ended_by) == ("".join(texts), name)
    assert found.response["status"] == status
    assert found.response == json.loads(form().encode_answer("".join(texts), outcome))
    assert found.response["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 7,
    }


def test_answer_in_progress_has_no_output() -> None:
    found = json.loads(form().encode_in_progress())
    assert (found["status"], found["output"], found["usage"]) == ("in_progress", [], None)


def test_status_429_has_the_code_rate_limit_exceeded() -> None:
    outcome = AnswerOutcome("error", HttpFailure(status=429, message="Later."))
    found = json.loads(form().encode_answer("x", outcome))
    assert found["error"] == {"code": "rate_limit_exceeded", "message": "Later."}


_texts = st.builds(AnswerTextPiece, st.text(min_size=1, max_size=5))
_tools = st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=2).map(
    lambda names: [
        *(ToolStartPiece(name, "read", "", "") for name in names),
        *(ToolEndPiece(name, "read") for name in names),
    ]
)


@settings(deadline=None)
@given(
    before=st.lists(_texts, max_size=3),
    tools=_tools,
    after=st.lists(_texts | st.builds(FeedNotice, st.just("N3"), st.text()), max_size=3),
    end=st.sampled_from([outcome for outcome, _, _ in ENDS.values()]),
    javascript=st.booleans(),
)
def test_events_are_in_order_for_any_pieces(
    before: list[AnswerPiece],
    tools: list[AnswerPiece],
    after: list[AnswerPiece],
    end: AnswerOutcome,
    javascript: bool,
) -> None:
    writer = form(javascript=javascript)
    pieces = [*before, *tools, *after]
    found = from_wire(
        b"".join(
            [
                writer.encode_start(),
                *(writer.encode_piece(each) for each in pieces),
                writer.encode_end(end),
            ]
        )
    )
    assert found.text == "".join(each.text for each in pieces if isinstance(each, AnswerTextPiece))
    assert len(found.tools) == len(tools)
    assert len(found.notices) == sum(isinstance(each, FeedNotice) for each in after)


# --- input items -----------------------------------------------------------------------------

SENT = InboundMessage(
    id="q1",
    at=1,
    address=Address("api", "~x"),
    sender=Sender(id="key", name="API"),
    parts=(Text("three"), File("a.png", "image/png", "ref")),
    direct=True,
    addressed=True,
)
BEFORE = RequestOptions(
    before=(
        EarlierMessage(role=MessageRole.USER, text="one"),
        EarlierMessage(
            role=MessageRole.ASSISTANT, text="two", tool_calls=(ToolCall("c1", "read", "{}"),)
        ),
        EarlierMessage(role=MessageRole.TOOL, text="result", tool_call_id="c1"),
    )
)


def listed(**query: str) -> Any:
    return json.loads(encode_page(SENT, BEFORE, query))


def test_input_items_are_listed_newest_first() -> None:
    found = listed()
    kinds = [item["type"] for item in found["data"]]
    assert kinds == ["message", "function_call_output", "function_call", "message", "message"]
    assert [part["type"] for part in found["data"][0]["content"]] == ["input_text", "input_image"]
    assert found["data"][3]["content"][0]["type"] == "output_text"
    assert found["has_more"] is False
    assert listed(order="asc")["data"] == found["data"][::-1]


def test_input_items_are_paged() -> None:
    whole = listed(order="asc")["data"]
    first = listed(order="asc", limit="2")
    assert (first["data"], first["has_more"]) == (whole[:2], True)
    rest = listed(order="asc", after=first["last_id"])
    assert (rest["data"], rest["has_more"]) == (whole[2:], False)
    nothing = listed(order="asc", after=whole[-1]["id"])
    assert (nothing["data"], nothing["first_id"], nothing["has_more"]) == ([], None, False)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"limit": "²"}, "limit"),
        ({"limit": "9" * 9_999}, "limit"),
        ({"after": "nobody"}, "after"),
    ],
    ids=["none", "too many", "no number", "no plain digit", "endless", "unknown item"],
)
def test_invalid_pages_are_refused(query: dict[str, str], param: str) -> None:
    with pytest.raises(RequestRefused) as error:
        listed(**query)
    assert error.value.failure.param == param
