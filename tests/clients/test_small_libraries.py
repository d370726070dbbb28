"""smolagents, LlamaIndex and DSPy as clients."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.clients.kit import python_program
from tests.clients.library import Library, library
from tests.clients.scripted import Request, offered, plausible, text_of
from tests.fakes.model_script import Script, calls, ok

MADRID = {"name": "Madrid", "people": 3400000}
FOUND = {"city": "Madrid", "people": 3400000}
_FIELDS = "[[ ## city ## ]]\nMadrid\n\n[[ ## people ## ]]\n3400000\n\n[[ ## completed ## ]]"
_CODE = "Thought: I double it.\n<code>\nfinal_answer(double(21))\n</code>"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def smolagents(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    def answer(request: Request) -> Script:
        if "final_answer" not in offered(request):
            return ok(_CODE)
        said = text_of(request["messages"][-1])
        if "Observation:" in said:  # the result of a tool, as a message of the user
            return calls(("c2", "final_answer", json.dumps({"answer": said.split()[-1]})))
        return calls(("c1", "double", '{"number": 21}'))

    python = python_program("smolagents", "smolagents[openai]==1.26.0") / "python"
    folder = tmp_path_factory.mktemp("smolagents")
    async with library(folder, python, "smolagents_tasks.py", "smolagents", answer) as opened:
        yield opened


@pytest.mark.parametrize("task", ["tools", "stream"])
async def test_an_agent_of_smolagents_calls_its_tool(smolagents: Library, task: str) -> None:
    assert (await smolagents.answer(task)).split()[-1] == "42"
    assert set(smolagents.asked[0].tools) == {"double", "final_answer"}


async def test_an_agent_of_smolagents_runs_its_code(smolagents: Library) -> None:
    assert await smolagents.answer("code") == "42"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llamaindex(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    python = python_program("llamaindex", "llama-index-llms-openai-like==0.8.1") / "python"
    handler = plausible(tools={"double": {"number": 21}, "City": MADRID})
    folder = tmp_path_factory.mktemp("llamaindex")
    async with library(folder, python, "llamaindex_tasks.py", "LlamaIndex", handler) as opened:
        yield opened


@pytest.mark.parametrize("task", ["chat", "stream", "legacy", "legacy_stream", "legacy_chat"])
async def test_llamaindex_gets_an_answer(llamaindex: Library, task: str) -> None:
    assert (await llamaindex.answer(task)).replace("|", "") == "Hello from afar."


async def test_llamaindex_calls_its_tool(llamaindex: Library) -> None:
    assert await llamaindex.answer("tools") == "42"
    assert "double" in llamaindex.asked[0].tools


async def test_llamaindex_gets_structured_output(llamaindex: Library) -> None:
    assert await llamaindex.answer("structured") == "name='Madrid' people=3400000"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dspy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    def answer(request: Request) -> Script:
        is_json = "JSON" in text_of(request["messages"][-1])
        return ok(json.dumps(FOUND) if is_json else _FIELDS)

    python = python_program("dspy", "dspy==3.4.1") / "python"
    folder = tmp_path_factory.mktemp("dspy")
    async with library(folder, python, "dspy_tasks.py", "DSPy", answer) as opened:
        yield opened


@pytest.mark.parametrize("task", ["predict", "json"])
async def test_dspy_reads_the_fields_of_an_answer(dspy: Library, task: str) -> None:
    assert await dspy.answer(task) == "Madrid 3400000"
