"""Reasoning of the model for API clients, as OpenAI's Python and Node libraries read it."""

from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseReasoningItem

from agent.settings import AgentSettings
from tests.e2e.api_kit import ApiKit, chunks, served, user
from tests.e2e.node_kit import node, why_not
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_server import ModelServer

THOUGHT = 'H R"Let me " R"think." T"Hello." F stop U(7) D'
USED = (
    'H R"Let me " R"think." T"Hello." F stop '
    'J{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],'
    '"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,'
    '"completion_tokens_details":{"reasoning_tokens":4}}} D'
)
SHOWN, HIDDEN = AgentSettings(show_reasoning=True), AgentSettings()
ASKS: dict[str, Any] = {"reasoning": {"summary": "auto"}}

needs_node = pytest.mark.skipif(bool(why_not()), reason=why_not() or "installed")


async def chat_reasoning(api: ApiKit, **more: Any) -> tuple[str, str]:
    """Reasoning of a whole and of a streamed answer."""
    asked: Any = {"model": "scripted", "messages": user("hi"), **more}
    answer = await api.chat.create(**asked)
    message: Any = answer.choices[0].message
    streamed = ""
    async for chunk in await api.chat.create(stream=True, **asked):
        for choice in chunk.choices:
            delta: Any = choice.delta
            streamed += getattr(delta, "reasoning_content", None) or ""
    assert message.content == "Hello."
    return getattr(message, "reasoning_content", None) or "", streamed


@pytest.mark.parametrize(
    ("agent", "more", "expected"),
    [
        pytest.param(SHOWN, {}, "Let me think.", id="shown"),
        pytest.param(HIDDEN, {}, "", id="hidden by the settings"),
        pytest.param(SHOWN, {"reasoning_effort": "none"}, "", id="no reasoning asked for"),
        pytest.param(
            SHOWN, {"extra_body": {"include_reasoning": False}}, "", id="hidden by the request"
        ),
    ],
)
async def test_chat_answers_have_reasoning_if_it_may_be_shown(
    tmp_path: Path, agent: AgentSettings, more: dict[str, Any], expected: str
) -> None:
    async with (
        ModelServer(THOUGHT, THOUGHT) as model,
        served(tmp_path, model, agent=agent) as api,
    ):
        assert await chat_reasoning(api, **more) == (expected, expected)


async def test_reasoning_tokens_are_counted_in_chat_answers(tmp_path: Path) -> None:
    async with ModelServer(USED, USED) as model, served(tmp_path, model) as api:
        answer = await api.chat.create(model="scripted", messages=user("hi"))
        assert answer.usage
        assert answer.usage.completion_tokens_details
        assert answer.usage.completion_tokens_details.reasoning_tokens == 4
        response = await api.client.responses.create(model="scripted", input="hi")
        assert response.usage
        assert response.usage.output_tokens_details.reasoning_tokens == 4


@pytest.mark.parametrize(
    ("agent", "more", "expected"),
    [
        pytest.param(SHOWN, ASKS, ["Let me think."], id="shown"),
        pytest.param(SHOWN, {}, [], id="not asked for"),
        pytest.param(HIDDEN, ASKS, [], id="hidden by the settings"),
    ],
)
async def test_responses_have_a_summary_if_asked_for(
    tmp_path: Path, agent: AgentSettings, more: dict[str, Any], expected: list[str]
) -> None:
    async with (
        ModelServer(THOUGHT, THOUGHT) as model,
        served(tmp_path, model, agent=agent) as api,
    ):
        answer = await api.client.responses.create(model="scripted", input="hi", **more)
        said = ""
        async with api.client.responses.stream(model="scripted", input="hi", **more) as stream:
            async for event in stream:
                if event.type == "response.reasoning_summary_text.delta":
                    said += event.delta
            streamed = await stream.get_final_response()
        for each in (answer, streamed):
            items = [item for item in each.output if isinstance(item, ResponseReasoningItem)]
            assert [part.text for item in items for part in item.summary] == expected
            assert each.output_text == "Hello."
        assert said == "".join(expected)


async def test_reasoning_never_becomes_the_text_of_a_stored_answer(tmp_path: Path) -> None:
    async with (
        ModelServer(THOUGHT, 'H T"Again." F stop U D') as model,
        served(tmp_path, model, agent=SHOWN) as api,
    ):
        first = await api.client.responses.create(model="scripted", input="hi", **ASKS)
        kept = await api.client.responses.retrieve(first.id)
        assert kept.output_text == "Hello."
        await api.client.responses.create(
            model="scripted", input="more", previous_response_id=first.id
        )
        said = [each["content"] for each in await api.kit.asked(2)]
        assert said == ["hi", "Hello.", "more"]


async def test_secrets_in_reasoning_are_masked(tmp_path: Path) -> None:
    script = 'H R"The key is sk-a1b2c3d4a1b2" R"c3d4a1b2c3d4a1b2c3d4." T"Done." F stop U D'
    async with (
        ModelServer(script, script) as model,
        served(tmp_path, model, agent=SHOWN) as api,
    ):
        _, _, answer = await api.wire.ask("hi")
        streamed = await api.wire.stream("hi")
    thought = answer["choices"][0]["message"]["reasoning_content"]
    deltas = [
        choice["delta"].get("reasoning_content", "")
        for each in chunks(streamed)
        for choice in each["choices"]
    ]
    assert "".join(deltas) == thought
    assert thought.startswith("The key is ")
    assert "a1b2" not in thought


@needs_node
async def test_node_library_reads_reasoning(tmp_path: Path) -> None:
    tool = 'H R"Look first." T"One moment." C(0,c1,read,{"path":"a"}) F tool_calls U D'
    shop = Workshop()
    scripts = (tool, THOUGHT, tool, THOUGHT)
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, agent=SHOWN, tools=shop.tools()) as api,
        node(api) as sdk,
    ):
        body = {"model": "scripted", "messages": user("hi")}
        chat = await sdk.run("helper", body=body)
        assert chat["content"] == chat["said"] == "One moment.\n\nHello."
        body = {"model": "scripted", "input": "hi", **ASKS}
        found = await sdk.run("respondHelper", body=body)
        assert found["response"]["text"] == found["said"] == "One moment.\n\nHello."
        assert found["reasoning"] == ["Look first.", "Let me think."]
