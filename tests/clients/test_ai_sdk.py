"""The AI SDK with its three providers: streams, tools of both sides, objects, errors."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import NodeFolder
from tests.clients.scripted import Request, offered, plausible, results
from tests.e2e.api_kit import PATIENCE, daemon_for
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import Handler, ModelServer

PACKAGES = (
    "ai@7.0.173",
    "@ai-sdk/openai-compatible@3.0.92",
    "@ai-sdk/openai@4.0.118",
    "@ai-sdk/open-responses@2.0.36",
    "zod@4.6.7",
)
COMPATIBLE = ("holdfast.mjs", "model")
RESPONSES = ("openai.mjs", "model")
CHAT = ("openai.mjs", "chat")
OPEN_RESPONSES = ("open-responses.mjs", "model")
PROVIDERS = (COMPATIBLE, RESPONSES, CHAT, OPEN_RESPONSES)
OF_AGENT = plausible(tools={"current_time": {"timezone": "UTC"}})
OF_CLIENT = plausible(tools={"weather": {"city": "Berlin"}})
BOTH = plausible(tools={"current_time": {"timezone": "UTC"}, "weather": {"city": "Berlin"}})
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(40)
MADRID = {"city": "Madrid", "people": 3_300_000}

each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids="-".join)


@pytest.fixture(scope="module")
def programs() -> Path:
    return node_program("ai-sdk", *PACKAGES)


@contextlib.asynccontextmanager
async def node_for(server: ModelServer, programs: Path, folder: Path) -> AsyncIterator[NodeFolder]:
    """Start a daemon with this model, and make a folder with the settings of the page."""
    daemon = daemon_for(folder / "home", server)
    async with daemon:
        yield NodeFolder(programs, "AI SDK", folder / "program", daemon)


async def outcome(
    programs: Path, folder: Path, model: Handler, task: str, provider: tuple[str, str]
) -> tuple[Any, list[Any]]:
    """Run one task, and return its outcome with the requests that the model received."""
    async with ModelServer(model) as server, node_for(server, programs, folder) as node:
        env = {"PICTURE": base64.b64encode(PICTURE).decode()}
        found = await node.run("ai_sdk.mjs", task, *provider, env=env)
    return found, [each.body for each in server.requests]


@each_provider
async def test_a_stream_with_tools_of_the_agent_has_no_errors(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    found, asked = await outcome(programs, tmp_path, OF_AGENT, "stream", provider)
    assert found["errors"] == []
    assert "error" not in found["parts"]
    assert not [each for each in found["parts"] if each.startswith("tool")]
    assert found["text"].startswith("The result is ")
    assert (found["reason"], found["steps"]) == ("stop", 1)
    assert found["tokens"] > 0
    assert '"running"' in found["raw"]  # the events of the tool were there
    assert len(asked) == 2
    assert set(results(asked[1])) == {"current_time"}


@each_provider
async def test_a_stream_with_a_notice_has_no_errors(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    scripts = ('S429:{"retry-after":"0.01"}', ok("Done."))
    async with ModelServer(*scripts) as server, node_for(server, programs, tmp_path) as node:
        found = await node.run("ai_sdk.mjs", "stream", *provider)
    assert "rate limit" in found["raw"]
    assert (found["errors"], found["text"]) == ([], "Done.")
    assert "error" not in found["parts"]


@each_provider
async def test_tools_of_the_program_run_in_a_loop(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    found, asked = await outcome(programs, tmp_path, OF_CLIENT, "stream_tools", provider)
    assert found["errors"] == []
    assert found["run"] == ["Berlin"]
    assert "tool-output-available" in found["parts"]
    assert (found["reason"], found["steps"]) == ("stop", 2)
    assert '"sky":"clear"' in found["text"]
    assert {"weather", "current_time"} <= offered(asked[0])
    assert set(results(asked[1])) == {"weather"}


@each_provider
async def test_tools_of_both_sides_run_in_one_answer(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    found, asked = await outcome(programs, tmp_path, BOTH, "tools", provider)
    assert found["run"] == ["Berlin"]
    assert found["steps"] == 2
    assert '"sky":"clear"' in found["text"]
    assert set(results(asked[-1])) == {"current_time", "weather"}


@pytest.mark.parametrize("task", ["output", "object"])
@each_provider
async def test_objects_fit_the_schema(
    programs: Path, tmp_path: Path, provider: tuple[str, str], task: str
) -> None:
    model = plausible(document=MADRID)
    found, asked = await outcome(programs, tmp_path, model, task, provider)
    assert found == MADRID
    assert asked[0]["response_format"]["type"] == "json_schema"


@each_provider
async def test_errors_keep_their_status(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    found, _ = await outcome(
        programs, tmp_path, lambda _: 'S400"The temperature is too high."', "error", provider
    )
    assert found["name"] == "AI_APICallError"
    assert (found["status"], found["retry"]) == (400, False)
    assert "The temperature is too high." in found["body"]


@each_provider
async def test_pictures_reach_the_model(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    found, asked = await outcome(programs, tmp_path, plausible(text="Red."), "picture", provider)
    assert found == "Red."
    assert base64.b64encode(PICTURE).decode() in str(asked[0]["messages"][-1])


@pytest.mark.parametrize("provider", [RESPONSES, OPEN_RESPONSES], ids="-".join)
async def test_pictures_in_results_of_tools_reach_the_model(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    def model(request: Request) -> Script:
        looked = any(each["role"] == "tool" for each in request["messages"])
        return ok("It is red.") if looked else calls(("c1", "look", "{}"))

    found, asked = await outcome(programs, tmp_path, model, "look", provider)
    assert found == "It is red."
    assert [each["role"] for each in asked[1]["messages"][-2:]] == ["tool", "user"]
    assert base64.b64encode(PICTURE).decode() in str(asked[1]["messages"][-1])


@each_provider
async def test_prompts_for_a_developer_model_reach_the_model(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    """Models named like those of OpenAI get the prompt with the role `developer`."""
    async with ModelServer(plausible(), models=("gpt-5.1",)) as server:
        daemon = daemon_for(tmp_path / "home", server)
        daemon.settings = tuple(each.replace("scripted", "gpt-5.1") for each in daemon.settings)
        async with daemon:
            node = NodeFolder(programs, "AI SDK", tmp_path / "program", daemon)
            env = {"GATEWAY_MODEL": "gpt-5.1"}
            found = await node.run("ai_sdk.mjs", "stream", *provider, env=env)
    assert (found["errors"], found["text"]) == ([], "Hello from afar.")
    assert server.requests[0].body["model"] == "gpt-5.1"
    assert "Be brief." in server.requests[0].system.splitlines()


@each_provider
async def test_an_abort_ends_the_request_to_the_model(
    programs: Path, tmp_path: Path, provider: tuple[str, str]
) -> None:
    endless = 'H [T"word " W.05]*'
    async with ModelServer(endless) as server, node_for(server, programs, tmp_path) as node:
        found = await node.run("ai_sdk.mjs", "abort", *provider)
        async with asyncio.timeout(PATIENCE):
            await server.requests[0].closed.wait()
    assert "text-delta" in found
    assert found[-1] == "abort"
