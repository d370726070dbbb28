"""Recognition of the requests that front ends send on their own."""

from typing import Any

import msgspec
import pytest

from gateway.http.api.chat import body as chat_body
from gateway.http.api.messages import body as messages_body
from gateway.http.api.plain.tasks import is_task
from gateway.http.api.responses import body as responses_body

TOOL = {"type": "function", "function": {"name": "read"}}
TITLE = "### Task:\nGenerate a concise, 3-5 word title.\n### Chat History:\n<chat_history>"

LIBRECHAT_TITLE = "Provide a concise, 5-word-or-less title for the conversation, using title case"
LIBRECHAT_OBJECT = "Analyze this conversation and provide:\n1. The detected language of the"


def said(*texts: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": said("hi")}, False),
        ({"messages": said(TITLE)}, True),
        ({"messages": [{"role": "system", "content": "x"}, *said(TITLE)]}, True),
        ({"messages": said(TITLE), "tools": [TOOL]}, False),
        ({"messages": said("hi", "hello", TITLE)}, False),
        ({"messages": said("My ### Task: is hard")}, False),
        ({"messages": said("Generate a title for this conversation:\n\nhi")}, True),
        ({"messages": [*said("Generate a title for this conversation:\n"), *said("hi")]}, True),
        ({"messages": said(LIBRECHAT_TITLE)}, True),
        ({"messages": said(LIBRECHAT_OBJECT)}, True),
        ({"messages": said(LIBRECHAT_TITLE), "tools": [TOOL]}, False),
        ({"messages": said("hi", "hello", LIBRECHAT_TITLE)}, False),
        ({"messages": said("Generate a title for my book")}, False),
        ({"messages": said("hi"), "metadata": {"task": "title_generation"}}, True),
        ({"messages": said("hi"), "metadata": {"task": "tags_generation"}}, True),
        ({"messages": said("hi"), "metadata": {"task": "default"}}, False),
        ({"messages": said("hi"), "metadata": {"task": 5, "chat_id": "x"}}, False),
        ({"messages": said("hi"), "tool_choice": "none"}, True),
        ({"messages": said("hi"), "tools": [TOOL], "tool_choice": "none"}, True),
        ({"messages": said("hi", "hello", "how?"), "tool_choice": "none"}, False),
    ],
)
def test_tasks_of_front_ends_are_recognized(body: Any, *, expected: bool) -> None:
    assert is_task(chat_body.read_request(msgspec.json.encode(body))) is expected


def test_tasks_are_recognized_in_every_protocol() -> None:
    asked = {"input": "hi", "metadata": {"task": "title_generation"}}
    assert is_task(responses_body.read_request(msgspec.json.encode(asked)))
    after = asked | {"previous_response_id": "resp_1"}
    assert not is_task(responses_body.read_request(msgspec.json.encode(after)))
    plain = {"messages": said("hi"), "tool_choice": {"type": "none"}}
    assert is_task(messages_body.read_request(msgspec.json.encode(plain)))
