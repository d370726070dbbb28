"""`/v1/messages` over a whole gateway, by Anthropic's library and raw HTTP."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock

from agent.settings import AgentSettings
from tests.e2e.api_kit import KEY, ApiKit, Wire, daemon_for, served, user
from tests.fakes.agent_kit import Workshop
from tests.fakes.http_client import NO_CERTIFICATES
from tests.fakes.model_script import calls, ok
from tests.fakes.model_server import ModelServer

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
WEATHER: Any = {"name": "weather", "description": "Look it up.", "input_schema": CITY}
BERLIN = '{"city":  "Berlin"}'
CALL = calls(("c1", "weather", BERLIN))
MIXED = calls(("c1", "weather", BERLIN), ("c2", "pay", '{"amount": 5}'))
GIF = "R0lGODlhAQABAAAAACw="
COMMON: Any = {"model": "scripted", "max_tokens": 1000}


@contextlib.asynccontextmanager
async def library(
    home: Path, model: ModelServer, **more: Any
) -> AsyncIterator[tuple[ApiKit, anthropic.AsyncAnthropic]]:
    async with served(home, model, **more) as api:
        base = api.wire.base.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(
            base_url=base,
            api_key=KEY,
            max_retries=0,
            open_telemetry=False,
            http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=NO_CERTIFICATES),
        ) as client:
            yield api, client


def text_of(answer: Message) -> str:
    return "".join(each.text for each in answer.content if isinstance(each, TextBlock))


def call_of(answer: Message) -> ToolUseBlock:
    (call,) = [each for each in answer.content if isinstance(each, ToolUseBlock)]
    return call


def result(call: ToolUseBlock, content: Any = "sunny", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": content, **more}


async def post(
    api: ApiKit, body: Any, path: str = "/messages", **headers: str
) -> tuple[int, dict[str, str], Any]:
    return await api.wire.send("POST", path, json=body, headers=headers)


async def test_library_gets_a_whole_answer(tmp_path: Path) -> None:
    async with ModelServer(ok("Hello.")) as model, library(tmp_path, model) as (api, client):
        answer = await client.messages.create(system="Be brief.", messages=user("hi"), **COMMON)
        assert text_of(answer) == "Hello."
        assert (answer.type, answer.role, answer.model) == ("message", "assistant", "scripted")
        assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
        assert answer.usage.output_tokens > 0
        assert answer._request_id
        assert api.kit.system(1).endswith("Be brief.")
        assert model.requests[0].body["max_tokens"] == 1000


async def test_library_streams_an_answer_with_the_tools_of_the_agent(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (calls(("c1", "pay", '{"amount": 5}')), ok("Paid."))
    async with (
        ModelServer(*scripts) as model,
        library(tmp_path, model, tools=shop.tools()) as (_, client),
    ):
        async with client.messages.stream(messages=user("hi"), **COMMON) as stream:
            names = [event.type async for event in stream]
            answer = await stream.get_final_message()
        assert text_of(answer) == "Paid."
        assert answer.stop_reason == "end_turn"
        assert answer.usage.output_tokens > 0
        assert set(names) == {
            "message_start",
            "content_block_start",
            "content_block_delta",
            "text",
            "content_block_stop",
            "message_delta",
            "message_stop",
        }


async def test_events_of_the_agent_are_pings(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (calls(("c1", "pay", '{"amount": 5}')), ok("Paid."))
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        body = {"messages": user("hi"), "stream": True, "tools": [{"type": "x_1", "name": "x"}]}
        found = await events(api, body)
        pings = [each["holdfast"] for each in found if each["type"] == "ping"]
        assert [each["event"] for each in pings] == [
            "holdfast.notice",
            "hermes.tool.progress",
            "hermes.tool.progress",
        ]
        assert "x_1" in pings[0]["text"]
        assert [each.get("status") for each in pings[1:]] == ["running", "completed"]


async def events(api: ApiKit, body: Any) -> list[dict[str, Any]]:
    """Return the data of each event; its name has to be its type."""
    found = []
    async with api.wire._http.post(
        f"{api.wire.base}/messages", json=body, headers=api.wire._headers
    ) as response:
        assert response.status == 200, await response.text()
        for event in (await response.text()).strip().split("\n\n"):
            if not event.startswith(":"):
                name, data = event.split("\n")
                found.append(json.loads(data.removeprefix("data: ")))
                assert name == f"event: {found[-1]['type']}"
    return found


async def test_a_tool_loop_of_two_steps(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (MIXED, calls(("c3", "weather", '{"city": "Oslo"}')), ok("Sunny."))
    async with (
        ModelServer(*scripts) as model,
        library(tmp_path, model, tools=shop.tools()) as (api, client),
    ):
        said: Any = user("hi")
        inputs = []
        while True:
            answer = await client.messages.create(messages=said, tools=[WEATHER], **COMMON)
            if answer.stop_reason != "tool_use":
                break
            call = call_of(answer)
            inputs.append(call.input)
            said.append({"role": "assistant", "content": answer.content})
            said.append({"role": "user", "content": [result(call)]})
        assert text_of(answer) == "Sunny."
        assert inputs == [{"city": "Berlin"}, {"city": "Oslo"}]
        assert shop.effects == ["pay 5"]
        assert len(await api.sessions()) == 1
        sent = await api.kit.asked(2)
        assert {each["content"] for each in sent if each["role"] == "tool"} == {"paid 5", "sunny"}


async def test_a_tool_loop_over_streams(tmp_path: Path) -> None:
    async with (
        ModelServer(CALL, ok("Sunny.")) as model,
        library(tmp_path, model) as (_, client),
    ):
        more: Any = {"tools": [WEATHER], **COMMON}
        async with client.messages.stream(messages=user("hi"), **more) as stream:
            first = await stream.get_final_message()
        call = call_of(first)
        assert (first.stop_reason, call.name, call.input) == (
            "tool_use",
            "weather",
            {"city": "Berlin"},
        )
        said: Any = [
            *user("hi"),
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result(call), {"type": "text", "text": "Go on."}]},
        ]
        async with client.messages.stream(messages=said, **more) as stream:
            assert await stream.get_final_text() == "Sunny."


async def test_results_may_come_with_text_and_pictures(tmp_path: Path) -> None:
    async with (
        ModelServer(CALL, ok("Sunny.")) as model,
        library(tmp_path, model) as (api, client),
    ):
        first = await client.messages.create(messages=user("hi"), tools=[WEATHER], **COMMON)
        source = {"type": "base64", "media_type": "image/gif", "data": GIF}
        picture = {"type": "image", "source": source}
        shown = [{"type": "text", "text": "a map"}, picture]
        said: Any = [
            *user("hi"),
            {"role": "assistant", "content": first.content},
            {
                "role": "user",
                "content": [
                    result(call_of(first), shown, is_error=True),
                    {"type": "text", "text": "Use Celsius."},
                ],
            },
        ]
        await client.messages.create(messages=said, tools=[WEATHER], **COMMON)
        *_, output, newest = await api.kit.asked(2)
        assert (output["role"], output["content"]) == ("tool", "Error: a map")
        kinds = [each["type"] for each in newest["content"]]
        assert "image_url" in kinds
        assert "Use Celsius." in json.dumps(newest)


async def test_a_request_as_claude_code_sends_it(tmp_path: Path) -> None:
    """Blocks with cache_control, many tools, metadata, betas, and history of another server."""
    cached = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tools = [{**WEATHER, "name": f"Tool{number}"} for number in range(40)]
    body: Any = {
        "model": "scripted",
        "max_tokens": 32000,
        "metadata": {"user_id": "user_1_account__session_2"},
        "system": [{"type": "text", "text": "You are a tool.", **cached}],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": []},
        "tools": [*tools[:-1], {**tools[-1], **cached}],
        "stream": True,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<reminder>"}, *blocks("hi")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "tool_use", "id": "toolu_1", "name": "Tool1", "input": {"city": "x"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done", **cached}
                ],
            },
        ],
    }
    async with (
        ModelServer(ok("Fine.")) as model,
        library(tmp_path, model) as (api, client),
    ):
        stream = await client.beta.messages.create(**body, betas=["claude-code-20250219"])
        texts = [
            event.delta.text
            async for event in stream
            if event.type == "content_block_delta" and event.delta.type == "text_delta"
        ]
        assert "".join(texts) == "Fine."
        sent = await api.kit.asked(1)
        assert [each["role"] for each in sent] == ["user", "assistant", "tool"]
        assert sent[0]["content"] == "<reminder>\nhi"
        assert "Tool39" in model.requests[0].tools


def blocks(text: str) -> list[Any]:
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize("shown", [True, False])
async def test_thinking_is_sent_if_it_may_be_shown(tmp_path: Path, *, shown: bool) -> None:
    script = 'H R"Let me " R"think." T"Hello." F stop U D'
    agent = AgentSettings(show_reasoning=shown)
    more: Any = {"thinking": {"type": "enabled", "budget_tokens": 1024}, **COMMON}
    async with (
        ModelServer(script, script, script) as model,
        library(tmp_path, model, agent=agent) as (_, client),
    ):
        answer = await client.messages.create(messages=user("hi"), **more)
        async with client.messages.stream(messages=user("hi"), **more) as stream:
            streamed = await stream.get_final_message()
        for each in (answer, streamed):
            thoughts = [block for block in each.content if isinstance(block, ThinkingBlock)]
            assert [block.thinking for block in thoughts] == ["Let me think."] * shown
            assert text_of(each) == "Hello."
        plain = await client.messages.create(messages=user("hi"), **COMMON)
        assert [block.type for block in plain.content] == ["text"]


async def test_a_stream_that_breaks_off_ends_with_an_error(tmp_path: Path) -> None:
    async with (
        ModelServer('H T"So far" RST', "S400", "S400") as model,
        library(tmp_path, model) as (_, client),
    ):
        async with client.messages.stream(messages=user("hi"), **COMMON) as stream:
            with pytest.raises(anthropic.APIStatusError) as failed:
                await stream.until_done()
            (block,) = stream.current_message_snapshot.content
        assert isinstance(block, TextBlock)
        assert block.text == "So far"
        body: Any = failed.value.body
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"
        assert body["error"]["partial"] is True


async def test_errors_have_the_shape_and_the_types_of_the_protocol(tmp_path: Path) -> None:
    async with ModelServer("S400") as model, library(tmp_path, model) as (api, client):
        status, _, body = await post(api, {"messages": []})
        assert (status, body["type"], body["error"]["type"]) == (
            400,
            "error",
            "invalid_request_error",
        )
        assert body["error"]["param"] == "messages"
        with pytest.raises(anthropic.NotFoundError) as missing:
            await client.messages.create(model="nobody", max_tokens=5, messages=user("hi"))
        found: Any = missing.value.body
        assert (missing.value.type, found["error"]["code"]) == (
            "not_found_error",
            "model_not_found",
        )
        with pytest.raises(anthropic.BadRequestError) as refused:
            await client.messages.create(messages=user("hi"), **COMMON)
        assert refused.value.type == "invalid_request_error"
        status, _, body = await api.wire.send("GET", "/messages")
        assert (status, body["error"]["type"]) == (405, "invalid_request_error")
        status, _, body = await api.wire.send("GET", "/messages/batches")
        assert (status, body["error"]["type"]) == (404, "not_found_error")


async def test_the_key_may_be_in_either_header(tmp_path: Path) -> None:
    async with ModelServer(ok("Hello."), ok("Hello.")) as model, served(tmp_path, model) as api:
        body = {"messages": user("hi")}
        wire = Wire(api.wire.base, key="")
        for headers in ({"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}):
            assert (await wire.send("POST", "/messages", json=body, headers=headers))[0] == 200
        for headers in ({}, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}):
            status, _, found = await wire.send("POST", "/messages", json=body, headers=headers)
            assert (status, found["error"]["type"]) == (401, "authentication_error")
        await wire.close()


async def test_tokens_are_counted_by_estimate(tmp_path: Path) -> None:
    async with ModelServer() as model, library(tmp_path, model) as (_, client):
        small = await client.messages.count_tokens(model="scripted", messages=user("hi"))
        large = await client.messages.count_tokens(
            model="scripted",
            messages=user("word " * 1000),
            system="Be brief.",
            tools=[WEATHER],
        )
        source: Any = {"type": "base64", "media_type": "image/gif", "data": GIF}
        shown: Any = [{"role": "user", "content": [{"type": "image", "source": source}]}]
        picture = await client.messages.count_tokens(model="scripted", messages=shown)
        assert 1 < small.input_tokens < 20
        assert 1000 < large.input_tokens < 2000
        assert picture.input_tokens > 1000
        assert not model.requests


async def test_an_answer_in_a_json_format_is_repaired_once(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted: Any = {"format": {"type": "json_schema", "schema": schema}}
    async with (
        ModelServer(ok("one"), ok('{"n":1}')) as model,
        library(tmp_path, model) as (_, client),
    ):
        answer = await client.messages.create(
            messages=user("hi"), output_config=wanted, stop_sequences=["END"], **COMMON
        )
        assert text_of(answer) == '{"n":1}'
        assert model.requests[0].body["stop"] == ["END"]


async def test_no_tools_at_all_if_the_client_wants_none(tmp_path: Path) -> None:
    choice: Any = {"type": "none"}
    async with (
        ModelServer(ok("Plain.")) as model,
        library(tmp_path, model, tools=Workshop().tools()) as (_, client),
    ):
        await client.messages.create(
            messages=user("hi"), tools=[WEATHER], tool_choice=choice, **COMMON
        )
        assert "tools" not in model.requests[0].body


async def test_a_repeated_request_gets_the_same_answer_after_kill_9(tmp_path: Path) -> None:
    keyed = {"idempotency-key": "k"}
    body = {"messages": user("hi"), "tools": [WEATHER]}
    async with ModelServer(CALL) as model:
        async with daemon_for(tmp_path, model) as daemon:
            wire = Wire(f"{daemon.url}/v1")
            first = (await wire.send("POST", "/messages", json=body, headers=keyed))[2]
            assert first["stop_reason"] == "tool_use"
            await daemon.kill()
            await daemon.start()
            again = (await wire.send("POST", "/messages", json=body, headers=keyed))[2]
            assert again == first
            await wire.close()
        assert len(model.requests) == 1
