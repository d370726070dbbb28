"""Libraries for Node: OpenAI's, its Agents SDK, LangChain, and Anthropic's, each with a tool of its own."""

from pathlib import Path
from typing import Any

import pytest

from tests.clients.kit import node_program
from tests.clients.node_programs import NodeFolder
from tests.clients.scripted import Request, offered, plausible, results
from tests.clients.settings_page import write_files
from tests.e2e.api_kit import daemon_for
from tests.fakes.model_server import Handler, ModelServer

PACKAGES = (
    "@langchain/openai@1.6.0",
    "@langchain/core@1.2.13",
    "@openai/agents@0.20.0",
    "openai@7.55.0",
    "@anthropic-ai/sdk@1.10.0",
    "zod@4.6.7",
)
OF_AGENT = plausible(tools={"current_time": {"timezone": "UTC"}})
BOTH = plausible(tools={"current_time": {"timezone": "UTC"}, "weather": {"city": "Berlin"}})
MADRID = {"city": "Madrid", "people": 3_300_000}
RESULT = "The result is Berlin: clear."

both_apis = pytest.mark.parametrize("api", ["chat", "responses"])


@pytest.fixture(scope="module")
def programs() -> Path:
    return node_program("node-sdks", *PACKAGES)


class Case:
    """A folder for a daemon and a program, and the model of the daemon."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self.requests: list[Request] = []
        """The requests that the model received."""

    async def run(self, heading: str, model: Handler, program: str, *words: str) -> Any:
        """Run a program of a section of the page, and return its outcome."""
        async with ModelServer(model) as server:
            daemon = daemon_for(self._folder / "home", server)
            async with daemon:
                node = NodeFolder(self._programs, heading, self._folder / "program", daemon)
                write_files("OpenAI library for Node", node.folder, daemon)
                found = await node.run(program, *words)
        self.requests = [each.body for each in server.requests]
        return found

    def check_results(self, *names: str) -> None:
        """Check that the model was offered tools of both sides, and received these results."""
        assert {"weather", "current_time"} <= offered(self.requests[0])
        assert set(results(self.requests[-1])) == set(names)


@pytest.fixture
def case(programs: Path, tmp_path: Path) -> Case:
    return Case(programs, tmp_path)


@pytest.mark.parametrize("how", ["whole", "stream"])
async def test_openai_library_runs_tools(case: Case, how: str) -> None:
    found = await case.run("OpenAI library for Node", BOTH, "openai_node.mjs", how)
    assert (found["text"], found["run"], found["messages"]) == (RESULT, ["Berlin"], 4)
    assert found["streamed"] == (RESULT if how == "stream" else "")
    case.check_results("current_time", "weather")


@both_apis
async def test_agents_sdk_runs_tools(case: Case, api: str) -> None:
    heading = "OpenAI Agents SDK for JavaScript"
    found = await case.run(heading, BOTH, "openai_agents.mjs", "tools", api)
    assert (found["text"], found["run"]) == (RESULT, ["Berlin"])
    case.check_results("current_time", "weather")


@both_apis
async def test_agents_sdk_streams_an_answer_after_a_tool(case: Case, api: str) -> None:
    heading = "OpenAI Agents SDK for JavaScript"
    found = await case.run(heading, BOTH, "openai_agents.mjs", "stream", api)
    assert found == {"text": RESULT, "streamed": RESULT, "run": ["Berlin"]}


@both_apis
async def test_agents_sdk_gets_structured_output(case: Case, api: str) -> None:
    heading = "OpenAI Agents SDK for JavaScript"
    model = plausible(document=MADRID)
    assert await case.run(heading, model, "openai_agents.mjs", "structured", api) == MADRID
    assert case.requests[0]["response_format"]["type"] == "json_schema"


@both_apis
async def test_langchain_streams_with_tools_of_the_agent(case: Case, api: str) -> None:
    found = await case.run("LangChain.js", OF_AGENT, "langchain_js.mjs", "stream", api)
    assert found["text"].startswith("The result is ")
    assert set(results(case.requests[-1])) == {"current_time"}


@both_apis
async def test_langchain_binds_tools(case: Case, api: str) -> None:
    found = await case.run("LangChain.js", BOTH, "langchain_js.mjs", "tools", api)
    assert found == {"text": RESULT, "run": ["Berlin"]}
    case.check_results("current_time", "weather")


@both_apis
@pytest.mark.parametrize("method", ["jsonSchema", "functionCalling", "jsonMode"])
async def test_langchain_gets_structured_output(case: Case, api: str, method: str) -> None:
    model = plausible(tools={"city": MADRID}, document=MADRID)
    words = ("structured", api, method)
    assert await case.run("LangChain.js", model, "langchain_js.mjs", *words) == MADRID
    assert ("response_format" in case.requests[0]) is (method != "functionCalling")


async def test_anthropic_library_streams_with_tools_of_the_agent(case: Case) -> None:
    found = await case.run("Anthropic SDK", OF_AGENT, "anthropic_sdk.mjs", "stream")
    assert found["streamed"] == found["text"]
    assert found["text"].startswith("The result is ")
    assert found["reason"] == "end_turn"


async def test_anthropic_library_runs_tools(case: Case) -> None:
    found = await case.run("Anthropic SDK", BOTH, "anthropic_sdk.mjs", "tools")
    assert found == {"text": RESULT, "reason": "end_turn", "run": ["Berlin"]}
    case.check_results("current_time", "weather")


async def test_anthropic_library_runs_tools_of_streams(case: Case) -> None:
    found = await case.run("Anthropic SDK", BOTH, "anthropic_sdk.mjs", "tools_stream")
    assert found == {"text": RESULT, "reasons": ["tool_use", "end_turn"], "run": ["Berlin"]}
