"""Pictures and files in the results of a client's tools, in chat completions and responses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api_kit import ApiKit, served
from tests.e2e.test_api_client_tools import CALL, FLAT, WEATHER
from tests.e2e.test_api_node import PNG
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

PICTURE = {"type": "input_image", "image_url": PNG, "detail": "auto"}
QUESTION = {"role": "user", "content": "Which colour is it?"}


async def ask(api: ApiKit, items: list[Any], **more: Any) -> tuple[int, Any]:
    body = {"model": "scripted", "input": items, "tools": [FLAT], **more}
    status, _, answer = await api.wire.send("POST", "/responses", json=body)
    return status, answer


def result(call: Any, *parts: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": list(parts)}


def sent_to_model(model: ModelServer) -> list[tuple[str, bool]]:
    """Return role and presence of the picture for each message of the last request."""
    messages = model.requests[-1].body["messages"]
    return [(each["role"], PNG in json.dumps(each["content"])) for each in messages[1:]]


@pytest.mark.parametrize("stateless", [True, False])
async def test_a_picture_in_a_result_is_shown_to_the_model(tmp_path: Path, stateless: bool) -> None:
    async with ModelServer(CALL, ok("Red."), ok("Yes.")) as model, served(tmp_path, model) as api:
        _, first = await ask(api, [QUESTION])
        (call,) = first["output"]
        text = {"type": "input_text", "text": "one picture"}
        output = result(call, text, PICTURE)
        items = [QUESTION, call, output] if stateless else [output]
        known = {} if stateless else {"previous_response_id": first["id"]}
        status, second = await ask(api, items, **known)
        assert status == 200, second
        assert second["output"][0]["content"][0]["text"] == "Red."
        expected = [("user", False), ("assistant", False), ("tool", False), ("user", True)]
        assert sent_to_model(model) == expected
        assert model.requests[-1].body["messages"][3]["content"] == "one picture"

        items = [QUESTION, call, output, *second["output"], {"role": "user", "content": "Sure?"}]
        status, third = await ask(api, items)
        assert status == 200, third
        assert sent_to_model(model) == [*expected, ("assistant", False), ("user", False)]


async def test_pictures_of_several_results_follow_all_results(tmp_path: Path) -> None:
    async with (
        ModelServer(
            'H C(0,c1,weather,{"city":"A"}) C(1,c2,weather,{"city":"B"}) F tool_calls U D',
            ok("Red."),
        ) as model,
        served(tmp_path, model) as api,
    ):
        _, first = await ask(api, [QUESTION])
        one, two = first["output"]
        thought = {"type": "reasoning", "id": "rs_1", "summary": []}
        items = [QUESTION, one, two, result(one, PICTURE), thought, result(two, PICTURE)]
        status, answer = await ask(api, items)
        assert status == 200, answer
        assert sent_to_model(model)[2:] == [("tool", False), ("tool", False), ("user", True)]
        assert json.dumps(model.requests[-1].body["messages"][-1]).count(PNG) == 2


async def test_a_picture_in_a_chat_result_is_shown_to_the_model(tmp_path: Path) -> None:
    async with ModelServer(ok("Red.")) as model, served(tmp_path, model) as api:
        function = {"name": "weather", "arguments": "{}"}
        call = {"id": "c1", "type": "function", "function": function}
        parts = [
            {"type": "text", "text": "one picture"},
            {"type": "image_url", "image_url": {"url": PNG}},
        ]
        messages = [
            QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": parts},
        ]
        status, _, answer = await api.wire.ask("", messages=messages, tools=[WEATHER])
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"] == "Red."
        expected = [("user", False), ("assistant", False), ("tool", False), ("user", True)]
        assert sent_to_model(model) == expected
