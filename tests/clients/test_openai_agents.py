"""The OpenAI Agents SDK as a client of both APIs."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.clients.kit import python_program
from tests.clients.library import Library, library
from tests.clients.scripted import plausible

MADRID = {"name": "Madrid", "people": 3400000}
CITY = "name='Madrid' people=3400000"
BOTH = pytest.mark.parametrize("api", ["responses", "chat"])

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agents(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    python = python_program("openai-agents", "openai-agents==0.24.0") / "python"
    handler = plausible(tools={"double": {"number": 21}}, document=MADRID)
    folder = tmp_path_factory.mktemp("openai-agents")
    async with library(
        folder, python, "openai_agents_tasks.py", "OpenAI Agents SDK", handler
    ) as opened:
        yield opened


@BOTH
async def test_an_agent_answers_by_its_instructions(agents: Library, api: str) -> None:
    assert await agents.answer("run", api) == "Hello from afar."
    assert "Be brief." in agents.asked[0].system


@BOTH
async def test_an_answer_is_streamed(agents: Library, api: str) -> None:
    assert (await agents.answer("stream", api)).replace("|", "") == "Hello from afar."


@BOTH
async def test_a_tool_of_the_agent_is_called(agents: Library, api: str) -> None:
    assert await agents.answer("tool", api) == "The result is 42."
    first, second = agents.asked
    assert "double" in first.tools
    assert [each["content"] for each in second.messages if each["role"] == "tool"] == ["42"]


@BOTH
async def test_an_output_type_is_a_format_of_the_model(agents: Library, api: str) -> None:
    assert await agents.answer("output_type", api) == CITY
    assert agents.asked[0].body["response_format"]["type"] == "json_schema"


@BOTH
async def test_a_tool_and_an_output_type_are_used_together(agents: Library, api: str) -> None:
    assert await agents.answer("tool_and_output_type", api) == CITY
    assert len(agents.asked) == 2
