"""Decoding of `/v1/messages` requests, encoding of answers, and the shape of errors."""

import json
from typing import Any

import msgspec
import pytest

from agent.model.answer_options import ClientToolChoice, ToolMode
from agent.model.usage import Usage
from gateway.http.api.asked import ApiRequest
from gateway.http.api.endings import INTERRUPTED, STOPPED, AnswerOutcome
from gateway.http.api.failures import NOT_READY, RequestRefused, over_budget
from gateway.http.api.messages.body import read_conversation, read_request
from gateway.http.api.messages.form import MessagesEncoder
from gateway.http.api.pieces import AnswerTextPiece, ReasoningPiece
from gateway.http.errors import REQUEST_TOO_LARGE, HttpFailure
from gateway.http.messages_errors import as_messages_failure, failure_for_path
from gateway.turns.feed_events import FeedNotice
from sessions.records import ToolCall

TOOL = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "c1", "name": "read", "input": {"a": 1}}
GIF = {"type": "base64", "media_type": "image/gif", "data": "R0lGODlhAQABAAAAACw="}
PICTURE = {"type": "image", "source": GIF}


def asked(*messages: Any, **more: Any) -> ApiRequest:
    return read_request(msgspec.json.encode({"messages": messages, **more}))


def by(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def refusal(*messages: Any, **more: Any) -> HttpFailure:
    with pytest.raises(RequestRefused) as refused:
        asked(*messages, **more)
    return refused.value.failure


# --- requests ----------------------------------------------------------------------------------


def test_system_prompts_come_as_text_as_blocks_and_inside_the_conversation() -> None:
    assert asked(by("user", "x"), system="a").system_prompt == "a"
    found = asked(by("system", "c"), by("user", "x"), system=[text("a"), text("b")])
    assert found.system_prompt == "a\n\nb\n\nc"


def test_results_become_messages_before_the_text_of_their_message() -> None:
    found = asked(
        by("user", "one"),
        by("assistant", [text("So"), text(" far"), CALL]),
        by(
            "user",
            [
                text("Go on."),
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("done"), PICTURE]},
            ],
        ),
    )
    _, answer, result, newest = found.messages
    assert (answer.text, answer.tool_calls) == ("So far", (ToolCall("c1", "read", '{"a":1}'),))
    assert (result.role, result.text, result.tool_call_id) == ("tool", "done", "c1")
    assert (newest.role, newest.text, len(newest.pictures)) == ("user", "Go on.", 1)


@pytest.mark.parametrize(
    ("content", "result"),
    [("boom", "Error: boom"), ("error: boom", "error: boom"), (None, "Error: ")],
)
def test_failed_results_say_so(content: Any, result: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "c1", "content": content, "is_error": True}
    found = asked(by("user", "x"), by("assistant", [CALL]), by("user", [block]))
    assert found.messages[-1].text == result


def test_blocks_of_other_types_are_ignored_in_answers_and_refused_in_questions() -> None:
    other = {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}
    found = asked(by("assistant", [other]), by("user", "x"))
    assert [each.role for each in found.messages] == ["user"]
    assert refusal(by("user", [other])).param == "messages[0].content[0]"
    plain = {"type": "document", "source": {"type": "text", "data": "the text"}}
    assert asked(by("user", [plain])).messages[-1].text == "the text"


def test_pictures_come_as_base64_or_by_address() -> None:
    away = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    one, two = asked(by("user", [PICTURE, away])).messages[-1].pictures
    assert (one.media_type, one.name) == ("image/gif", "picture-1.gif")
    assert (two.url, two.param) == (
        "https://example.org/a.png",
        "messages[0].content[1].source.url",
    )
    broken = {"type": "image", "source": {**GIF, "data": "?"}}
    assert refusal(by("user", [broken])).param == "messages[0].content[0].source.data"
    file = {"type": "image", "source": {"type": "file", "file_id": "f1"}}
    assert refusal(by("user", [file])).param == "messages[0].content[0].source.type"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ClientToolChoice()),
        ({"type": "any"}, ClientToolChoice(mode=ToolMode.REQUIRED)),
        ({"type": "none"}, ClientToolChoice(mode=ToolMode.NONE)),
        (
            {"type": "tool", "name": "read"},
            ClientToolChoice(mode=ToolMode.REQUIRED, names=("read",)),
        ),
    ],
)
def test_tool_choices_are_decoded(choice: Any, expected: ClientToolChoice) -> None:
    found = asked(by("user", "x"), tools=[TOOL], tool_choice=choice).options
    assert found.tool_choice == expected
    assert found.parallel_tool_calls is None
    single = {**choice, "disable_parallel_tool_use": True}
    found = asked(by("user", "x"), tools=[TOOL], tool_choice=single).options
    assert found.parallel_tool_calls is False


def test_tools_of_the_service_are_left_out() -> None:
    found = asked(
        by("user", "x"),
        tools=[{**TOOL, "type": "custom"}, {"type": "web_search_20250305", "name": "web_search"}],
    )
    assert [tool.name for tool in found.options.tools] == ["read"]
    assert "web_search_20250305" in found.warnings[0]


