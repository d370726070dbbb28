"""Pictures in tool results, in the requests of the three protocols."""

import json
from typing import Any

import pytest

from agent.model.contract import ModelRequest, Picture
from agent.providers.anthropic import request as anthropic
from agent.providers.anthropic.dialect import AnthropicDialect
from agent.providers.openai import chat_wire, responses_wire
from agent.request.pictures import PICTURE_OMITTED
from sessions.records import Attachment, Message, ToolCall

SHOT = Attachment(
    name="shot.png", media_type="image/png", path="received/shot.png", size=4, fetched=True
)
ROWS = (
    Message("user", "look"),
    Message("assistant", "", (ToolCall("c1", "see", "{}"), ToolCall("c2", "say", "{}"))),
    Message("tool", "seen", tool_call_id="c1", files=(SHOT,)),
    Message("tool", "said", tool_call_id="c2"),
)
REQUEST = ModelRequest("m", "", ROWS, pictures={SHOT.path: Picture("image/png", "AAAA")})
URL = "data:image/png;base64,AAAA"


def chat(*omitted: str) -> list[dict[str, Any]]:
    dialect = chat_wire.ChatDialect(omitted_features=frozenset(omitted))
    messages: list[dict[str, Any]] = json.loads(chat_wire.encode_request(REQUEST, dialect))[
        "messages"
    ]
    return messages


def test_chat_completions_gets_the_pictures_behind_all_results() -> None:
    *_, first, second, pictures = chat()
    assert [first["content"], second["content"]] == ["seen", "said"]
    assert pictures == {
        "role": "user",
        "content": [
            {"type": "text", "text": "[Pictures in the result of the call c1:]"},
            {"type": "image_url", "image_url": {"url": URL}},
        ],
    }


def test_the_pictures_of_earlier_results_stay_before_the_next_answer() -> None:
    rows = (*ROWS, Message("assistant", "a cat"), Message("user", "sure?"))
    request = ModelRequest("m", "", rows, pictures=REQUEST.pictures)
    body = json.loads(chat_wire.encode_request(request, chat_wire.ChatDialect()))
    roles = [each["role"] for each in body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant", "user"]


def test_responses_gets_the_pictures_inside_the_result() -> None:
    body = json.loads(responses_wire.encode_request(REQUEST, frozenset()))
    outputs = [each["output"] for each in body["input"] if each["type"] == "function_call_output"]
    assert outputs == [
        [
            {"type": "input_text", "text": "seen"},
            {"type": "input_image", "detail": "auto", "image_url": URL},
        ],
        "said",
    ]


def test_anthropic_gets_the_pictures_inside_the_result() -> None:
    body = json.loads(anthropic.encode_request(REQUEST, AnthropicDialect()))
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert body["messages"][-1]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": [{"type": "text", "text": "seen"}, {"type": "image", "source": source}],
        },
        {"type": "tool_result", "tool_use_id": "c2", "content": "said"},
    ]


@pytest.mark.parametrize("omitted", ["pictures", "these_pictures"])
def test_a_model_without_pictures_gets_a_note_in_the_result(omitted: str) -> None:
    noted = f"seen\n{PICTURE_OMITTED}"
    assert [each["content"] for each in chat(omitted)[-2:]] == [noted, "said"]
    body = json.loads(responses_wire.encode_request(REQUEST, frozenset({omitted})))
    assert body["input"][-2]["output"] == noted
    body = json.loads(anthropic.encode_request(REQUEST, AnthropicDialect(pictures=False)))
    texts = [part["text"] for part in body["messages"][-1]["content"][0]["content"]]
    assert texts == ["seen", PICTURE_OMITTED]
