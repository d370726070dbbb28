"""The seven acceptance cases of the Open Responses specification, judged by the specification's types.

The project of the specification publishes no package with its cases, so they are written here after
its list. The judge of each object and event is `openresponses-types`.
"""

import base64
import json
from pathlib import Path
from typing import Any

import aiohttp
import openresponses_types
import pytest
from openresponses_types import ResponseResource
from pydantic import BaseModel

from tests.clients.node_programs import red_square
from tests.clients.scripted import Request, plausible, text_of
from tests.e2e.api_kit import KEY, Event, daemon_for, events
from tests.fakes.model_server import Handler, ModelServer

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Look up the weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
CALLING = plausible(tools={"get_weather": {"location": "Lisbon"}})


def event_types() -> dict[str, type[BaseModel]]:
    """Return the types of the events by the value of `type`."""
    found: dict[str, type[BaseModel]] = {}
    for name in dir(openresponses_types):
        if name.endswith("StreamingEvent"):
            kind = getattr(openresponses_types, name)
            (value,) = list(kind.model_fields["type"].annotation)
            found[value.value] = kind
    return found


EVENT_TYPES = event_types()


class Answer:
    """An answer whose object and events were found valid."""

    def __init__(self, response: Any, stream: list[Event], requests: list[Request]) -> None:
        ResponseResource.model_validate_json(json.dumps(response))
        for each in stream:
            EVENT_TYPES[each.data["type"]].model_validate_json(json.dumps(each.data))
        self.response = response
        self.stream = [each.data for each in stream]
        self.requests = requests

    @property
    def text(self) -> str:
        messages = [each for each in self.response["output"] if each["type"] == "message"]
        return "".join(part["text"] for each in messages for part in each["content"])

    def told(self, role: str) -> list[str]:
        """Return the texts of a role that the model received at last."""
        return [text_of(each) for each in self.requests[-1]["messages"] if each["role"] == role]


async def answer(
    folder: Path, model: Handler, items: list[Any], *, stream: bool = False, **more: Any
) -> Answer:
    """Send the items to a daemon, and return the valid answer."""
    body = {"model": "scripted", "input": items, "stream": stream, **more}
    async with ModelServer(model) as server:
        daemon = daemon_for(folder, server)
        headers = {"authorization": f"Bearer {KEY}"}
        async with (
            daemon,
            aiohttp.ClientSession(headers=headers) as http,
            http.post(f"{daemon.url}/v1/responses", json=body) as sent,
        ):
            assert sent.status == 200, await sent.text()
            if stream:
                seen = [each async for each in events(sent) if each.data is not None]
                assert seen.pop().data == "[DONE]"
                response = seen[-1].data["response"]
            else:
                response, seen = await sent.json(), []
        return Answer(response, seen, [each.body for each in server.requests])


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


async def test_a_basic_text_response(tmp_path: Path) -> None:
    found = await answer(tmp_path, plausible(), [message("user", "Say hello.")])
    assert found.response["status"] == "completed"
    assert found.text == "Hello from afar."
    assert found.told("user") == ["Say hello."]


async def test_a_streaming_response(tmp_path: Path) -> None:
    model = plausible(text="One, two, three.")
    found = await answer(tmp_path, model, [message("user", "Count to three.")], stream=True)
    assert found.response["status"] == "completed"
    deltas = [each["delta"] for each in found.stream if each["type"].endswith("output_text.delta")]
    assert "".join(deltas) == found.text == "One, two, three."
    assert [each["sequence_number"] for each in found.stream] == list(range(len(found.stream)))


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_a_system_prompt(tmp_path: Path, role: str) -> None:
    items = [message(role, "Talk like a sailor."), message("user", "Say hello.")]
    found = await answer(tmp_path, plausible(), items)
    assert found.response["status"] == "completed"
    assert "Talk like a sailor." in "".join(found.told("system") + found.told("developer"))
    assert found.told("user") == ["Say hello."]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_tool_calling(tmp_path: Path, stream: bool) -> None:
    items = [message("user", "How is the weather in Lisbon?")]
    found = await answer(tmp_path, CALLING, items, stream=stream, tools=[WEATHER])
    assert found.response["status"] == "completed"
    (call,) = [each for each in found.response["output"] if each["type"] == "function_call"]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"location": "Lisbon"})
    if not stream:
        return
    kinds = [each["type"].removeprefix("response.") for each in found.stream]
    streamed = [
        each["item"]["type"]
        for each in found.stream
        if each["type"].startswith("response.output_i")
    ]
    assert streamed == ["function_call", "function_call"]
    given = [each["delta"] for each in found.stream if each["type"].endswith("arguments.delta")]
    assert "".join(given) == call["arguments"]
    assert kinds.count("function_call_arguments.done") == 1


async def test_image_input(tmp_path: Path) -> None:
    picture = f"data:image/png;base64,{base64.b64encode(red_square()).decode()}"
    parts = [
        {"type": "input_text", "text": "Which colour is this?"},
        {"type": "input_image", "image_url": picture},
    ]
    found = await answer(tmp_path, plausible(text="Red."), [message("user", parts)])
    assert found.response["status"] == "completed"
    assert found.text == "Red."
    assert picture in json.dumps(found.requests[-1])


async def test_a_conversation_of_several_turns(tmp_path: Path) -> None:
    items = [
        message("user", "My name is Ada."),
        message("assistant", "Good morning, Ada."),
        message("user", "What is my name?"),
    ]
    found = await answer(tmp_path, plausible(text="Ada."), items)
    assert found.response["status"] == "completed"
    assert found.text == "Ada."
    assert found.told("user") == ["My name is Ada.", "What is my name?"]
    assert found.told("assistant") == ["Good morning, Ada."]