def test_options_are_decoded() -> None:
    found = asked(
        by("user", "x"),
        max_tokens=100,
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        stop_sequences=["END", ""],
        output_config={
            "effort": "max",
            "format": {"type": "json_schema", "schema": {"type": "object"}},
        },
        thinking={"type": "adaptive"},
        stream=True,
    )
    assert (found.max_output_tokens, found.temperature, found.stream) == (100, 0.5, True)
    assert (found.options.sampling.top_p, found.options.sampling.stop) == (0.9, ("END",))
    assert found.options.format
    assert found.options.format.schema == {"type": "object"}
    assert (found.reasoning_effort, found.wants_reasoning) == ("xhigh", True)
    assert not asked(by("user", "x"), thinking={"type": "disabled"}).wants_reasoning


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (by("user", " "), "messages"),
        (by("assistant", "So"), "messages"),
        (by("user", [{"type": "tool_result"}]), "messages[0].content[0].tool_use_id"),
        (by("user", [{"type": "text"}]), "messages[0].content[0].text"),
        (by("assistant", [{"type": "tool_use", "id": "x"}]), "messages[0].content[0].name"),
        (by("robot", "x"), "messages[0].role"),
    ],
)
def test_wrong_messages_are_refused(message: Any, param: str) -> None:
    assert refusal(message).param == param


def test_a_schema_that_cannot_be_used_is_refused() -> None:
    wanted = {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}
    failure = refusal(by("user", "x"), output_config=wanted)
    assert (failure.param, failure.code) == ("output_config.format.schema", "invalid_json_schema")


def test_a_count_takes_any_last_message() -> None:
    body = {"messages": [by("user", "x"), by("assistant", "y")]}
    assert len(read_conversation(msgspec.json.encode(body)).messages) == 2


# --- answers -----------------------------------------------------------------------------------


def events(encoded: bytes) -> list[Any]:
    return [
        json.loads(each.split("\ndata: ")[1]) for each in encoded.decode().split("\n\n") if each
    ]


def test_blocks_are_numbered_and_closed() -> None:
    form = MessagesEncoder("0f3a", "m")
    encoded = [
        form.encode_start(),
        form.encode_piece(ReasoningPiece("Hm.")),
        form.encode_piece(AnswerTextPiece("So")),
        form.encode_piece(FeedNotice("n", "A notice.")),
        form.encode_piece(AnswerTextPiece(" far")),
        form.encode_end(
            AnswerOutcome(
                "tool_calls",
                usage=Usage(10, 5, 4),
                client_calls=(ToolCall("c1", "read", '{"a":1}'),),
            )
        ),
    ]
    found = events(b"".join(encoded))
    assert [(each["type"], each.get("index")) for each in found] == [
        ("message_start", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("ping", None),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert found[10]["delta"] == {"type": "input_json_delta", "partial_json": '{"a":1}'}
    assert found[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    usage = found[-2]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (6, 4)


@pytest.mark.parametrize(
    ("outcome", "reason", "texts"),
    [
        (AnswerOutcome("stop"), "end_turn", ["Hello."]),
        (AnswerOutcome("length"), "max_tokens", ["Hello."]),
        (AnswerOutcome("content_filter", refusal="No."), "refusal", ["Hello."]),
    ],
)
def test_stop_reasons(outcome: AnswerOutcome, reason: str, texts: list[str]) -> None:
    found = json.loads(MessagesEncoder("0f3a", "m").encode_answer("Hello.", outcome))
    assert found["stop_reason"] == reason
    assert [each["text"] for each in found["content"]] == texts


def test_a_refusal_without_text_is_shown() -> None:
    declined = AnswerOutcome("content_filter", refusal="No.")
    whole = json.loads(MessagesEncoder("0f3a", "m").encode_answer("", declined))
    assert whole["content"][0]["text"] == "No."
    streamed = events(MessagesEncoder("0f3a", "m").encode_end(declined))
    assert streamed[1]["delta"]["text"] == "No."


# --- errors ------------------------------------------------------------------------------------

LONG = HttpFailure(status=400, message="200001 tokens.", code="context_length_exceeded")


@pytest.mark.parametrize(
    ("failure", "status", "type_"),
    [
        (NOT_READY, 529, "overloaded_error"),
        (INTERRUPTED, 529, "overloaded_error"),
        (STOPPED, 409, "invalid_request_error"),
        (REQUEST_TOO_LARGE, 413, "request_too_large"),
        (over_budget("spent", 60), 402, "billing_error"),
        (HttpFailure(status=429, message="x"), 429, "rate_limit_error"),
        (HttpFailure(status=502, message="x"), 502, "api_error"),
        (LONG, 400, "invalid_request_error"),
    ],
)
def test_errors_have_types_and_statuses_of_the_protocol(
    failure: HttpFailure, status: int, type_: str
) -> None:
    found = as_messages_failure(failure)
    body = json.loads(found.encode_body())
    assert (found.status, body["type"], body["error"]["type"]) == (status, "error", type_)
    assert found.response_headers() == failure.response_headers()


def test_clients_recognize_a_prompt_that_is_too_long() -> None:
    error = as_messages_failure(LONG).to_body().error
    assert error.message == "prompt is too long: 200001 tokens."


def test_only_paths_of_the_protocol_have_its_errors() -> None:
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        assert "type" in json.loads(failure_for_path(path, LONG).encode_body())
    for path in ("/v1/messagesx", "/v1/responses", "/"):
        assert failure_for_path(path, LONG) is LONG
