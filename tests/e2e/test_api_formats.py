"""Formats of answers and options that are passed through, over a whole gateway."""

import json
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from openresponses_types import ResponseResource
from pydantic import BaseModel

from gateway.http.api.responses.form import ResponsesEncoder
from tests.e2e.api_kit import finish_of, served, text_of, user
from tests.e2e.test_api_client_tools import CALL, FLAT
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
GOOD = '{"ok": true}'


class State(BaseModel):
    ok: bool


async def test_openai_library_parses_both_apis(tmp_path: Path) -> None:
    async with ModelServer(ok(GOOD), ok(GOOD)) as model, served(tmp_path, model) as api:
        chat = await api.client.chat.completions.parse(
            model="scripted", messages=user("hi"), response_format=State
        )
        assert chat.choices[0].message.parsed == State(ok=True)
        answer = await api.client.responses.parse(model="scripted", input="hi", text_format=State)
        assert answer.output_parsed == State(ok=True)
        for request in model.requests:
            assert request.body["response_format"]["json_schema"]["name"] == "State"


async def test_a_stream_contains_only_the_checked_text(tmp_path: Path) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "state", "schema": SCHEMA}}
    async with ModelServer(ok("Sure!"), ok(GOOD)) as model, served(tmp_path, model) as api:
        found = await api.wire.stream("hi", response_format=wanted)
        assert (text_of(found), finish_of(found)) == (GOOD, ["stop"])


async def test_an_answer_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    async with ModelServer(ok("Sure!"), ok("No.")) as model, served(tmp_path, model) as api:
        status, headers, body = await api.wire.ask("hi", response_format={"type": "json_object"})
        assert (status, headers["x-should-retry"]) == (502, "false")
        assert "does not have the requested format" in body["error"]["message"]


async def test_an_unusable_schema_is_refused(tmp_path: Path) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}
    async with ModelServer() as model, served(tmp_path, model) as api:
        status, _, body = await api.wire.ask("hi", response_format=wanted)
        assert (status, body["error"]["code"]) == (400, "invalid_json_schema")
        assert body["error"]["param"] == "response_format.json_schema.schema"


async def test_options_reach_the_model_service(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": {"50256": -100.0},
        "verbosity": "low",
        "service_tier": "flex",
        "user": "ada",
    }
    async with ModelServer(ok("Fine.")) as model, served(tmp_path, model) as api:
        status, _, _ = await api.wire.ask("hi", **given)
        assert status == 200
        sent = model.requests[0].body
        assert {name: sent.get(name) for name in given} == given


async def test_the_highest_effort_is_mapped_to_what_the_service_knows(tmp_path: Path) -> None:
    refusal = "S400\"reasoning_effort 'xhigh' is not supported\""
    async with ModelServer(ok("a"), refusal, ok("b")) as model, served(tmp_path, model) as api:
        for _ in range(2):
            assert (await api.wire.ask("hi", reasoning_effort="max"))[0] == 200
        sent = [each.body["reasoning_effort"] for each in model.requests]
        assert sent == ["xhigh", "xhigh", "high"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/chat/completions", {"messages": user("hi"), "n": 2}, "n"),
        ("/chat/completions", {"messages": user("hi"), "logprobs": True}, "logprobs"),
        ("/chat/completions", {"messages": user("hi"), "modalities": ["audio"]}, "modalities"),
        ("/responses", {"input": "hi", "n": 2}, "n"),
        ("/responses", {"input": "hi", "top_logprobs": 2}, "top_logprobs"),
    ],
)
async def test_options_without_effect_are_refused(
    tmp_path: Path, path: str, body: dict[str, Any], param: str
) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        status, _, answer = await api.wire.send("POST", path, json=body)
        assert (status, answer["error"]["param"]) == (400, param)
        assert "a request gets one answer of text" in answer["error"]["message"]


async def test_responses_validate_against_open_responses(tmp_path: Path) -> None:
    more: Any = {"model": "scripted", "tools": [FLAT]}
    async with ModelServer(ok("Hi."), CALL) as model, served(tmp_path, model) as api:
        found = []
        for _ in range(2):
            body = {"input": "hi", **more}
            _, _, answer = await api.wire.send("POST", "/responses", json=body)
            found.append(answer)
        for answer in found:
            checked = ResponseResource.model_validate_json(json.dumps(answer))
            assert checked.completed_at
            assert checked.completed_at >= checked.created_at
            stored = await api.wire.send("GET", f"/responses/{answer['id']}")
            assert stored[2] == answer


def test_an_old_stored_echo_is_read() -> None:
    old = msgspec.json.encode({"temperature": None, "top_p": None, "store": True})
    running = ResponsesEncoder("resp_1", "m", 7, old).encode_in_progress()
    ResponseResource.model_validate_json(running)


async def test_reasoning_tokens_are_reported(tmp_path: Path) -> None:
    usage = (
        'J{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":9,'
        '"completion_tokens_details":{"reasoning_tokens":6}}}'
    )
    script = f'H T"Hi." F stop {usage} D'
    async with ModelServer(script, script) as model, served(tmp_path, model) as api:
        chat = await api.chat.create(model="scripted", messages=user("hi"))
        assert chat.usage
        assert chat.usage.completion_tokens_details
        assert chat.usage.completion_tokens_details.reasoning_tokens == 6
        answer = await api.client.responses.create(model="scripted", input="hi")
        assert answer.usage
        assert answer.usage.output_tokens_details.reasoning_tokens == 6


async def test_openai_library_reads_a_refusal_of_options(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        with pytest.raises(openai.BadRequestError, match="`n` is not supported"):
            await api.chat.create(model="scripted", messages=user("hi"), n=2)
