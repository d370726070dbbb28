"""Requests that the model answers without the agent, over a whole gateway."""

from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from agent.settings import AgentSettings
from gateway.http.api.chat.completions import read_request
from gateway.http.api.failures import RequestRefused
from tests.e2e.api_kit import served, user
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

TITLE = "### Task:\nGenerate a concise, 3-5 word title."


async def test_a_title_request_has_no_tools_and_no_prompt_and_is_stored(tmp_path: Path) -> None:
    agent = AgentSettings(system_prompt="You are a pirate.")
    keyed = {"Idempotency-Key": "k"}
    async with (
        ModelServer(ok("A title"), ok("Hello.")) as model,
        served(tmp_path, model, agent=agent, tools=Workshop().tools()) as api,
    ):
        for _ in range(2):
            _, _, found = await api.wire.ask(TITLE, headers=keyed)
            assert found["choices"][0]["message"]["content"] == "A title"
        body = model.requests[0].body
        assert "tools" not in body
        assert body["messages"] == user(TITLE)
        assert await api.sessions() == [("closed", "answered")]
        await api.wire.ask("hi")
        assert model.requests[1].tools
        assert "pirate" in api.kit.system(2)
        assert len(model.requests) == 2


async def test_a_plain_request_keeps_its_own_prompt(tmp_path: Path) -> None:
    said = [{"role": "system", "content": "Be brief."}, *user("hi")]
    async with ModelServer(ok("Hello.")) as model, served(tmp_path, model) as api:
        await api.wire.ask("", messages=said, tool_choice="none")
        assert model.requests[0].body["messages"] == said


async def test_a_request_in_a_session_is_answered_by_the_agent(tmp_path: Path) -> None:
    session = {"X-Holdfast-Session": "notes"}
    async with (
        ModelServer(ok("A title")) as model,
        served(tmp_path, model, tools=Workshop().tools()) as api,
    ):
        await api.wire.ask(TITLE, headers=session)
        assert model.requests[0].tools
        assert api.kit.system(1)


async def test_a_title_request_does_not_begin_the_session_that_a_program_names_on_its_own(
    tmp_path: Path,
) -> None:
    session = {"X-Session-Id": "ses_1"}
    async with (
        ModelServer(ok("A title"), ok("Hello.")) as model,
        served(tmp_path, model, tools=Workshop().tools()) as api,
    ):
        await api.wire.ask(TITLE, headers=session)
        await api.wire.ask("hi", headers=session)
        title, message = model.requests
        assert not title.tools
        assert message.tools
        assert TITLE not in str(message.body["messages"])
        assert sorted(await api.sessions()) == [("active", None), ("closed", "answered")]


async def test_older_completions_take_one_prompt(tmp_path: Path) -> None:
    async with (
        ModelServer(ok("Hello."), ok("Hello."), ok("Hello.")) as model,
        served(tmp_path, model) as api,
    ):
        answer = await api.client.completions.create(
            model="scripted", prompt="hi", max_tokens=50, stop="END"
        )
        (choice,) = answer.choices
        assert (choice.text, choice.finish_reason) == ("Hello.", "stop")
        assert answer.object == "text_completion"
        assert answer.usage
        assert answer.usage.completion_tokens > 0
        assert await api.kit.asked(1) == user("hi")
        assert model.requests[0].body["stop"] == ["END"]
        stream = await api.client.completions.create(
            model="scripted",
            prompt=["hi"],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(each.text for chunk in chunks for each in chunk.choices) == "Hello."
        assert [each.finish_reason for chunk in chunks for each in chunk.choices][-1] == "stop"
        assert chunks[-1].usage


async def test_a_stream_of_completions_ends_with_the_error(tmp_path: Path) -> None:
    async with (
        ModelServer('H T"So far" RST', "S400", "S400") as model,
        served(tmp_path, model) as api,
    ):
        stream = await api.client.completions.create(model="scripted", prompt="hi", stream=True)
        with pytest.raises(openai.APIError, match="could not be finished"):
            async for _ in stream:
                pass


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": " "}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt[0]"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "logprobs": 3}, "logprobs"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
    ],
)
def test_other_prompts_are_refused(body: Any, param: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_request(msgspec.json.encode(body))
    assert refused.value.failure.param == param


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/chat/completions", 404, "unknown_url"),
        ("GET", "/chat/completions/chatcmpl-1", 404, "unknown_url"),
        ("POST", "/responses/input_tokens", 404, "unknown_url"),
        ("POST", "/responses/compact", 404, "unknown_url"),
        ("POST", "/embeddings", 404, "unknown_url"),
        ("GET", "/completions", 405, "method_not_supported"),
        ("DELETE", "/chat/completions", 405, "method_not_supported"),
    ],
)
async def test_missing_calls_are_answered_as_clients_expect(
    tmp_path: Path, method: str, path: str, status: int, code: str
) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        found, headers, body = await api.wire.send(method, path)
        assert (found, body["error"]["code"]) == (status, code)
        assert ("allow" in headers) is (status == 405)
