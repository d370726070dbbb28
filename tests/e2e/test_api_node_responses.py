"""`/v1/responses` with OpenAI's Node library."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api_kit import served
from tests.e2e.gateway_kit import talkative
from tests.e2e.node_kit import Raised, node, why_not
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import calls, ok, words
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "installed")

CUT = 'H T"so far " RST'


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "scripted", "input": text, **more}


async def test_node_library_creates_retrieves_and_deletes_a_response(tmp_path: Path) -> None:
    async with (
        ModelServer(ok("Hello.")) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        first = await sdk.run("respond", body=body("hi"))
        assert (first["object"], first["status"], first["text"]) == (
            "response",
            "completed",
            "Hello.",
        )
        assert first["usage"]["output_tokens"] == 5
        assert await sdk.run("retrieve", id=first["id"]) == first
        with pytest.raises(Raised) as error:
            await sdk.run("forget", id=first["id"])
        assert (error.value.name, error.value.status) == ("NotFoundError", 404)


async def test_node_library_continues_a_response(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api, node(api) as sdk:
        first = await sdk.run("respond", body=body("one"))
        after = body("two", previous_response_id=first["id"])
        second = await sdk.run("respond", body=after)
        assert (second["text"], second["previous"]) == ("echo: two", first["id"])
        said = [each["content"] for each in await api.kit.asked(2)]
        assert said == ["one", "echo: one", "two"]
        with pytest.raises(Raised) as error:
            await sdk.run("respond", body=body("three", previous_response_id="resp_nothing"))
        assert error.value.code == "previous_response_not_found"
        assert error.value.name in {"BadRequestError", "NotFoundError"}


async def test_node_library_reads_the_events_of_a_response(tmp_path: Path) -> None:
    async with (
        ModelServer(*[words("one two three")] * 2) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        seen = await sdk.run("respondStream", body=body("go"))
        assert seen["text"] == "one two three"
        types = seen["types"]
        assert types[:2] == ["response.created", "response.in_progress"]
        assert types[-1] == "response.completed"
        assert seen["numbers"] == list(range(len(types)))
        assert await sdk.run("retrieve", id=seen["response"]["id"]) == seen["response"] | {
            "text": "one two three"
        }
        found = await sdk.run("respondHelper", body=body("go"))
        assert found["said"] == found["last"] == found["response"]["text"] == "one two three"
        assert found["response"]["status"] == "completed"


async def test_node_library_ignores_tools_and_notices_in_a_response(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (
        'S429:{"retry-after":"0.01"}',
        calls(("c1", "pay", '{"amount":3}')),
        'H T"Let me look." C(0,c2,read,{"path":"a"}) F tool_calls U D',
        ok("Paid."),
    )
    async with (
        ModelServer(*scripts, *scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
        node(api) as sdk,
    ):
        seen = await sdk.run("respondStream", body=body("go"))
        assert seen["text"] == "Let me look.\n\nPaid."
        found = await sdk.run("respondHelper", body=body("go"))
        assert found["said"] == found["response"]["text"] == "Let me look.\n\nPaid."
        assert shop.effects == ["pay 3", "read a"] * 2


async def test_response_stream_closed_by_the_node_library_ends_its_turn(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api, node(api) as sdk:
        assert await sdk.run("leaveResponse", body=body("hang")) == {"text": "so far "}
        async with asyncio.timeout(8):
            await model.requests[0].closed.wait()
        assert (await sdk.run("respond", body=body("hi")))["text"] == "echo: hi"


@pytest.mark.parametrize("case", ["respond", "respondStream", "respondHelper"])
async def test_node_library_raises_for_a_response_that_failed_before_text(
    tmp_path: Path, case: str
) -> None:
    async with (
        ModelServer('S400"too clever"') as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        with pytest.raises(Raised, match="too clever") as error:
            await sdk.run(case, retries=2, body=body("go"))
        assert (error.value.name, error.value.status) == ("BadRequestError", 400)
        assert len(model.requests) == 1


async def test_node_library_reads_a_failed_response_after_text(tmp_path: Path) -> None:
    script = (CUT, 'S400"not today"')
    async with (
        ModelServer(*script, *script) as model,
        served(tmp_path, model) as api,
        node(api) as sdk,
    ):
        seen = await sdk.run("respondStream", body=body("go"))
        assert (seen["text"], seen["types"][-1]) == ("so far ", "response.failed")
        assert seen["response"]["status"] == "failed"
        found = await sdk.run("respondHelper", body=body("go"))
        assert (found["response"]["status"], found["said"]) == ("failed", "so far ")


async def test_node_library_gets_no_response_with_a_wrong_key(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api, node(api) as sdk:
        for case in ("respond", "respondStream", "retrieve"):
            with pytest.raises(Raised) as error:
                await sdk.run(case, key="wrong", body=body("hi"), id="resp_x")
            assert (error.value.name, error.value.code) == (
                "AuthenticationError",
                "invalid_api_key",
            )
